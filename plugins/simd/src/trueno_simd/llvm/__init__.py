"""What this plugin says to Numba and LLVM: for which CPU, how functions are compiled, what Python cannot say.

`target` and `isa` decide the CPU and its instructions, `jit` has the decorators, `linking` and `environment` work on
the code of a kernel, and `elsewhere` is the thread in which all of it happens.  The rest are intrinsics: `bits` of one
float, `vectors`, `memory` by pointer, `streaming` past the caches, whose size `caches` knows, `calls` of C and CPython,
and `rare`, a slow path for few arguments.
"""
