"""Products of two matrices.

`choice` picks a kernel, and `matmul` launches it: `naive`, `simt`, `mma` and `wgmma` print them, `mapped` launches
those that read tensor maps, `blas` is NVIDIA's own, and `splits` adds up what was split along k.  `problem` holds sizes
and strides, `form` what the kernels' texts share, `catalogue` their entries.
"""
