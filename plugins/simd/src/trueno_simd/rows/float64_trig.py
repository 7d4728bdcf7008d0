"""sin, cos and atan of one float64, right for every finite argument.

Reduction by π/2: up to `LIMIT` in four parts (Cody and Waite), with the remainder kept as a pair, which
costs every lane the same; beyond it by Payne and Hanek's method in integers, one number at a time.
That second path is rare and must not keep a loop from being vectorized: it is called through `rarely`.
"""

from typing import Any

import numpy as np
from numba import types

from trueno_simd.llvm.bits import (
    absolute,
    copysign,
    fast_two_sum,
    from_bits,
    polynomial,
    select,
    to_bits,
    two_product,
    two_sum,
    ushr,
)
from trueno_simd.llvm.jit import inner, outer
from trueno_simd.llvm.rare import rarely

LIMIT = 1.0e6  # n = rint(x / (π/2)) stays below 2²⁰, so that n times a 33-bit part is exact

_SHIFTER = 6755399441055744.0  # 1.5 · 2⁵²: adding it rounds to an integer, which is then in the low bits
_2_PI = 0.6366197723675814
# π/2 in parts of 33, 33, 33 and 53 bits
_P1, _P2, _P3, _P4 = 1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.4784276603689e-32
_PI_2, _PI_2_LOW = 1.5707963267948966, 6.123233995736766e-17
_PI_4, _PI_4_LOW = 0.7853981633974483, 3.061616997868383e-17

# sin r = r + r³ S(r²), cos r = 1 - r²/2 + r⁴ C(r²) on |r| <= π/4, errors 2⁻⁵⁸ and 2⁻⁶⁴;
# atan t = t + t³ A(t²) on |t| <= √2 - 1, error 2⁻⁵⁹
_S = polynomial(
    -0.16666666666666632, 0.00833333333332246, -0.0001984126982983864,
    2.755731370090024e-06, -2.505075931668991e-08, 1.5896855979728703e-10,
)  # fmt: skip
_C = polynomial(
    0.0416666666666666, -0.0013888888888874426, 2.4801587289644205e-05,
    -2.7557314393487767e-07, 2.0875728284502735e-09, -1.1359883585623831e-11,
)  # fmt: skip
_A = polynomial(
    -0.33333333333333326, 0.1999999999999781, -0.1428571428540276, 0.11111111088968331,
    -0.09090908169800492, 0.07692283275652183, -0.06666233771473636, 0.05877085648522264,
    -0.052187900436545226, 0.04505031904465195, -0.0335072876708043, 0.015227036300775319,
)  # fmt: skip

# 1 / (2π) in words of 32 bits after two words of zeros: 1 248 bits reach past the largest exponent.
_WORDS = """
    0 0 28be60db 9391054a 7f09d5f4 7d4d3770 36d8a566 4f10e410 7f9458ea f7aef158 6dc91b8e 909374b8 01924bba
    82746487 3f877ac7 2c4a69cf ba208d7d 4baed121 3a671c09 ad17df90 4e64758e 60d4ce7d 272117e2 ef7e4a0e
    c7fe25ff f7816603 fbcbc462 d6829b47 db4d9fb3 c9f2c26d d3d18fd9 a797fa8b 5d49eeb1 faf97c5e cf41ce7d
    e294a4ba 9afed7ec 47e35742 1580cc11 bf1edaea fc33ef08"""
_TURN = np.array([int(word, 16) for word in _WORDS.split()], dtype=np.int64)
_LOW32 = np.int64(0xFFFFFFFF)


@inner
def _sin_pair(r: Any, low: Any) -> Any:
    """sin(r + low) for |r| <= π/4."""
    z = r * r
    return r + (z * r * _S(z) + low * (1.0 - 0.5 * z))


@inner
def _cos_pair(r: Any, low: Any) -> Any:
    """cos(r + low) for |r| <= π/4: 1 - r²/2 is rounded, and the loss put back."""
    z = r * r
    half = 0.5 * z
    w = 1.0 - half
    return w + (((1.0 - w) - half) + (z * z * _C(z) - r * low))


@inner
def _by_quadrant(q: Any, r: Any, low: Any) -> Any:
    """sin(q·π/2 + r + low)."""
    value = select((q & 1) == 0, _sin_pair(r, low), _cos_pair(r, low))
    return from_bits(to_bits(value) ^ ((q & 2) << 62))


@inner
def _reduce(x: Any) -> Any:
    """(q, r, low): x = q·π/2 + r + low, for |x| <= LIMIT.

    n·P1, n·P2 and n·P3 are exact, and so are the sums that take them off (Sterbenz where x - n·P1
    cancels); r + low has 53 bits and more even at the worst arguments.
    """
    shifted = x * _2_PI + _SHIFTER
    n = shifted - _SHIFTER
    r, e = two_sum(x - n * _P1, -(n * _P2))
    r, low = two_sum(r, e - n * _P3)
    return to_bits(shifted), r, low - n * _P4


@inner
def _accumulate(high: Any, low: Any, word: Any, next_word: Any, carry: Any) -> Any:
    """One 32-bit digit of (high·2³² + low) · (… word next_word …), and the carry."""
    a = low * word + carry
    b = high * next_word
    digit = (a & _LOW32) + (b & _LOW32)
    return digit & _LOW32, ushr(a, np.int64(32)) + ushr(b, np.int64(32)) + ushr(digit, np.int64(32))


@inner
def _reduce_huge(x: Any) -> Any:
    """(q, r, low) for LIMIT < |x| < Inf (Payne and Hanek).

    x = m·2ᵉ; the bits of 1/(2π) before position e would add whole turns, so m times the next 192 bits
    gives the turn's fraction to 2⁻¹³⁹, and no float64 comes closer to a multiple of π/2 than 2⁻⁶² of it.
    """
    bits = to_bits(x)
    m = (bits & np.int64(0xFFFFFFFFFFFFF)) | np.int64(1 << 52)
    start = ((bits >> 52) & np.int64(0x7FF)) - np.int64(1075 - 64)
    i, shift = start >> 5, np.int64(32) - (start & np.int64(31))
    w0 = ushr(_TURN[i] << 32 | _TURN[i + 1], shift) & _LOW32
    w1 = ushr(_TURN[i + 1] << 32 | _TURN[i + 2], shift) & _LOW32
    w2 = ushr(_TURN[i + 2] << 32 | _TURN[i + 3], shift) & _LOW32
    w3 = ushr(_TURN[i + 3] << 32 | _TURN[i + 4], shift) & _LOW32
    w4 = ushr(_TURN[i + 4] << 32 | _TURN[i + 5], shift) & _LOW32
    w5 = ushr(_TURN[i + 5] << 32 | _TURN[i + 6], shift) & _LOW32
    high, low = m >> 32, m & _LOW32
    d5, carry = _accumulate(high, low, w5, np.int64(0), np.int64(0))
    d4, carry = _accumulate(high, low, w4, w5, carry)
    d3, carry = _accumulate(high, low, w3, w4, carry)
    d2, carry = _accumulate(high, low, w2, w3, carry)
    d1, carry = _accumulate(high, low, w1, w2, carry)
    d0, carry = _accumulate(high, low, w0, w1, carry)
    top, middle, bottom = d0 << 32 | d1, d2 << 32 | d3, d4 << 32 | d5
    q = ushr(top, np.int64(62))
    top = top << 2 | ushr(middle, np.int64(62))
    middle = middle << 2 | ushr(bottom, np.int64(62))
    sign = top >> 63  # the fraction of a quadrant, as a signed one: in [-1/2, 1/2)
    q -= sign
    top, middle = top ^ sign, middle ^ sign
    f, e = fast_two_sum(float(ushr(top, np.int64(32))) * 2.0**-32, float(top & _LOW32) * 2.0**-64)
    e += float(ushr(middle, np.int64(32))) * 2.0**-96 + float(middle & _LOW32) * 2.0**-128
    f, e = fast_two_sum(f, e)
    r, rest = two_product(f, _PI_2)
    r, rest = fast_two_sum(r, rest + (f * _PI_2_LOW + e * _PI_2))
    if (sign != 0) != (x < 0.0):
        r, rest = -r, -rest
    if x < 0.0:
        q = -q
    return q, r, rest


@outer
def _sin_huge(x: Any) -> Any:
    if not abs(x) < np.inf:
        return np.nan
    q, r, low = _reduce_huge(x)
    return _by_quadrant(q, r, low)


@outer
def _cos_huge(x: Any) -> Any:
    if not abs(x) < np.inf:
        return np.nan
    q, r, low = _reduce_huge(x)
    return _by_quadrant(q + 1, r, low)


_sin_beyond = rarely("trueno_simd_float64_sin_huge", _sin_huge, types.float64, LIMIT)
_cos_beyond = rarely("trueno_simd_float64_cos_huge", _cos_huge, types.float64, LIMIT)


@inner
def sin(x: Any) -> Any:
    """sin x: x = q·π/2 + r; sin r or cos r, with a sign.  0.78 ulp at 0.831 and, as often, anywhere."""
    beyond = _sin_beyond(x)
    q, r, low = _reduce(x)
    y = select(absolute(x) > LIMIT, beyond, _by_quadrant(q, r, low))
    return select(x == 0.0, x, y)


@inner
def cos(x: Any) -> Any:
    """cos x = sin(x + π/2), one quadrant further.  0.78 ulp at 0.787."""
    beyond = _cos_beyond(x)
    q, r, low = _reduce(x)
    return select(absolute(x) > LIMIT, beyond, _by_quadrant(q + 1, r, low))


@inner
def atan(x: Any) -> Any:
    """atan x: with one division, from |x|, (|x| - 1) / (|x| + 1) or -1 / |x|.  1.87 ulp at 0.4142."""
    a = absolute(x)
    middle = a > 0.41421356237309503
    far = a > 2.414213562373095
    above = select(far, -1.0, select(middle, a - 1.0, a))
    below = select(far, a, select(middle, a + 1.0, 1.0))
    t = above / below
    z = t * t
    base = select(far, _PI_2, select(middle, _PI_4, -0.0))
    low = select(far, _PI_2_LOW, select(middle, _PI_4_LOW, -0.0))
    return copysign(base + (t + (z * t * _A(z) + low)), x)


@inner
def tan(x: Any) -> Any:
    """sin(x) / cos(x), whose reductions are one."""
    return sin(x) / cos(x)
