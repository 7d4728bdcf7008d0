"""The structured kernels, written by hand: what is no row program.

`KERNELS` (`table`) makes the kernel of a key.  A kernel is called `kernel(*operands, out)`, operands C-contiguous; it
answers 0, or -1 having written nothing: shapes that do not agree, or an `out` that shares memory with an operand.
`Refused` comes from the compiled signature: another dtype, byte order or layout, or a read-only `out`.

`matmul`, `matvec`, `vecmat`, `convolve`, `transpose`, `gather`, `eigen`, `rope`, `attention`, `ragged`, `decode` and
`scatter` (of caches), `topk`, `sample` and `concatenate` are of plain arrays, the folder `quant` is of quantized
matrices, `lz4` of pages of bytes; `tile` is the register tile of products, `attend` and `flash` have attention's blocks
and rows, and `operands` has types and checks.
"""

from trueno_simd.kernels import (  # noqa: F401 - each adds its own
    attention,
    concatenate,
    convolve,
    decode,
    eigen,
    gather,
    matmul,
    matvec,
    ragged,
    rope,
    sample,
    scatter,
    topk,
    transpose,
    vecmat,
)
from trueno_simd.kernels.lz4 import compress, decompress, pack  # noqa: F401
from trueno_simd.kernels.quant import dequantize, experts, lookup, matmul_colmajor, matvec_colmajor  # noqa: F401
from trueno_simd.kernels.quant import matmul as quant_matmul  # noqa: F401
from trueno_simd.kernels.quant import matvec as quant_matvec  # noqa: F401
from trueno_simd.kernels.quant.quantize import kernel as quantize  # noqa: F401
from trueno_simd.kernels.table import KERNELS, PRODUCTS, own_environment

__all__ = ["KERNELS", "PRODUCTS", "own_environment"]
