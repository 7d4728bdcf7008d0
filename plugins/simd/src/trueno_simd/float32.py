"""Elementary functions of one float32, written so that a plain loop around them vectorizes.

Straight lines of selects, integer adds and Horner's rule: no branch, no table, no libm, no SVML, so every ISA
level gets packed code.  Each function is right at NaN (which stays), ±Inf, ±0 (whose sign stays), subnormals,
overflow and the edges of its domain.  `ULP` states the bounds; what the docstrings call the error is the worst
seen in sweeps with AVX-512 (every 7th float) and SSE2 (every 61st), in ulps of the result, oracle float64.

The ideas are Cody and Waite's (reduction in parts), Cephes' and FDLIBM's (how the logarithms split), Dekker's
(exact sums) and Muller's (Elementary Functions; the sum with a magic number).  Code and coefficients are our
own: minimax fits by linear programming on Chebyshev points, weighted by the result's ulp, each coefficient
rounded to float32 and held before the next was fitted.
"""

import math
from typing import Any

import numpy as np

from trueno_simd.bits import (
    AVX512,
    FMA,
    absolute,
    copysign,
    fast_two_sum,
    fma,
    from_bits,
    iadd,
    iand,
    ior,
    isub,
    ldexp,
    mul,
    narrow,
    polynomial,
    select,
    shl,
    shr,
    sqrt,
    sub,
    to_bits,
)
from trueno_simd.float32_trig import cos, sin
from trueno_simd.jit import inner

F, D, INT, LONG = np.float32, np.float64, np.int32, np.int64
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


# ---- hyperbolic tangent, error function, arc tangent, root

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


# ---- power: y ln|x| needs eight digits more than a float32 has: a pair of float32, or without FMA a float64

POW_LOG = polynomial(0.33333343, -0.2500005, 0.19996469, -0.16654435, 0.14647454, -0.13252735)
POW_LOW_BITS, POW_MIDDLE, POW_ABOVE = INT(0x3F3126E9), F(0.9), F(1.125)  # m = 0.692 … 0.9 … 1.125 … 1.384
POW_LN2_HIGH, POW_LN2_LOW = F(0.693145751953125), F(1.4286068203094173e-06)  # 16 digits after the point, exact
LOW_FACTOR, LOW_LOG_HIGH, LOW_LOG_LOW = F(1.25), F(-0.22314453125), F(9.799357902442336e-07)
ABOVE_FACTOR, ABOVE_LOG_HIGH, ABOVE_LOG_LOW = F(0.8125), F(0.2076416015625), F(-2.2367842554983845e-06)
BITS_ABOVE = INT(-0x800001)  # of the number before -Inf
PAST = F(106)  # e^±105 over- and underflows
LARGEST = F(2147483520)  # below 2³¹; larger |y| over- or underflow for every |x| but 1, as this one does, and are even

POW_LOG_EVEN = polynomial(
    1.4426950408687025,
    0.4808983613971398,
    0.28853729335411843,
    0.2061753626880453,
    0.1587697643220293,
    0.14474856435759156,
    0.07737081558570288,
)
POW_LOG_ODD = polynomial(
    -0.721347520868647,
    -0.36067367483748647,
    -0.2404531652192325,
    -0.1803006102326109,
    -0.1431563437422459,
    -0.14283992105265753,
)
POW_EXP_EVEN = polynomial(1.0, 0.24022651213608867, 0.009618025601767607, 0.0001546973225514785)
POW_EXP_ODD = polynomial(0.6931471805350258, 0.055504109761144, 0.0013333422639942329, 1.5316463113877227e-05)
POW_MIN, POW_MAX = D(-160), D(160)
D1, D_MAGIC, D_MANTISSA = D(1), D(1.5 * 2**52), LONG(52)
D_ROOT_BITS = LONG(0x3FE6A09E00000000)


@inner
def exp_of_product(a: Any, y: Any) -> Any:
    """e^(y ln a) for a >= 0 and |y| <= LARGEST, by pairs: head + tail of ln a, then of its product with y.

    a = 2^e m and ln m = ln(c m) - ln c with c one of 5/4, 1 and 3/4, so that f = c m - 1 is exact and |f| <= 1/7.
    """
    tiny = a < SMALLEST_NORMAL
    s = to_bits(select(tiny, a * TWO_24, a))
    e = shr(isub(s, POW_LOW_BITS), MANTISSA)
    m = from_bits(isub(s, shl(e, MANTISSA)))
    n = F(e) - select(tiny, F24, ZERO)
    low, above = m < POW_MIDDLE, m > POW_ABOVE
    f = fma(m, select(low, LOW_FACTOR, select(above, ABOVE_FACTOR, ONE)), -ONE)
    base = fma(n, POW_LN2_HIGH, select(low, LOW_LOG_HIGH, select(above, ABOVE_LOG_HIGH, ZERO)))
    rest = fma(n, POW_LN2_LOW, select(low, LOW_LOG_LOW, select(above, ABOVE_LOG_LOW, ZERO)))
    half = -HALF * f
    h = fma(f, half, f)  # f - f²/2, of which f - h is exact
    head, head_low = fast_two_sum(base, h)
    tail = (f * f) * f * POW_LOG(f) + fma(f, half, sub(f, h)) + (rest + head_low)
    head = select(a == ZERO, -INF, select(a < INF, head, INF))
    p = mul(y, head)
    w = clamp(p, -PAST, PAST)
    w_low = select(w == p, fma(y, head, -w) + y * tail, ZERO)
    t = (w + w_low) * LOG2_E + MAGIC
    k = t - MAGIC
    r = (w - k * LN2_HIGH) + (w_low - k * LN2_LOW)
    return scale(ONE + (r + r * r * EXP(r)), isub(to_bits(t), MAGIC_BITS))


@inner
def exp2_of_product(a: Any, y: Any) -> Any:
    """The same as 2^(y log2 a), in float64."""
    s = to_bits(D(a))  # every float32 is a normal float64
    e = shr(isub(s, D_ROOT_BITS), D_MANTISSA)
    f = from_bits(isub(s, shl(e, D_MANTISSA))) - D1
    n = F(narrow(e))
    n = select(a == ZERO, -INF, select(a == INF, INF, n))
    ff = f * f
    log2_a = f * (POW_LOG_EVEN(ff) + f * POW_LOG_ODD(ff)) + D(n)
    w = clamp(log2_a * D(y), POW_MIN, POW_MAX)
    t = w + D_MAGIC
    r = w - (t - D_MAGIC)
    rr = r * r
    p = POW_EXP_EVEN(rr) + r * POW_EXP_ODD(rr)
    return F(from_bits(iadd(to_bits(p), shl(to_bits(t), D_MANTISSA))))


@inner
def pow(x: Any, y: Any) -> Any:  # noqa: A001
    """x^y = e^(y ln|x|), special cases as in C99.  Error 1.76 at 1.118 ** 750.9; without FMA 0.53.

    Tried on 26 million samples: of all bits, of integers, near 1, and with results from subnormals to overflow.
    """
    a, c = absolute(x), clamp(y, -LARGEST, LARGEST)
    if FMA:
        z = exp_of_product(a, c)
    else:
        z = exp2_of_product(a, c)
    i = INT(c)
    whole = F(i) == c
    z = from_bits(ior(to_bits(z), iand(to_bits(x), select(whole, shl(i, INT(31)), INT(0)))))
    negative = isub(to_bits(x), INT(1)) < BITS_ABOVE  # -Inf < x < 0, in two instructions
    z = select(negative & (not whole), NAN, z)
    z = select((x != x) | (y != y), NAN, z)
    return select((x == ONE) | (y == ZERO), ONE, z)


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
