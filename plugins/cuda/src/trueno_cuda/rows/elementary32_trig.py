"""Sine and cosine of one float32: x = r + q π/2 with |r| <= π/4 and a little, then two polynomials and a select.

Up to `LIMIT` the reduction stays in float32 (Cody and Waite in three fused parts).  Beyond, in a branch that is rarely
taken, 2/π is five pairs of float64, 2^k · 2/π modulo 4 for k = 0, 24, … 96; with 2^-k x an integer (or k = 0) the
product's integer part modulo 4 is the quadrant: Payne and Hanek's idea with selects for the table.  The coefficients
are our own minimax fits on |r| <= 0.885, the pairs come from mpmath (120 digits); all as in the other backends.
"""

from math import pi

from trueno_cuda.ptx import Builder, Value, f32, f64, u32, u64
from trueno_cuda.rows.elementary32 import MAGIC, horner

SIN = (-0.16666643, 0.008331496, -0.00019432427)
COS = (1.0, -0.5, 0.041666627, -0.0013886464, 2.4343093e-05)
TINY = 2.0**-12  # below, sin(x) rounds to x
LIMIT = 2.0**16
HALF_PI = (1.5707964, -4.371139e-08, -1.7151245e-15)
WIDE_MAGIC = 1.5 * 2**52

# From each bound on: the scale 2^-k, and 2^k · 2/π modulo 4 in two parts.
PARTS = (
    (2.0**48, 2.0**-24, -0.5691182564096516, -9.117048055938418e-18),
    (2.0**72, 2.0**-48, 0.08267188988231296, 2.8658837463471963e-18),
    (2.0**96, 2.0**-72, 0.1536837791107848, 1.1892889840965575e-17),
    (2.0**120, 2.0**-96, 1.9578379245607584, 7.769584704001829e-17),
)
TWO_OVER_PI = (0.6366197723675814, -3.935735335036497e-17)


def reduced_huge(k: Builder, x: Value) -> tuple[Value, Value]:
    """(r, q) for every finite x, NaN for ±Inf; q is right modulo 4."""
    a = abs(x)
    scale, high, low = k.const(f32, 1.0), k.const(f64, TWO_OVER_PI[0]), k.const(f64, TWO_OVER_PI[1])
    for bound, *part in PARTS:
        beyond = a >= bound
        scale, high, low = (k.select(beyond, new, old) for new, old in zip(part, (scale, high, low), strict=True))
    y = (x * scale).to(f64)  # below 2⁴⁸, so p is below 2⁴⁹ and rounds to 1/16 or better
    p = y * high
    t = p + WIDE_MAGIC
    r = k.fma(y, low, (p - (t - WIDE_MAGIC)) + k.fma(y, high, k.neg(p)))
    quadrant, _ = k.unpack(t.bits(u64))
    return (r * (pi / 2)).to(f32), quadrant


def reduced(k: Builder, x: Value) -> tuple[Value, Value]:
    """(r, q): x = r + q π/2."""
    t = k.fma(x, 2 / pi, MAGIC)  # a multiple of 4, so the low two bits are the quadrant
    minus = k.neg(t - MAGIC)
    r = x
    for part in HALF_PI:
        r = k.fma(minus, part, r)
    near, quadrant = k.var(f32, r), k.var(u32, t.bits(u32))
    with k.when(abs(x) > LIMIT):
        r, q = reduced_huge(k, x)
        near.set(r)
        quadrant.set(q)
    return near.value, quadrant.value


def wave(k: Builder, r: Value, q: Value) -> Value:
    """sin(r + q π/2)."""
    t = r * r
    s = k.fma(r, t * horner(k, t, *SIN), r)
    y = k.select((q & 1) == 0, s, horner(k, t, *COS))
    return k.xor(y.bits(u32), k.shl(q & 2, 30)).bits(f32)


def sin(k: Builder, x: Value) -> Value:
    """Sine; NaN at ±Inf: 23 up to `LIMIT`, 60 beyond."""
    return k.select(abs(x) < TINY, x, wave(k, *reduced(k, x)))


def cos(k: Builder, x: Value) -> Value:
    """Cosine; NaN at ±Inf: 22 up to `LIMIT`, 60 beyond."""
    r, q = reduced(k, x)
    return wave(k, r, q + 1)
