"""Products of two matrices.

`matmul` chooses a kernel and its launches: `naive`, `simt`, `mma` and `wgmma` print them, `mapped` launches those that
read tensor maps, `blas` is NVIDIA's own, and `splits` adds up what was split along k.  `problem` holds sizes and
strides, `form` what the kernels' texts share, `catalogue` their entries.
"""
