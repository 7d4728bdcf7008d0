"""Sine, cosine and arc tangent of one float64, right for every finite argument.

Reduction by π/2: below `LIMIT` in four parts (Cody and Waite), with the remainder kept as a pair; beyond it, in a
branch that is rarely taken, by Payne and Hanek's method in integers.
"""

from itertools import pairwise
from math import inf, nan

from trueno_cuda.ptx import Builder, Value, f64, s64, u32, u64
from trueno_cuda.rows.elementary32 import horner
from trueno_cuda.rows.elementary64 import SHIFTER, fast_two_sum, from_words, two_product, two_sum, words

LIMIT = 2.0**20  # n = rint(x / (π/2)) stays below 2²⁰, so that n times a 33-bit part is exact
TWO_OVER_PI = 0.6366197723675814
# π/2 in parts of 33, 33, 33 and 53 bits
PARTS = 1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.4784276603689e-32
HALF_PI, HALF_PI_LOW = 1.5707963267948966, 6.123233995736766e-17
QUARTER_PI, QUARTER_PI_LOW = 0.7853981633974483, 3.061616997868383e-17

# sin r = r + r³ SIN(r²), cos r = 1 - r²/2 + r⁴ COS(r²) on |r| <= π/4, errors 2⁻⁵⁸ and 2⁻⁶⁴;
# atan t = t + t³ ATAN(t²) on |t| <= √2 - 1, error 2⁻⁵⁹
SIN = (-0.16666666666666632, 0.00833333333332246, -0.0001984126982983864, 2.755731370090024e-06,
       -2.505075931668991e-08, 1.5896855979728703e-10)  # fmt: skip
COS = (0.0416666666666666, -0.0013888888888874426, 2.4801587289644205e-05, -2.7557314393487767e-07,
       2.0875728284502735e-09, -1.1359883585623831e-11)  # fmt: skip
ATAN = (-0.33333333333333326, 0.1999999999999781, -0.1428571428540276, 0.11111111088968331, -0.09090908169800492,
        0.07692283275652183, -0.06666233771473636, 0.05877085648522264, -0.052187900436545226, 0.04505031904465195,
        -0.0335072876708043, 0.015227036300775319)  # fmt: skip

# 1 / (2π) in words of 32 bits after one word of zeros: 1 216 bits reach past the largest exponent.
WORDS = (
    0, 0x28BE60DB, 0x9391054A, 0x7F09D5F4, 0x7D4D3770, 0x36D8A566, 0x4F10E410, 0x7F9458EA, 0xF7AEF158, 0x6DC91B8E,
    0x909374B8, 0x01924BBA, 0x82746487, 0x3F877AC7, 0x2C4A69CF, 0xBA208D7D, 0x4BAED121, 0x3A671C09, 0xAD17DF90,
    0x4E64758E, 0x60D4CE7D, 0x272117E2, 0xEF7E4A0E, 0xC7FE25FF, 0xF7816603, 0xFBCBC462, 0xD6829B47, 0xDB4D9FB3,
    0xC9F2C26D, 0xD3D18FD9, 0xA797FA8B, 0x5D49EEB1, 0xFAF97C5E, 0xCF41CE7D, 0xE294A4BA, 0x9AFED7EC, 0x47E35742,
    0x1580CC11,
)  # fmt: skip
START = 1075 - 64 + 32  # exponent whose bits begin with the first word
WINDOW = 6  # words of 32 bits that decide

Reduced = tuple[Value, Value, Value]


def window(k: Builder, start: Value) -> list[Value]:
    """192 bits of 1/(2π) from bit `start` on, as three u64, the first the highest.

    No memory: a table that is looked up is a select a bit of the index.
    """
    index = k.shr(start, 5)
    table: list[Value | int] = list(WORDS)
    for bit in (16, 8, 4, 2, 1):
        above = (index & bit) != 0
        table = [
            k.select(above, k.const(u32, b) if isinstance(a, int) and isinstance(b, int) else b, a)
            for a, b in zip(table[: WINDOW + bit], table[bit:], strict=False)
        ]
    selected = [w if isinstance(w, Value) else k.const(u32, w) for w in table]
    shifted = [k.shf_l(low, high, start & 31) for high, low in pairwise(selected)]
    return [k.pack(u64, low, high) for high, low in zip(shifted[::2], shifted[1::2], strict=True)]


def carried(k: Builder, a: Value, b: Value) -> tuple[Value, Value]:
    """a + b of u64, and the carry as another."""
    s = a + b
    return s, k.pack(u64, (s < b).to(u32), k.const(u32, 0))


def reduced_huge(k: Builder, x: Value) -> Reduced:
    """(q, r, low) for LIMIT <= |x| (Payne and Hanek); r is NaN for ±Inf.

    x = m · 2^e; the bits of 1/(2π) before position e would add whole turns, so m times the next 192 bits gives the
    turn's fraction to 2⁻¹³⁹, and no float64 comes closer to a multiple of π/2 than 2⁻⁶² of it.
    """
    low, high = words(k, x)
    m = k.pack(u64, low, (high & 0xFFFFF) | 0x100000)
    a, b, c = window(k, (k.shr(high, 20) & 0x7FF) - START)
    bottom = c * m
    middle, carry = carried(k, k.mul_hi(c, m), b * m)
    top = a * m + k.mul_hi(b, m) + carry
    q = k.unpack(k.shr(top, 62))[0]
    top = k.shl(top, 2) | k.shr(middle, 62)
    middle = k.shl(middle, 2) | k.shr(bottom, 62)
    sign = k.shr(top.bits(s64), 63).bits(u64)  # the fraction of a quadrant, as a signed one: in [-1/2, 1/2)
    negative = sign != 0
    q = q + negative.to(u32)
    low3, low2 = (w.to(f64) for w in k.unpack(middle ^ sign))
    low1, most = (w.to(f64) for w in k.unpack(top ^ sign))
    f, e = fast_two_sum(k, most * 2.0**-32, low1 * 2.0**-64)
    e = e + k.fma(low3, 2.0**-128, low2 * 2.0**-96)
    f, e = fast_two_sum(k, f, e)
    r, rest = two_product(k, f, k.const(f64, HALF_PI))
    r, rest = fast_two_sum(k, r, k.fma(f, HALF_PI_LOW, k.fma(e, HALF_PI, rest)))
    below = x < 0.0
    flip = negative ^ below
    q = k.select(below, k.sub(0, q), q)
    r = k.select(abs(x) == inf, nan, k.select(flip, -r, r))
    return q, r, k.select(flip, -rest, rest)


def reduced(k: Builder, x: Value) -> Reduced:
    """(q, r, low): x = q π/2 + r + low.

    Below `LIMIT` the first three products are exact, and so are the sums that take them off (Sterbenz where
    x - n · PARTS[0] cancels); r + low has 53 bits and more even at the worst arguments.
    """
    t = k.fma(x, TWO_OVER_PI, SHIFTER)
    minus = -(t - SHIFTER)
    r, e = two_sum(k, k.fma(minus, PARTS[0], x), minus * PARTS[1])
    r, low = two_sum(k, r, k.fma(minus, PARTS[2], e))
    low = k.fma(minus, PARTS[3], low)
    variables = k.var(words(k, t)[0]), k.var(r), k.var(low)
    with k.when(abs(x) >= LIMIT):
        for var, value in zip(variables, reduced_huge(k, x), strict=True):
            var.set(value)
    q, r, low = (var.value for var in variables)
    return q, r, low


def wave(k: Builder, q: Value, r: Value, low: Value) -> Value:
    """sin(q π/2 + r + low); of the cosine, what 1 - r²/2 lost is put back."""
    z = r * r
    sine = r + k.fma(z * r, horner(k, z, *SIN), low * k.fma(z, -0.5, 1.0))
    half = z * 0.5
    w = k.sub(1.0, half)
    cosine = w + (k.sub(1.0, w) - half + k.fma(z * z, horner(k, z, *COS), -(r * low)))
    bottom, top = words(k, k.select((q & 1) == 0, sine, cosine))
    return from_words(k, bottom, top ^ k.shl(q & 2, 30))


def sin(k: Builder, x: Value) -> Value:
    """sin x; NaN at ±Inf."""
    return k.select(x == 0.0, x, wave(k, *reduced(k, x)))


def cos(k: Builder, x: Value) -> Value:
    """cos x = sin(x + π/2), one quadrant further."""
    q, r, low = reduced(k, x)
    return wave(k, q + 1, r, low)


def atan(k: Builder, x: Value) -> Value:
    """atan x: with one division, from |x|, (|x| - 1) / (|x| + 1) or -1 / |x|."""
    a = abs(x)
    middle = a > 2**0.5 - 1
    far = a > 2**0.5 + 1
    above = k.select(far, -1.0, k.select(middle, a - 1.0, a))
    below = k.select(far, a, k.select(middle, a + 1.0, 1.0))
    t = above / below
    z = t * t
    base, low = (
        k.select(far, most, k.select(middle, k.const(f64, half), -0.0))
        for most, half in ((HALF_PI, QUARTER_PI), (HALF_PI_LOW, QUARTER_PI_LOW))
    )
    return k.copysign(base + (t + k.fma(z * t, horner(k, z, *ATAN), low)), x)
