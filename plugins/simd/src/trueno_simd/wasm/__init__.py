"""Kernels as one WebAssembly module, for pages without a GPU: `request` describes them to a child process (`child`),
which compiles them (`kernels`, `target`) with the code that calls them (`program`), and links the module (`linker`)."""
