"""Elementary functions of one float32, written so that a plain loop around them vectorizes.

Straight lines of selects, integer adds and Horner's rule: no branch, no table, no libm, no SVML, so every ISA
level gets packed code.  Each function is right at NaN (which stays), ±Inf, ±0 (whose sign stays), subnormals,
overflow and the edges of its domain.  `ULP` states the bounds; what the docstrings call the error is the worst
seen in tests with AVX-512 (every 7th float) and SSE2 (every 61st), in ulps of the result, oracle float64.

The ideas are Cody and Waite's (reduction in parts), Cephes' and FDLIBM's (how the logarithms split), Dekker's
(exact sums) and Muller's (Elementary Functions; the sum with a magic number).  Code and coefficients are our
own: minimax fits by linear programming on Chebyshev points, weighted by the result's ulp, each coefficient
rounded to float32 and held before the next was fitted.
"""

import math
from typing import Any

from trueno_simd.llvm.bits import absolute, copysign, polynomial, select, sqrt
from trueno_simd.llvm.jit import inner
from trueno_simd.rows.float32_exp_log import (
    MAGIC,
    ONE,
    TWO,
    ZERO,
    F,
    exp,
    exp2,
    expm1,
    log,
    log1p,
    log1p_unit,
    log2,
    log10,
    power_of_two,
)
from trueno_simd.rows.float32_pow import pow  # noqa: A004
from trueno_simd.rows.float32_trig import cos, sin

TANH = polynomial(-0.33333313, 0.13332437, -0.053835757, 0.021000376, -0.006169614)
TANH_NEAR, TANH_MAX = F(0.55), F(10)
LOG2_E2 = F(2 / math.log(2))
ERF = polynomial(0.12837917, -0.3761259, 0.11282865, -0.026807288, 0.0050577037, -0.00063485187)
LOG2_ERFC = polynomial(-0.00016549481, -1.6273823, -0.918422, -0.15068683, 0.03243045, -0.0044827675, 0.00029219323)
ERF_NEAR, ERF_MAX = F(0.85), F(3.93)  # beyond ERF_MAX: 1
ATAN = polynomial(
    -0.33333153, 0.19993767, -0.14211002, 0.106657684, -0.07551656, 0.043204635, -0.016363103, 0.0029193931
)
HALF_PI, HALF_PI_LOW = F(math.pi / 2), F(-4.371139e-08)


@inner
def tanh(x: Any) -> Any:
    """x + x³ TANH(x²) up to 0.55, then 1 - 2 / (e^2x + 1), where errors of e^2x shrink.  Error 1.90 at 0.551."""
    a = absolute(x)
    c = select(a > TANH_MAX, TANH_MAX, a)
    t = c * LOG2_E2 + MAGIC
    far = ONE - TWO / (power_of_two(c * LOG2_E2 - (t - MAGIC), t) + ONE)
    s = a * a
    near = a + a * (s * TANH(s))
    return copysign(select(a > TANH_NEAR, far, near), x)


@inner
def erf(x: Any) -> Any:
    """x + x ERF(x²) up to 0.85, then 1 - 2^L with a polynomial L for log2(erfc).  Error 1.39 at 0.892 (SSE2)."""
    a = absolute(x)
    w = LOG2_ERFC(select(a > ERF_MAX, ERF_MAX, a))
    t = w + MAGIC
    far = ONE - power_of_two(w - (t - MAGIC), t)
    near = a + a * ERF(a * a)
    return copysign(select(a > ERF_NEAR, far, near), x)


@inner
def atan(x: Any) -> Any:
    """z + z³ ATAN(z²) with z = x, or π/2 + the same of z = -1/x beyond 1.  Error 1.40 at 1.059."""
    a = absolute(x)
    far = a > ONE
    z = select(far, -ONE / a, a)
    t = z * z
    y = z + (z * (t * ATAN(t)) + select(far, HALF_PI_LOW, ZERO))
    return copysign(y + select(far, HALF_PI, ZERO), x)


@inner
def rsqrt(x: Any) -> Any:
    """1 / sqrt(x), two correctly rounded steps; ±Inf at ±0.  Error 1.49."""
    return ONE / sqrt(x)


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
    "atan": 1.6,
    "pow": 2.0,
    "rsqrt": 1.5,
    "sqrt": 0.5,
}
