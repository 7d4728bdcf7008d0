"""The structured kernels, which are hand-written: ops that are not row programs.

`table` has them all, each declared by the module of its op: `gemm/` and `gemv` (products), `outer`, `convolve2d`,
`transpose` and `embedding`; `cast` and `copy` serve the backend itself.  `product` runs what products have in common:
`store` and `epilogue` are how they end, `source` and `operands` help to write kernels.
"""

from trueno_cuda.kernels import (  # noqa: F401 - they declare their kernels
    concatenate,
    convolve2d,
    eigen,
    embedding,
    gemv,
    outer,
    rope,
    sample,
    topk,
    transpose,
)
from trueno_cuda.kernels.attention import prefill  # noqa: F401
from trueno_cuda.kernels.caches import attend, scatter  # noqa: F401
from trueno_cuda.kernels.exchange import launches  # noqa: F401
from trueno_cuda.kernels.gemm import matmul  # noqa: F401
from trueno_cuda.kernels.lz4 import compress, decompress, pack  # noqa: F401
from trueno_cuda.kernels.quant import columns, decoding, experts, products, quantize  # noqa: F401
from trueno_cuda.kernels.table import KERNELS

__all__ = ["KERNELS"]
