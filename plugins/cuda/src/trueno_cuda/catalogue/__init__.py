"""Every kernel of this plugin, with everything that printing it and running it on the emulator needs.

`entry` is the declaration beside a kernel; `registry` collects, builds and runs the entries, for `trueno ptx`
(`trueno_cuda.commands`) and for the tests.
"""
