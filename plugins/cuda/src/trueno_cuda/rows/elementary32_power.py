"""x^y of float32: e^(y ln|x|) needs eight digits more than a float32 has, so logarithms are pairs of floats.

|x| = 2^n m and ln m = ln(c m) - ln c with c one of 5/4, 1 and 13/16, so that f = c m - 1 is exact and |f| <= 1/7.
Special cases are C99's.  The coefficients are minimax fits of our own, the same as in the other backends.
"""

from math import inf, nan

from trueno_cuda.ptx import Builder, Value, f32, s32, u32
from trueno_cuda.rows.elementary32 import EXPONENT, LN2_HIGH, LN2_LOW, LOG2_E, LOW, MAGIC, clamp, horner, power_of_two

LOG = (0.33333343, -0.2500005, 0.19996469, -0.16654435, 0.14647454, -0.13252735)
LOW_BITS, MIDDLE, ABOVE = 0x3F3126E9, 0.9, 1.125  # m = 0.692 … 0.9 … 1.125 … 1.384
LN2 = 0.693145751953125, 1.4286068203094173e-06  # the first with 16 digits after the point, exact
BELOW_C = 1.25, -0.22314453125, 9.799357902442336e-07  # c, and -ln c in two parts
ABOVE_C = 0.8125, 0.2076416015625, -2.2367842554983845e-06
LARGEST = 2147483520.0  # below 2³¹; larger |y| over- or underflow for every |x| but 1, as this one does, and are even
PAST = 106.0  # e^±105 over- and underflows


def log_pair(k: Builder, a: Value) -> tuple[Value, Value]:
    """ln a as (head, tail); -Inf at 0 and Inf at Inf and NaN."""
    tiny = a < 2.0**-126
    s = k.select(tiny, a * 2.0**24, a).bits(s32)
    e = k.and_(s - LOW_BITS, EXPONENT)
    m = (s - e).bits(f32)
    n = k.fma(e.to(f32), 2.0**-23, k.select(tiny, k.const(f32, -24.0), 0.0))
    low, above = m < MIDDLE, m > ABOVE
    c, high, rest = (
        k.select(low, under, k.select(above, k.const(f32, over), middle))
        for under, over, middle in zip(BELOW_C, ABOVE_C, (1.0, 0.0, 0.0), strict=True)
    )
    f = k.fma(m, c, -1.0)
    base = k.fma(n, LN2[0], high)
    rest = k.fma(n, LN2[1], rest)
    half = f * -0.5
    h = k.fma(f, half, f)  # f - f²/2, of which f - h is exact
    head = base + h
    lost = h - (head - base)
    tail = k.fma((f * f) * f, horner(k, f, *LOG), k.fma(f, half, f - h) + (rest + lost))
    head = k.select(a == 0.0, -inf, k.select(a < inf, head, inf))
    return head, tail


def pow(k: Builder, x: Value, y: Value) -> Value:  # noqa: A001
    """x^y: 75."""
    c = clamp(k, y, -LARGEST, LARGEST)
    head, tail = log_pair(k, abs(x))
    p = c * head
    w = clamp(k, p, -PAST, PAST)
    low = k.select(w == p, k.fma(c, tail, k.fma(c, head, k.neg(p))), 0.0)
    t = k.fma(w + low, LOG2_E, MAGIC + 127)
    t = clamp(k, t, MAGIC + 127 - LOW, MAGIC + 127 + 127)  # r takes what is beyond
    minus = k.sub(MAGIC + 127, t)
    r = k.fma(minus, LN2_HIGH, w) + k.fma(minus, LN2_LOW, low)
    z = k.exp2(r * LOG2_E, ftz=True) * power_of_two(k, t)
    i = c.to(s32, "rz")
    whole = i.to(f32) == c
    odd = k.select(whole, k.shl(i.bits(u32), 31), 0)
    z = k.or_(z.bits(u32), x.bits(u32) & odd).bits(f32)
    invalid = (x < 0.0) & (x > -inf) & ~whole
    z = k.select(invalid | k.compare("nan", x, y), nan, z)
    return k.select((x == 1.0) | (y == 0.0), 1.0, z)
