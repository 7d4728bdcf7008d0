"""What opens a device, holds its arrays, launches kernels on it and waits for it.

`protocol` says what kernels see of a device.  `hardware` is a GPU through CuPy and the driver, `emulated` the PTX
emulator; `launching` runs kernels that users built, and `repeated` binds a kernel's calls to launches that were
prepared before.
"""
