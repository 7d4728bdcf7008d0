"""Exponentials and logarithms of one float32, and the constants of the format (`trueno_simd.rows.float32` says how)."""

import math
from typing import Any

import numpy as np

from trueno_simd.llvm.bits import (
    AVX512,
    copysign,
    from_bits,
    iadd,
    isub,
    ldexp,
    polynomial,
    select,
    shl,
    shr,
    sub,
    to_bits,
)
from trueno_simd.llvm.jit import inner

F, INT = np.float32, np.int32
NAN, INF = F(np.nan), F(np.inf)
ZERO, QUARTER, HALF, ONE, TWO = F(0), F(0.25), F(0.5), F(1), F(2)
MAGIC = F(1.5 * 2**23)  # t = x + MAGIC holds the nearest integer in its low bits, and t - MAGIC is it: |x| < 2²²
MAGIC_BITS = INT(0x4B400000)
MANTISSA = INT(23)  # as many digits as a shift that makes an exponent of an integer
HALF_BITS, ONE_BITS, FOUR_BITS = INT(0x3F000000), INT(0x3F800000), INT(0x40800000)

# ---- exponentials

LOG2_E = F(1 / math.log(2))
LN2_HIGH = F(0.693359375)  # nine digits, so that n · LN2_HIGH is exact
LN2_LOW = F(math.log(2) - 0.693359375)
EXP = polynomial(0.49999994, 0.16666521, 0.041668274, 0.008368683, 0.0013820052)
EXP2 = polynomial(1.0, 0.6931472, 0.2402265, 0.055503596, 0.0096180625, 0.0013391011, 0.00015462885)
EXP_MIN, EXP_MAX = F(-104), F(89)  # beyond: 0 and Inf
EXP2_MIN, EXP2_MAX = F(-151), F(129)
EXPM1_MIN, EXPM1_MAX = F(-18), F(88.8)  # beyond: -1 and Inf; 2¹²⁷ is the largest scale needed


@inner
def clamp(x: Any, low: Any, high: Any) -> Any:
    """x between two bounds; a NaN stays."""
    x = select(x < low, low, x)
    return select(x > high, high, x)


@inner
def scale(x: Any, n: Any) -> Any:
    """x · 2ⁿ for 0.5 < x < 2 and -152 <= n <= 130, rounded once."""
    if AVX512:
        return ldexp(x, n)
    half = shr(n, INT(1))
    x = x * from_bits(iadd(shl(half, MANTISSA), ONE_BITS))
    return x * from_bits(iadd(shl(isub(n, half), MANTISSA), ONE_BITS))


@inner
def power_of_two(r: Any, t: Any) -> Any:
    """2^(r + n) for |r| <= 1/2, t = n + MAGIC and |n| < 126."""
    return from_bits(iadd(to_bits(EXP2(r)), shl(to_bits(t), MANTISSA)))


@inner
def exp(x: Any) -> Any:
    """e^x = 2ⁿ e^r, |r| <= ln 2 / 2 after Cody and Waite in two parts, degree 6.  Error 1.01 at -5.85."""
    x = clamp(x, EXP_MIN, EXP_MAX)
    t = x * LOG2_E + MAGIC
    n = t - MAGIC
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    y = ONE + (r + r * r * EXP(r))
    return scale(y, isub(to_bits(t), MAGIC_BITS))


@inner
def exp2(x: Any) -> Any:
    """2^x = 2ⁿ 2^r, |r| <= 1/2, degree 6; exact at integers.  Error 1.07 at -5.49 (SSE2)."""
    x = clamp(x, EXP2_MIN, EXP2_MAX)
    t = x + MAGIC
    return scale(EXP2(x - (t - MAGIC)), isub(to_bits(t), MAGIC_BITS))


@inner
def expm1(x: Any) -> Any:
    """e^x - 1 = 2ⁿ (e^r - 1) + (2ⁿ - 1), on half the scale so that 2ⁿ never overflows.  Error 1.53 at 0.373 (SSE2)."""
    c = clamp(x, EXPM1_MIN, EXPM1_MAX)
    t = c * LOG2_E + MAGIC
    n = t - MAGIC
    r = (c - n * LN2_HIGH) - n * LN2_LOW
    p = r + r * r * EXP(r)
    h = from_bits(iadd(shl(to_bits(t), MANTISSA), HALF_BITS))
    y = h * p + (h - HALF)
    return copysign(select(n == ZERO, p, y + y), x)


# ---- logarithms

LOG = polynomial(0.3333333, -0.2500082, 0.20001242, -0.16623409, 0.14201581, -0.13159613, 0.12762201, -0.07636403)
LOG2 = polynomial(
    0.44269505,
    -0.7213475,
    0.4808965,
    -0.36068258,
    0.2886188,
    -0.23995215,
    0.20415677,
    -0.18825443,
    0.18686533,
    -0.11639451,
)
LOG10 = polynomial(
    -0.065705515,
    -0.21714725,
    0.14476454,
    -0.10857662,
    0.08687233,
    -0.07221139,
    0.061588623,
    -0.056961764,
    0.05574629,
    -0.03387411,
)
LOG10_2_HIGH = F(1233 / 4096)  # eleven digits
LOG10_2_LOW = F(math.log10(2) - 1233 / 4096)
ROOT_BITS = INT(0x3F3504F3)  # sqrt(1/2)
SMALLEST_NORMAL = F(2.0**-126)
TWO_24, F24 = F(2.0**24), F(24)
FOLD, LN2 = F(math.sqrt(2) - 1), F(math.log(2))


@inner
def split(x: Any) -> Any:
    """(f, e) with x = (1 + f) · 2^e and sqrt(1/2) <= 1 + f < sqrt(2), for 0 < x < Inf; f is exact."""
    tiny = x < SMALLEST_NORMAL
    s = to_bits(select(tiny, x * TWO_24, x))
    e = shr(isub(s, ROOT_BITS), MANTISSA)
    f = from_bits(isub(s, shl(e, MANTISSA))) - ONE
    return f, F(e) - select(tiny, F24, ZERO)


@inner
def logarithm(x: Any, y: Any) -> Any:
    """y, or what every logarithm of zero, of a negative, of infinity and of NaN is."""
    y = select(x < ZERO, NAN, y)
    y = select(x == ZERO, -INF, y)
    return select(x < INF, y, x)


@inner
def log1p_series(f: Any, tail: Any) -> Any:
    """log(1 + f) + tail for sqrt(1/2) <= 1 + f < sqrt(2): f - f²/2 + f³ LOG(f), degree 10."""
    ff = f * f
    return f + (ff * (f * LOG(f) - HALF) + tail)


@inner
def log(x: Any) -> Any:
    """Natural logarithm: the series and e · ln 2 in two parts.  Error 0.88 at 0.706 (SSE2)."""
    f, e = split(x)
    return logarithm(x, log1p_series(f, e * LN2_LOW) + e * LN2_HIGH)


@inner
def log2(x: Any) -> Any:
    """Logarithm to base 2: e + (f + f LOG2(f)); exact at powers of two.  Error 1.22 at 0.719 (SSE2)."""
    f, e = split(x)
    return logarithm(x, (f * LOG2(f) + f) + e)


@inner
def log10(x: Any) -> Any:
    """Logarithm to base 10: e log10(2) in two parts + f/2 + f LOG10(f); exact at powers of 10.

    Error 1.08 at 1.329 (SSE2).
    """
    f, e = split(x)
    y = f * LOG10(f) + (f * HALF + e * LOG10_2_LOW)
    return logarithm(x, y + e * LOG10_2_HIGH)


@inner
def log1p(x: Any) -> Any:
    """log(1 + x) without a division: what 1 + x lost is added to its mantissa.  Error 1.49 at 0.461 (SSE2)."""
    w = x + ONE
    lost = sub(x, sub(w, ONE))
    s = to_bits(w)
    e = shr(isub(s, ROOT_BITS), MANTISSA)
    k = shl(e, MANTISSA)
    f = from_bits(isub(s, k)) - ONE
    f = f + lost * from_bits(isub(FOUR_BITS, k)) * QUARTER  # 4 · 2^-e is a normal float for every e
    n = F(e)
    y = log1p_series(f, n * LN2_LOW) + n * LN2_HIGH
    y = select(x < -ONE, NAN, y)
    y = select(x == -ONE, -INF, y)
    return select(x < INF, copysign(y, x), x)


@inner
def log1p_unit(u: Any) -> Any:
    """log(1 + u) for 0 <= u <= 1, without bit work: ln 2 + log((1 + u)/2) beyond sqrt(2) - 1.  Error 1.52 at 0.415."""
    far = u > FOLD
    f = select(far, u * HALF - HALF, u)
    return log1p_series(f, ZERO) + select(far, LN2, ZERO)
