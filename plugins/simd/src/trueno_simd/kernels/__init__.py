"""The structured kernels, which are hand-written: ops that are not row programs.

`KERNELS[op](dtype, static)` makes the kernel of an op for float32 or float64 and its static parameters.  A kernel is
called `kernel(*operands, out)` with C-contiguous operands; it returns 0, or -1 having written nothing: shapes that do
not agree, or an `out` that shares memory with an operand.  `Refused` comes from the compiled signature: another
dtype, byte order or layout, or a read-only `out`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from trueno.backend import Rates

from trueno_simd.kernels import convolve, eigen, gather, matmul, matvec, transpose
from trueno_simd.kernels.quant import colmajor, dequantize, matmul_colmajor, quantize
from trueno_simd.kernels.quant import matmul as quant_matmul
from trueno_simd.kernels.quant import matvec as quant_matvec

Factory = Callable[[np.dtype, dict[str, Any]], Callable[..., int]]

_LISTED: dict[str, tuple[Factory, Rates]] = {
    "matmul": (matmul.matmul, Rates(0.3e-6, 1e11, 5e10)),
    "batched_matmul": (matmul.batched_matmul, Rates(0.5e-6, 7e10, 6e10)),
    "matvec": (matvec.matvec, Rates(0.2e-6, 4e10, 8e10)),
    "vecmat": (matvec.vecmat, Rates(0.2e-6, 4e10, 8e10)),
    "convolve2d": (convolve.convolve2d, Rates(1e-6, 8e10, 4e10)),
    "transpose": (transpose.transpose, Rates(0.3e-6, 1e11, 7e10)),
    "embedding_lookup": (gather.embedding_lookup, Rates(0.3e-6, 1e11, 1.2e11)),
    "outer": (gather.outer_product, Rates(0.2e-6, 3e10, 1.2e11)),
    "symmetric_eigen": (eigen.symmetric_eigen, Rates(2e-5, 1.5e10, 2e10)),
    "dequantize": (dequantize.dequantize, Rates(0.3e-6, 1e11, 8e10)),
    "quantize_rows": (quantize.quantize_rows, Rates(0.5e-6, 4e10, 4e10)),
    "quantize_rows_weighted": (quantize.quantize_rows_weighted, Rates(0.5e-6, 4e10, 4e10)),
    "quant_matvec": (quant_matvec.quant_matvec, Rates(1e-6, 1.2e11, 4e10)),
    "quant_matmul": (quant_matmul.quant_matmul, Rates(2e-6, 3e11, 4e10)),
    "quant_matvec_colmajor": (colmajor.quant_matvec_colmajor, Rates(1e-6, 4e10, 4e10)),
    "quant_matmul_colmajor": (matmul_colmajor.quant_matmul_colmajor, Rates(2e-6, 6e10, 4e10)),
}
"""By op: the factory of its kernel, and its rates in float32 on one core; eigenvalues are LAPACK's, through NumPy."""

KERNELS = {name: factory for name, (factory, _) in _LISTED.items()}
RATES = {name: rates for name, (_, rates) in _LISTED.items()}

__all__ = ["KERNELS", "RATES", "Factory"]
