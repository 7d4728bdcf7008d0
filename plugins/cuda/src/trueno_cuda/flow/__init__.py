"""PTX through a code base: which functions emit, load, analyze and consume it, read from the source alone.

`files` finds and parses the files, `table` lists their functions and what each name means, `evidence` looks for PTX in
a function's own code, `graph` resolves calls and derives roles from them; `report`, `page` and `command` show the
result.
Nothing that is read is imported or run.
"""
