"""Kernels on quantized matrices: what is read from blocks, and never held as floats.

`blocks` decodes every format of the core's table inside a kernel.
"""
