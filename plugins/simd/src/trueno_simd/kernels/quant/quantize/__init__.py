"""Rows of float32 to blocks, bit for bit as ggml does it.

`kernel` holds the two kernels, and `encoders` the table of what encodes which format: `blocks` where the largest number
is the scale, `rows`, `groups` and `signed` where a scale is searched for, by `search` in batches (`batch`).  `store`
writes codes and scales into a block.
"""
