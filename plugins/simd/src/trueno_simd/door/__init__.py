"""Entries: machine code in front of the public functions, which the core asks for (`trueno.backend.contract`).

`text` writes LLVM's language, `arguments`, `arrays`, `numbers`, `plans` and `results` print the steps of an entry in
their order, `entry` puts them together for a kind of op, and `build` compiles a kind once, keeps its object code
beside the kernels, and loads it for an op.  `native` keeps kernels for processes without Numba, and `direct` calls
them through entries of their own, which `direct_entry` prints.
"""
