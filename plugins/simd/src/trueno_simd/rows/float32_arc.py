"""The inverse trigonometric functions of one float32 (`trueno_simd.rows.float32` says how)."""

import math
from typing import Any

from trueno_simd.llvm.bits import absolute, copysign, fast_two_sum, polynomial, select
from trueno_simd.llvm.bits import sqrt as root
from trueno_simd.llvm.jit import inner
from trueno_simd.rows.float32_exp_log import ONE, TWO, ZERO, F

ATAN = polynomial(
    -0.33333153, 0.19993767, -0.14211002, 0.106657684, -0.07551656, 0.043204635, -0.016363103, 0.0029193931
)
ASIN = polynomial(0.16666752, 0.074953094, 0.045469154, 0.024184743, 0.042158388)
HALF, HALF_PI, HALF_PI_LOW = F(0.5), F(math.pi / 2), F(-4.371139e-08)
PI, PI_LOW = F(math.pi), F(-8.742278e-08)


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
def _parts(a: Any, far: Any) -> Any:
    """s and s³ ASIN(s²), s = a or, if `far`, √((1 - a) / 2): their sum is asin a, or half of acos a."""
    z = select(far, (ONE - a) * HALF, a * a)
    s = select(far, root(z), a)
    return s, s * (z * ASIN(z))


@inner
def asin(x: Any) -> Any:
    """A polynomial up to 1/2, then π/2 - acos x, whose larger part is subtracted exactly.  Error 1.19 at 0.530."""
    a = absolute(x)
    far = a > HALF
    s, t = _parts(a, far)
    rest, lost = fast_two_sum(HALF_PI, -TWO * s)
    return copysign(select(far, rest - (TWO * t - (HALF_PI_LOW + lost)), s + t), x)


@inner
def acos(x: Any) -> Any:
    """π/2 - asin x up to 1/2; then twice the arc of the half, or π less that.  Error 1.14 at 0.607 (SSE2)."""
    a = absolute(x)
    far = a > HALF
    s, t = _parts(a, far)
    y = s + t
    twice = TWO * y
    beyond = select(x < ZERO, PI - (twice - PI_LOW), twice)
    return select(far, beyond, HALF_PI - (copysign(y, x) - HALF_PI_LOW))
