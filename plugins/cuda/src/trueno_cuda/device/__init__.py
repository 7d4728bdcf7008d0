"""The device layer: opening a device, its arrays, launches and waiting.

`protocol` is the device as kernels see it.  `hardware` is a GPU through CuPy and the driver, `emulated` the PTX
emulator; `launching` runs kernels that users built, and `repeated` binds a kernel's calls to launches that were
prepared before.
"""
