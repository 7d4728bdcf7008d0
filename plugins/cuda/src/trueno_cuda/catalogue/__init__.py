"""Every kernel of this plugin, with what it takes to print it and to try it on the emulator.

`entry` is what a module says of a kernel beside it; `registry` collects, builds and runs the entries, for `trueno ptx`
(`trueno_cuda.commands`) and for the tests.
"""
