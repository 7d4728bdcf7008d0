"""The structured kernels, written by hand: what is not a row program.

`table` has them all, each declared by the module of its op: `matmul` with `tile` and `tile_text`, `gemv`, `outer`,
`convolve2d`, `transpose`, `embedding`, `topk`, `concatenate`, `attention/`, `caches/` for caches of keys and values,
`sampling/`, `lz4/`, and `quant/` for quantized matrices.  `dispatches` plans and runs dispatches, `memory` binds
operands band by band, `store` and `epilogue` end products.  `cached_matmul` keeps weights on the GPU.
"""

from trueno_wgpu.kernels import (  # noqa: F401 - they declare theirs
    concatenate,
    convolve2d,
    embedding,
    gemv,
    matmul,
    outer,
    rope,
    topk,
    transpose,
)
from trueno_wgpu.kernels.attention import kernel, ragged  # noqa: F401
from trueno_wgpu.kernels.caches import attend, scatter  # noqa: F401
from trueno_wgpu.kernels.lz4 import compress, decompress, pack  # noqa: F401
from trueno_wgpu.kernels.quant import experts, lookup, products  # noqa: F401
from trueno_wgpu.kernels.sampling import kernel as sampling  # noqa: F401
from trueno_wgpu.kernels.table import KERNELS

__all__ = ["KERNELS"]
