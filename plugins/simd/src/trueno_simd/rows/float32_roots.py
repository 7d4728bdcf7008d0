"""The reciprocal square root of one float32 (`trueno_simd.rows.float32` says how)."""

from typing import Any

from trueno_simd.llvm.bits import sqrt
from trueno_simd.llvm.jit import inner
from trueno_simd.rows.float32_exp_log import ONE


@inner
def rsqrt(x: Any) -> Any:
    """1 / sqrt(x), two correctly rounded steps; ±Inf at ±0.  Error 1.49."""
    return ONE / sqrt(x)
