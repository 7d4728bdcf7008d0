"""Kernels of quantized matrices: blocks read in the file's layout, for every format of the core's table.

The kernels are `dequantize`, `matvec`, `matmul`, `matvec_colmajor` and `matmul_colmajor`, and those of the folder
`quantize`.  `vector` holds products of rows with one vector, `tile` those with many; `printed`, `regions`, `groups`,
`activations` and `halves` serve several of them.
"""
