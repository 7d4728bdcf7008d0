"""Row programs: the language in which the table of ops is written, from an op's body to what a printer reads.

`language` is what a body calls, `trace` runs it once with symbols, `program` is what that makes.  `evaluate` computes
a program with NumPy, `guarded` adds flags to one, and `lower` orders it into passes over a row for the printers.
"""
