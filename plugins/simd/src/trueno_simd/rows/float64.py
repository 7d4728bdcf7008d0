"""Elementary functions of one float64, written so that a plain loop around them vectorizes.

Straight-line code: selects for branches, bit work for exponents, polynomials for the rest; no tables, no
libm.  Every function is right at NaN, ±Inf, ±0 (whose sign it keeps), subnormals and its domain's edges.
The ideas are Cody and Waite's (reduction in parts), FDLIBM's (log and its kin: a rounded square and its
correction), Dekker's (pairs of floats) and Muller's (Handbook of Floating-Point Arithmetic); the code is
our own, and the polynomials are minimax fits made with mpmath (Remez, relative to the result).

For AVX-512 the logarithms to e and 2 and the power have other forms (`trueno_simd.rows.float64_avx512`).

A docstring ends with the largest error found in ulp and where, over 2.7 to 4.3 million arguments a function
against 80-bit long double (erf: 50 000 against mpmath), with fused steps (AVX-512) and without (SSE2).
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from trueno_simd.llvm.bits import (
    AVX512,
    absolute,
    copysign,
    fast_two_sum,
    from_bits,
    high,
    ldexp,
    narrow,
    polynomial,
    select,
    sqrt,
    to_bits,
    two_product,
    two_sum,
    ushr,
)
from trueno_simd.llvm.jit import inner
from trueno_simd.rows.float64_trig import atan, cos, sin, tan  # noqa: F401 (the printer calls it for sin x / cos x)

INF, NAN = np.inf, np.nan

_SHIFTER = 6755399441055744.0  # 1.5 · 2⁵²: adding it rounds to an integer, which is then in the low bits
_WHOLE = 4503599627370496.0  # 2⁵²: from here on every float64 is an integer
_LOG2E = 1.4426950408889634
_LN2, _LN2_LOW = 0.6931471805598903, 5.497923018708371e-14  # 42 bits, so that k·_LN2 is exact; 53 bits
_1_LN2, _1_LN2_LOW = 1.4426950514316559, -1.0542692476429138e-08  # 26 bits, 53 bits
_1_LN10, _1_LN10_LOW = 0.4342944845557213, -2.6524694553078553e-09
_LG2, _LG2_LOW = 0.30102999566395283, 2.8363394551044964e-14  # log10 2, 42 bits and 53
_TWO_THIRDS, _TWO_THIRDS_LOW = 0.6666666666666666, 3.700743415417188e-17

_MANTISSA = np.int64(0xFFFFFFFFFFFFF)
_SQRT_HALF = np.int64(0x3FE6A09E667F3BCD)  # bits of √½ and of 1
_TO_SQRT_HALF = np.int64(0x3FF0000000000000 - 0x3FE6A09E667F3BCD)
_WHOLE_BITS = np.int64(0x4330000000000000)
_SIGN = np.int64(-(1 << 63))

# eʳ = 1 + r + r² E(r) on |r| <= ln 2 / 2, error 2⁻⁶²
_E = polynomial(
    0.5, 0.16666666666666677, 0.0416666666666667, 0.008333333333321381, 0.0013888888888866397,
    0.0001984126988683804, 2.480158736144308e-05, 2.755724342297662e-06, 2.7557241991942765e-07,
    2.510933309717384e-08, 2.0924682830266234e-09,
    chains=2,
)  # fmt: skip
# 2ʳ = 1 + r E2(r) on |r| <= 1/2, error 2⁻⁵⁸
_E2 = polynomial(
    0.6931471805599453, 0.24022650695910133, 0.05550410866482174, 0.009618129107593293,
    0.0013333558146379025, 0.00015403530458137614, 1.5252733867552763e-05, 1.3215434784103976e-06,
    1.0178046456290435e-07, 7.073866386893961e-09, 4.4573880247326097e-10,
)  # fmt: skip
# 2 atanh s = 2 s + s³ L(s²) on |s| <= 3 - 2√2, error 2⁻⁵⁸; and 2 s + s³ (2/3 + s² Q(s²)), error 2⁻⁷²
_L = polynomial(
    0.6666666666666724, 0.3999999999946788, 0.2857142873225295, 0.22222199496421974,
    0.18183520750552953, 0.15315079035609416, 0.14786347443914427,
)  # fmt: skip
_Q = polynomial(
    0.3999999999999998, 0.2857142857144501, 0.22222222217556387, 0.1818181886823102,
    0.15384556994900944, 0.13336313192942156, 0.1167489558470234, 0.11988430155525322,
    chains=2,
)  # fmt: skip
# erf x = x + x F(x²) on |x| <= 1, error 2⁻⁶³; erfc x = exp(-G(x - 1)) on [1, 6], error 2⁻⁶⁰ of 1
_F = polynomial(
    0.1283791670955126, -0.3761263890318375, 0.11283791670954882, -0.02686617064507736,
    0.005223977624823154, -0.0008548326981106241, 0.00012055331120754248, -1.4925595466262048e-05,
    1.6461003376288504e-06, -1.6350340180567313e-07, 1.4659939232624163e-08, -1.1373404067814567e-09,
    5.957986180417568e-11,
    chains=2,
)  # fmt: skip
_G = polynomial(
    1.8496055099332482, 2.6389675142347895, 0.8431072563586036, 0.04156109804360748,
    -0.010033825397261859, 0.0019779027410572842, -0.0002373233338303537, -2.6274992704675284e-05,
    2.715215932616014e-05, -9.59662228537782e-06, 2.043621936748012e-06, -1.2688526864046502e-07,
    -1.0951621215107833e-07, 5.8798784468234393e-08, -1.7768274478156066e-08, 3.750868436743566e-09,
    -5.64103988575582e-10, 5.7886174018497544e-11, -3.6341616574394573e-12, 1.0511219890123803e-13,
    chains=2,
)  # fmt: skip


@inner
def _nearest(x: Any) -> Any:
    """x rounded to an integer, for |x| < 2⁵¹."""
    return (x + _SHIFTER) - _SHIFTER


@inner
def _clamp(x: Any, low: Any, top: Any) -> Any:
    """x held in [low, top]; a NaN stays."""
    return select(x < low, low, select(x > top, top, x))


@inner
def _pow2(n: Any) -> Any:
    """2ⁿ for an integer -1022 <= n <= 1023: n + 1023 in the low bits, moved to the exponent's place."""
    return from_bits(to_bits(n + (_SHIFTER + 1023.0)) << 52)


@inner
def _scale(x: Any, n: Any) -> Any:
    """x · 2ⁿ in two steps, so that only the second can round (to a subnormal) or overflow."""
    if AVX512:
        return ldexp(x, narrow(to_bits(n + _SHIFTER)))
    half = _nearest(0.5 * n)
    return x * _pow2(half) * _pow2(n - half)


@inner
def _split(x: Any) -> Any:
    """(k, m): x = 2ᵏ · m with √½ <= m < √2, for 0 < x < Inf, subnormals too."""
    tiny = x < 2.2250738585072014e-308
    bits = to_bits(select(tiny, x * 2.0**54, x)) + _TO_SQRT_HALF
    k = from_bits(ushr(bits, np.int64(52)) | _WHOLE_BITS) - select(tiny, _WHOLE + 1077.0, _WHOLE + 1023.0)
    return k, from_bits((bits & _MANTISSA) + _SQRT_HALF)


@inner
def _log_parts(f: Any) -> Any:
    """(h, t): log(1 + f) = f - (h - t), with h = f²/2 and t = s (h + R), s = f / (2 + f) (FDLIBM's form)."""
    s = f / (2.0 + f)
    z = s * s
    h = 0.5 * f * f
    return h, s * (h + z * _L(z))


@inner
def _log_edges(x: Any, y: Any) -> Any:
    """y, or what a logarithm is outside (0, Inf)."""
    return select(x > 0.0, select(x == INF, x, y), select(x == 0.0, -INF, NAN))


@inner
def exp(x: Any) -> Any:
    """eˣ: x = n ln 2 + r, then 2ⁿ (1 + r + r² E(r)).  1.00 ulp at -464.06."""
    c = _clamp(x, -746.0, 710.0)
    n = _nearest(c * _LOG2E)
    r = (c - n * _LN2) - n * _LN2_LOW
    return _scale(1.0 + (r + r * r * _E(r)), n)


@inner
def exp2(x: Any) -> Any:
    """2ˣ: the nearest integer is taken off, hence exact for integers.  1.16 ulp (fused 0.88) at -357.5."""
    c = _clamp(x, -1076.0, 1025.0)
    n = _nearest(c)
    r = c - n
    return _scale(1.0 + r * _E2(r), n)


@inner
def _expm1_parts(c: Any) -> Any:
    """(s, t): eᶜ - 1 = 2 (s + t) for -50 <= c <= 710; s = 2ⁿ⁻¹ - ½ + 2ⁿ⁻¹ r, what it lost is in t."""
    n = _nearest(c * _LOG2E)
    t = c - n * _LN2
    r = t - n * _LN2_LOW
    low = (t - r) - n * _LN2_LOW
    half = _pow2(n - 1.0)
    s, e = two_sum(half - 0.5, half * r)
    return s, e + half * (r * r * _E(r) + low)


@inner
def expm1(x: Any) -> Any:
    """eˣ - 1, with the two large terms of 2ⁿ - 1 + 2ⁿ (eʳ - 1) added exactly.  1.28 ulp at 0.353."""
    s, t = _expm1_parts(_clamp(x, -50.0, 710.0))
    y = s + t
    return select(absolute(x) < 2.0**-54, x, y + y)


@inner
def log(x: Any) -> Any:
    """ln x: x = 2ᵏ (1 + f).  0.86 ulp at 0.7071."""
    k, m = _split(x)
    f = m - 1.0
    h, t = _log_parts(f)
    return _log_edges(x, k * _LN2 - ((h - (t + k * _LN2_LOW)) - f))


@inner
def log2(x: Any) -> Any:
    """log₂ x, exact for powers of two: ln(1 + f) in two parts, times 1/ln 2 in two parts.  0.83 ulp at 1.4142."""
    k, m = _split(x)
    f = m - 1.0
    h, t = _log_parts(f)
    top = high(f - h)
    low = ((f - top) - h) + t
    v = top * _1_LN2
    s, e = fast_two_sum(k, v)
    e = select(k == 0.0, 0.0, e)
    return _log_edges(x, s + (e + ((low + top) * _1_LN2_LOW + low * _1_LN2)))


@inner
def log10(x: Any) -> Any:
    """log₁₀ x, in the same way; exact for the powers of ten that are float64.  0.71 ulp at 1.4142."""
    k, m = _split(x)
    f = m - 1.0
    h, t = _log_parts(f)
    top = high(f - h)
    low = ((f - top) - h) + t
    v = top * _1_LN10
    s, e = fast_two_sum(k * _LG2, v)
    e = select(k == 0.0, 0.0, e)
    rest = k * _LG2_LOW + ((low + top) * _1_LN10_LOW + low * _1_LN10)
    return _log_edges(x, s + (e + rest))


@inner
def log1p(x: Any) -> Any:
    """ln(1 + x): of u = fl(1 + x), plus what the rounding lost over u.  0.86 ulp at -0.2929."""
    u, lost = two_sum(1.0, x)
    k, m = _split(u)
    f = m - 1.0
    h, t = _log_parts(f)
    y = k * _LN2 - ((h - (t + (k * _LN2_LOW + lost / u))) - f)
    return select(absolute(x) < 2.0**-54, x, _log_edges(u, y))


@inner
def log1p_unit(u: Any) -> Any:
    """ln(1 + u) for 0 <= u <= 1: beyond √2 - 1 half of 1 + u is taken; no bit work.  1.40 ulp at 0.4142."""
    fold = u > 0.41421356237309503
    f = select(fold, 0.5 * (u - 1.0), u)
    h, t = _log_parts(f)
    return select(fold, _LN2, -0.0) + (f - (h - (t + select(fold, _LN2_LOW, 0.0))))


@inner
def tanh(x: Any) -> Any:
    """tanh x = t / (t + 2) with t = e²ˣ - 1, for |x|.  1.42 ulp at 0.179.

    What t and t + 2 lost is put back; 1 / (t + 2) is (1 - q) / 2.
    """
    a = absolute(x)
    s, rest = _expm1_parts(2.0 * select(a > 20.0, 20.0, a))
    t, t_low = fast_two_sum(2.0 * s, 2.0 * rest)
    d, d_low = two_sum(2.0, t)
    q = t / d
    y = q + (t_low - q * (d_low + t_low)) * (0.5 - 0.5 * q)
    return copysign(select(a < 2.0**-27, a, y), x)


@inner
def erf(x: Any) -> Any:
    """erf x = x + x F(x²) up to 1, then 1 - exp(-G(|x| - 1)).  1.43 ulp (fused 1.04) just below 1."""
    a = absolute(x)
    inside = a + a * _F(select(a > 1.0, 1.0, a * a))
    g = -_G(select(a > 6.0, 6.0, a) - 1.0)
    n = _nearest(g * _LOG2E)
    r = (g - n * _LN2) - n * _LN2_LOW
    beyond = 1.0 - (1.0 + (r + r * r * _E(r))) * _pow2(n)
    return copysign(select(a > 1.0, beyond, inside), x)


@inner
def rsqrt(x: Any) -> Any:
    """1 / √x, two roundings; 1 / ±0 is ±Inf.  1.49 ulp just above 1."""
    return 1.0 / sqrt(x)


@inner
def _log_pair(x: Any) -> Any:
    """ln x as a pair, right to about 2⁻⁶⁶, for 0 < x < Inf."""
    k, m = _split(x)
    f = m - 1.0
    g, g_low = two_sum(1.0, m)
    inverse = 1.0 / g
    s = f * inverse
    p, e = two_product(s, g)
    s_low = ((f - p) - e - s * g_low) * inverse
    z, z_low = two_product(s, s)
    z_low += 2.0 * s * s_low
    c, c_low = fast_two_sum(_TWO_THIRDS, z * _Q(z))
    c_low += _TWO_THIRDS_LOW
    w, w_low = two_product(s, z)
    w_low += s * z_low + s_low * z
    t, t_low = two_product(w, c)
    t_low += w * c_low + w_low * c
    h, h_low = fast_two_sum(2.0 * s, t)
    h_low += 2.0 * s_low + t_low
    top, low = two_sum(k * _LN2, h)
    return fast_two_sum(top, low + (h_low + k * _LN2_LOW))


@inner
def _exp_pair(x: Any, low: Any) -> Any:
    """exp(x + low) for |low| far below |x|."""
    low = select((x > 710.0) | (x < -746.0), 0.0, low)
    c = _clamp(x, -746.0, 710.0)
    n = _nearest(c * _LOG2E)
    t = c - n * _LN2
    r = t - n * _LN2_LOW
    r, low = fast_two_sum(r, low + ((t - r) - n * _LN2_LOW))
    s, e = fast_two_sum(1.0, r)
    return _scale(s + (e + (r * r * _E(r) + low)), n)


@inner
def _is_whole(t: Any) -> Any:
    """Whether t >= 0 is an integer (Inf is)."""
    return (t >= _WHOLE) | ((t + _WHOLE) - _WHOLE == t)


@inner
def pow(x: Any, y: Any) -> Any:  # noqa: A001
    """xʸ = exp(y ln |x|), the logarithm and the product as pairs; the special cases are C99's.

    0.92 ulp, at 0.7078 ** 1893.5.
    """
    a, b = absolute(x), absolute(y)
    h, h_low = _log_pair(a)
    d = _clamp(y, -(2.0**66), 2.0**66)  # beyond, any |x| != 1 over- or underflows: |ln x| >= 2⁻⁵³
    p, e = two_product(h, d)
    r = _exp_pair(p, e + h_low * d)
    edge = (a == 0.0) | (a == INF)
    r = select(edge, select((a == 0.0) == (y < 0.0), INF, 0.0), r)
    odd = _is_whole(b) & (not _is_whole(0.5 * b))
    r = from_bits(to_bits(r) | select(odd, to_bits(x) & _SIGN, np.int64(0)))
    r = select((x < 0.0) & (a < INF) & (not _is_whole(b)), NAN, r)
    r = select((x != x) | (y != y), NAN, r)
    return select((x == 1.0) | (y == 0.0), 1.0, r)


if AVX512 and not TYPE_CHECKING:
    from trueno_simd.rows.avx512_pow import pow64 as pow  # noqa: A004
    from trueno_simd.rows.float64_avx512 import log, log2

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
}

# The largest error in ulp, over all levels: what the tests assert, and tolerances may read.
ULP: dict[str, float] = {
    "exp": 1.25,
    "exp2": 1.25,
    "expm1": 1.5,
    "log": 1.0,
    "log2": 1.0,
    "log10": 1.0,
    "log1p": 1.0,
    "log1p_unit": 1.5,
    "tanh": 1.75,
    "erf": 1.75,
    "sin": 1.0,
    "cos": 1.0,
    "atan": 2.0,
    "pow": 1.0,
    "rsqrt": 1.6,
}
