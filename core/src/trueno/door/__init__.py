"""The compiled door: the public function of an op, called through machine code that a backend compiled.

`contract` says what a backend is asked for and may read; `abi` verifies what machine code assumes of CPython and NumPy,
`words` gathers the addresses that it uses, `kinds` derives from an op which entry it needs, `functions` puts an entry
in front of a Python function, and `doors` opens and closes them.  Importing `trueno` loads none of this: the
first plan whose kernel has machine code does.  docs/adr/0019 says why, and what it costs.
"""
