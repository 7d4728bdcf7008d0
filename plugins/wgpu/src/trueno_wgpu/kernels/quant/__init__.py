"""Kernels of the ops on quantized matrices: blocks are read as they are, and never held as floats.

`products` makes the kernels: `rows` for a few rows of x, `tile` for many, `columns` where blocks lie along the other
axis.  `experts` multiplies with experts that indices name, and `lookup` decodes rows that they name.  `dequantize`
decodes, `activations` quantizes x, `guard` looks at results, and `blocks` prints what reads the formats.
"""
