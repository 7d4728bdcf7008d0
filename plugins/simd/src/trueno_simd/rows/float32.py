"""Elementary functions of one float32, written so that a plain loop around them vectorizes.

Straight lines of selects, integer adds and Horner's rule: no branch, no table, no libm, no SVML, so every ISA
level gets packed code.  For AVX-512 most have another form (`trueno_simd.rows.float32_avx512`).  Each function is
right at NaN (which stays), ±Inf, ±0 (whose sign stays), subnormals, overflow and the edges of its domain.  `ULP`
states the bounds; what the docstrings call the error is the worst seen in tests with FMA (every 7th float) and SSE2
(every 61st), in ulps of the result, oracle float64.

The ideas are Cody and Waite's (reduction in parts), Cephes' and FDLIBM's (how the logarithms split), Dekker's
(exact sums) and Muller's (Elementary Functions; the sum with a magic number).  Code and coefficients are our
own: minimax fits by linear programming on Chebyshev points, weighted by the result's ulp, each coefficient
rounded to float32 and held before the next was fitted.
"""

from typing import TYPE_CHECKING, Any

from trueno_simd.llvm.bits import AVX512
from trueno_simd.llvm.isa import slow_root
from trueno_simd.rows.float32_arc import acos, asin, atan

if AVX512 and not TYPE_CHECKING:
    from trueno_simd.rows.avx512_pow import pow32 as pow  # noqa: A004
    from trueno_simd.rows.float32_avx512 import (
        cos,
        erf,
        exp,
        exp2,
        expm1,
        log,
        log1p,
        log1p_unit,
        log2,
        log10,
        rsqrt,
        sin,
        tan,
        tanh,
    )
else:
    from trueno_simd.rows.float32_exp_log import exp, exp2, expm1, log, log1p, log1p_unit, log2, log10
    from trueno_simd.rows.float32_pow import pow  # noqa: A004
    from trueno_simd.rows.float32_roots import rsqrt
    from trueno_simd.rows.float32_tanh import erf, tanh
    from trueno_simd.rows.float32_trig import cos, sin, tan  # noqa: F401 (the printer calls it for sin x / cos x)
if slow_root() and not TYPE_CHECKING:
    from trueno_simd.rows.float32_avx512 import sqrt
else:
    from trueno_simd.llvm.bits import sqrt


FUNCTIONS: dict[str, Any] = {
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "log": log,
    "log2": log2,
    "log10": log10,
    "log1p": log1p,
    "log1p_unit": log1p_unit,
    "tanh": tanh,
    "erf": erf,
    "sin": sin,
    "cos": cos,
    "asin": asin,
    "acos": acos,
    "atan": atan,
    "pow": pow,
    "rsqrt": rsqrt,
    "sqrt": sqrt,
}

# The largest error of each function in ulps, at every ISA level.
ULP: dict[str, float] = {
    "exp": 1.2,
    "exp2": 1.2,
    "expm1": 1.7,
    "log": 1.0,
    "log2": 1.4,
    "log10": 1.2,
    "log1p": 1.6,
    "log1p_unit": 1.7,
    "tanh": 2.1,
    "erf": 1.6,
    "sin": 1.8,
    "cos": 1.8,
    "asin": 1.3,
    "acos": 1.3,
    "atan": 1.6,
    "pow": 2.0,
    "rsqrt": 1.5,
    "sqrt": 0.5,
}
