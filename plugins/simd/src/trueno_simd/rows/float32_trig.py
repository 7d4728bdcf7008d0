"""Sine and cosine of one float32: x = r + q π/2 with |r| <= π/4 and a little, then two polynomials and a select.

Up to `LIMIT` the reduction stays in float32 (Cody and Waite in three fused parts) or, without FMA, in float64.
Beyond, and rarely, 2/π is five pairs of float64, 2^k · 2/π modulo 4 for k = 0, 24, … 96; with 2^-k x an integer
(or k = 0) the product's integer part modulo 4 is the quadrant: Payne and Hanek's idea with selects for the table.
The coefficients are our own minimax fits on |r| <= 0.885; the five pairs come from mpmath (120 digits).
"""

from typing import Any

import numpy as np
from numba import types

from trueno_simd.llvm.bits import (
    FMA,
    absolute,
    from_bits,
    iadd,
    iand,
    ixor,
    narrow,
    polynomial,
    select,
    shl,
    sub,
    to_bits,
    two_product,
)
from trueno_simd.llvm.jit import inner, outer
from trueno_simd.llvm.rare import rarely

F, D, INT = np.float32, np.float64, np.int32
MAGIC, D_MAGIC = F(1.5 * 2**23), D(1.5 * 2**52)  # multiples of 4, so the low two bits are the quadrant
SIN = polynomial(-0.16666643, 0.008331496, -0.00019432427)
COS = polynomial(1.0, -0.5, 0.041666627, -0.0013886464, 2.4343093e-05)
TINY = F(2.0**-12)  # below, sin(x) rounds to x

LIMIT = 2.0**16
TWO_OVER_PI = F(2 / np.pi)
HALF_PI_1, HALF_PI_2, HALF_PI_3 = F(1.5707964), F(-4.371139e-08), F(-1.7151245e-15)
D_TWO_OVER_PI, D_HALF_PI = D(2 / np.pi), D(np.pi / 2)
D_HALF_PI_1, D_HALF_PI_2 = D(1.5707963267341256), D(6.077100506506192e-11)  # 33 digits, 53

# From each bound on: the scale 2^-k, and 2^k · 2/π modulo 4 in two parts.
BOUND_1, SCALE_1, HIGH_1, LOW_1 = F(2.0**48), F(2.0**-24), D(-0.5691182564096516), D(-9.117048055938418e-18)
BOUND_2, SCALE_2, HIGH_2, LOW_2 = F(2.0**72), F(2.0**-48), D(0.08267188988231296), D(2.8658837463471963e-18)
BOUND_3, SCALE_3, HIGH_3, LOW_3 = F(2.0**96), F(2.0**-72), D(0.1536837791107848), D(1.1892889840965575e-17)
BOUND_4, SCALE_4, HIGH_4, LOW_4 = F(2.0**120), F(2.0**-96), D(1.9578379245607584), D(7.769584704001829e-17)
SCALE_0, HIGH_0, LOW_0 = F(1), D(0.6366197723675814), D(-3.935735335036497e-17)


@inner
def reduce_huge(x: Any) -> Any:
    """(r, q) for every finite x; q is right modulo 4."""
    a = absolute(x)
    b1 = a >= BOUND_1
    b2 = a >= BOUND_2
    b3 = a >= BOUND_3
    b4 = a >= BOUND_4
    scale = select(b4, SCALE_4, select(b3, SCALE_3, select(b2, SCALE_2, select(b1, SCALE_1, SCALE_0))))
    high = select(b4, HIGH_4, select(b3, HIGH_3, select(b2, HIGH_2, select(b1, HIGH_1, HIGH_0))))
    low = select(b4, LOW_4, select(b3, LOW_3, select(b2, LOW_2, select(b1, LOW_1, LOW_0))))
    y = D(x * scale)  # below 2⁴⁸, so p is below 2⁴⁹ and rounds to 1/16 or better
    p, e = two_product(y, high)
    t = p + D_MAGIC
    r = (sub(p, t - D_MAGIC) + e) + y * low
    return F(r * D_HALF_PI), narrow(to_bits(t))


@inner
def reduce(x: Any) -> Any:
    """(r, q) for |x| <= LIMIT."""
    if FMA:
        t = x * TWO_OVER_PI + MAGIC
        n = t - MAGIC
        return ((x - n * HALF_PI_1) - n * HALF_PI_2) - n * HALF_PI_3, to_bits(t)
    y = D(x)
    u = y * D_TWO_OVER_PI + D_MAGIC
    m = u - D_MAGIC
    return F((y - m * D_HALF_PI_1) - m * D_HALF_PI_2), narrow(to_bits(u))


@inner
def wave(r: Any, q: Any) -> Any:
    """sin(r + q π/2)."""
    t = r * r
    s = r + r * (t * SIN(t))
    y = select(iand(q, INT(1)) == INT(0), s, COS(t))
    return from_bits(ixor(to_bits(y), shl(iand(q, INT(2)), INT(30))))


@outer
def sin_huge(x: Any) -> Any:
    r, q = reduce_huge(x)
    return wave(r, q)


@outer
def cos_huge(x: Any) -> Any:
    r, q = reduce_huge(x)
    return wave(r, iadd(q, INT(1)))


@outer
def tan_huge(x: Any) -> Any:
    r, q = reduce_huge(x)
    return wave(r, q) / wave(r, iadd(q, INT(1)))


sin_beyond = rarely("trueno_simd_float32_sin_huge", sin_huge, types.float32, LIMIT)
cos_beyond = rarely("trueno_simd_float32_cos_huge", cos_huge, types.float32, LIMIT)
tan_beyond = rarely("trueno_simd_float32_tan_huge", tan_huge, types.float32, LIMIT)


@inner
def sin(x: Any) -> Any:
    """Sine; NaN at ±Inf.  Error 1.62 at 9.4e36."""
    beyond = sin_beyond(x)
    r, q = reduce(x)
    a = absolute(x)
    return select(a < TINY, x, select(a > LIMIT, beyond, wave(r, q)))


@inner
def cos(x: Any) -> Any:
    """Cosine; NaN at ±Inf.  Error 1.62 at 1.0e26."""
    beyond = cos_beyond(x)
    r, q = reduce(x)
    return select(absolute(x) > LIMIT, beyond, wave(r, iadd(q, INT(1))))


@inner
def tan(x: Any) -> Any:
    """sin(x) / cos(x), whose reductions are one."""
    return sin(x) / cos(x)
