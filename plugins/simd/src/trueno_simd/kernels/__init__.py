"""The structured kernels, written by hand: what is no row program (DESIGN 1).

`KERNELS[op](dtype, static)` makes the kernel of an op for float32 or float64 and its static parameters.  A kernel is
called `kernel(*operands, out)`, operands C-contiguous; it answers 0, or -1 having written nothing: shapes that do
not agree, or an `out` that shares memory with an operand.  `Refused` comes from the compiled signature: another
dtype, byte order or layout, or a read-only `out`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from trueno_simd.kernels import convolve, eigen, gather, matmul, matvec, transpose
from trueno_simd.kernels.quant import colmajor, dequantize, matmul_colmajor, quantize
from trueno_simd.kernels.quant import matmul as quant_matmul
from trueno_simd.kernels.quant import matvec as quant_matvec

Factory = Callable[[np.dtype, dict[str, Any]], Callable[..., int]]

KERNELS: dict[str, Factory] = {
    "matmul": matmul.matmul,
    "batched_matmul": matmul.batched_matmul,
    "matvec": matvec.matvec,
    "vecmat": matvec.vecmat,
    "convolve2d": convolve.convolve2d,
    "transpose": transpose.transpose,
    "embedding_lookup": gather.embedding_lookup,
    "outer": gather.outer_product,
    "symmetric_eigen": eigen.symmetric_eigen,
    "dequantize": dequantize.dequantize,
    "quantize_rows": quantize.quantize_rows,
    "quantize_rows_weighted": quantize.quantize_rows_weighted,
    "quant_matvec": quant_matvec.quant_matvec,
    "quant_matmul": quant_matmul.quant_matmul,
    "quant_matvec_colmajor": colmajor.quant_matvec_colmajor,
    "quant_matmul_colmajor": matmul_colmajor.quant_matmul_colmajor,
}

__all__ = ["KERNELS", "Factory"]
