"""From a function or a printed module to machine code that outlives the process.

`entry` compiles a kernel and keeps its code, `store` says where and when kept code is still good, `modules` imports
printed kernels from there, and `temporary` is the folder that is used if the user's cache cannot be.
"""
