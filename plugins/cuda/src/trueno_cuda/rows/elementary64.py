"""Elementary functions of one float64 as PTX.

Branch-free, polynomials throughout: the special function unit knows float32 only.  Exponents are built in the upper
word, with 32-bit integers, which cost a quarter of what 64-bit ones do.  Each function is right at NaN, ±Inf, ±0,
subnormals, overflow and its domain's edges.  Errors are in `trueno_cuda.rows.accuracy`.

The ideas are Cody and Waite's (reduction in parts), FDLIBM's (log and its kin: a rounded square and its correction),
Dekker's (pairs of floats) and Muller's (Handbook of Floating-Point Arithmetic); the coefficients are minimax fits of
our own, the same as in the other backends.
"""

from math import inf, log

from trueno_cuda.ptx import Builder, Value, f64, s32, u32, u64
from trueno_cuda.rows.elementary32 import clamp, horner

SHIFTER = 1.5 * 2**52
"""Adding it rounds to an integer, which is then in the low bits: |x| < 2⁵¹."""
LOG2_E = 1 / log(2)
LN2, LN2_LOW = 0.6931471805598903, 5.497923018708371e-14  # 42 bits, so that n · LN2 is exact; 53 bits
BIAS, SHIFT, INF_WORD = 1023, 20, 0x7FF00000  # of exponents, in the upper word
ROOT_WORD, EXPONENT = 0x3FE6A09E, -(1 << SHIFT)  # of sqrt(1/2); mask of sign and exponent
PER_LN2 = 1.4426950408889634, 2.0355273740931033e-17  # 1 / ln 2
PER_LN10 = 0.4342944819032518, 1.098319650216765e-17  # 1 / ln 10
LOG10_2, LOG10_2_LOW = 0.30102999566395283, 2.8363394551044964e-14  # 42 bits, 53 bits

# e^r = 1 + r + r² EXP(r) on |r| <= ln 2 / 2, error 2⁻⁶²
EXP = (0.5, 0.16666666666666677, 0.0416666666666667, 0.008333333333321381, 0.0013888888888866397,
       0.0001984126988683804, 2.480158736144308e-05, 2.755724342297662e-06, 2.7557241991942765e-07,
       2.510933309717384e-08, 2.0924682830266234e-09)  # fmt: skip
# 2^r = 1 + r EXP2(r) on |r| <= 1/2, error 2⁻⁵⁸
EXP2 = (0.6931471805599453, 0.24022650695910133, 0.05550410866482174, 0.009618129107593293,
        0.0013333558146379025, 0.00015403530458137614, 1.5252733867552763e-05, 1.3215434784103976e-06,
        1.0178046456290435e-07, 7.073866386893961e-09, 4.4573880247326097e-10)  # fmt: skip
# 2 atanh s = 2 s + s³ LOG(s²) on |s| <= 3 - 2√2, error 2⁻⁵⁸
LOG = (0.6666666666666724, 0.3999999999946788, 0.2857142873225295, 0.22222199496421974, 0.18183520750552953,
       0.15315079035609416, 0.14786347443914427)  # fmt: skip
# erf x = x + x ERF(x²) on |x| <= 1, error 2⁻⁶³; erfc x = exp(-LOG_ERFC(x - 1)) on [1, 6], error 2⁻⁶⁰ of 1
ERF = (0.1283791670955126, -0.3761263890318375, 0.11283791670954882, -0.02686617064507736,
       0.005223977624823154, -0.0008548326981106241, 0.00012055331120754248, -1.4925595466262048e-05,
       1.6461003376288504e-06, -1.6350340180567313e-07, 1.4659939232624163e-08, -1.1373404067814567e-09,
       5.957986180417568e-11)  # fmt: skip
LOG_ERFC = (1.8496055099332482, 2.6389675142347895, 0.8431072563586036, 0.04156109804360748,
            -0.010033825397261859, 0.0019779027410572842, -0.0002373233338303537, -2.6274992704675284e-05,
            2.715215932616014e-05, -9.59662228537782e-06, 2.043621936748012e-06, -1.2688526864046502e-07,
            -1.0951621215107833e-07, 5.8798784468234393e-08, -1.7768274478156066e-08, 3.750868436743566e-09,
            -5.64103988575582e-10, 5.7886174018497544e-11, -3.6341616574394573e-12, 1.0511219890123803e-13)  # fmt: skip

Pair = tuple[Value, Value]


# ---- exact sums and words


def two_sum(k: Builder, a: Value | float, b: Value) -> Pair:
    """(s, e): s = fl(a + b), and s + e = a + b (Knuth)."""
    s = k.add(a, b)
    t = k.sub(s, a)
    return s, k.sub(a, s - t) + (b - t)


def fast_two_sum(k: Builder, a: Value | float, b: Value) -> Pair:
    """The same for |a| >= |b| (Dekker)."""
    s = k.add(a, b)
    return s, b - k.sub(s, a)


def two_product(k: Builder, a: Value, b: Value) -> Pair:
    """(p, e): p = fl(a · b), and p + e = a · b."""
    p = a * b
    return p, k.fma(a, b, -p)


def words(k: Builder, x: Value) -> Pair:
    """Lower and upper half of a float64."""
    low, high = k.unpack(x.bits(u64))
    return low, high


def from_words(k: Builder, low: Value, high: Value) -> Value:
    return k.pack(u64, low, high).bits(f64)


def power_of_two(k: Builder, n: Value) -> Value:
    """2^n for an integer (s32) from -1022 to 1023."""
    return from_words(k, k.const(u32, 0), k.shl(n + BIAS, SHIFT).bits(u32))


def scale(k: Builder, x: Value, n: Value) -> Value:
    """x · 2^n in two steps, so that only the second can round (to a subnormal) or overflow."""
    half = k.shr(n, 1)
    return x * power_of_two(k, half) * power_of_two(k, n - half)


def nearest(k: Builder, x: Value, factor: float = 1.0) -> Pair:
    """rint(x · factor) as float64 and as s32."""
    t = k.fma(x, factor, SHIFTER)
    return t - SHIFTER, words(k, t)[0].bits(s32)


# ---- exponentials


def exp_series(k: Builder, r: Value) -> Value:
    """e^r for |r| <= ln 2 / 2."""
    return k.add(k.fma(r * r, horner(k, r, *EXP), r), 1.0)


def exp(k: Builder, x: Value) -> Value:
    """e^x: x = n ln 2 + r."""
    c = clamp(k, x, -746.0, 710.0)
    n, i = nearest(k, c, LOG2_E)
    minus = -n
    r = k.fma(minus, LN2_LOW, k.fma(minus, LN2, c))
    return scale(k, exp_series(k, r), i)


def exp2(k: Builder, x: Value) -> Value:
    """2^x: the nearest integer is taken off, hence exact for integers."""
    c = clamp(k, x, -1076.0, 1025.0)
    n, i = nearest(k, c)
    r = c - n
    return scale(k, k.fma(r, horner(k, r, *EXP2), 1.0), i)


def expm1_parts(k: Builder, c: Value) -> Pair:
    """(s, t): e^c - 1 = 2 (s + t) for -50 <= c <= 710; s = 2^(n-1) - 1/2 + 2^(n-1) r, what it lost is in t."""
    n, i = nearest(k, c, LOG2_E)
    minus = -n
    t = k.fma(minus, LN2, c)
    r = k.fma(minus, LN2_LOW, t)
    low = k.fma(minus, LN2_LOW, t - r)
    half = power_of_two(k, i - 1)
    s, e = two_sum(k, half - 0.5, half * r)
    return s, k.fma(half, k.fma(r * r, horner(k, r, *EXP), low), e)


def expm1(k: Builder, x: Value) -> Value:
    """e^x - 1, with the two large terms of 2^n - 1 + 2^n (e^r - 1) added exactly."""
    s, t = expm1_parts(k, clamp(k, x, -50.0, 710.0))
    y = s + t
    return k.select(abs(x) < 2.0**-54, x, y + y)


# ---- logarithms


def split(k: Builder, x: Value) -> Pair:
    """(n, m): x = 2^n · m with sqrt(1/2) <= m < sqrt(2) or a little off, for 0 < x < Inf, subnormals too."""
    tiny = x < 2.0**-1022
    low, high = words(k, k.select(tiny, x * 2.0**54, x))
    e = k.and_(high.bits(s32) - ROOT_WORD, EXPONENT)
    n = k.fma(e.to(f64), 2.0**-SHIFT, k.select(tiny, k.const(f64, -54.0), 0.0))
    return n, from_words(k, low, (high.bits(s32) - e).bits(u32))


def log_parts(k: Builder, f: Value) -> Pair:
    """(h, t): log(1 + f) = f - (h - t), with h = f²/2 and t = s (h + R), s = f / (2 + f) (FDLIBM's form)."""
    s = f / (f + 2.0)
    z = s * s
    h = f * 0.5 * f
    return h, s * k.fma(z, horner(k, z, *LOG), h)


def edges(k: Builder, x: Value, y: Value) -> Value:
    """y, or what every logarithm of zero, of a negative, of infinity and of NaN is."""
    y = k.select(words(k, x)[1] >= INF_WORD, k.fma(x, inf, inf), y)
    return k.select(x == 0.0, -inf, y)


def log_(k: Builder, x: Value) -> Value:
    """ln x: x = 2^n (1 + f)."""
    n, m = split(k, x)
    f = m - 1.0
    h, t = log_parts(k, f)
    return edges(k, x, k.fma(n, LN2, f - (h - k.fma(n, LN2_LOW, t))))


def log_in_base(k: Builder, f: Value, per: tuple[float, float], whole: Value) -> Pair:
    """(s, e): log(1 + f) · (per) + whole, where |whole| is 0 or larger than the product."""
    h, t = log_parts(k, f)
    top = f - h
    low = ((f - top) - h) + t
    v = top * per[0]
    rest = k.fma(low, per[0], k.fma(top, per[1], k.fma(top, per[0], -v)))
    s, e = fast_two_sum(k, whole, v)
    return s, e + rest


def log2(k: Builder, x: Value) -> Value:
    """log2 x, exact for powers of two: ln(1 + f) in two parts, times 1/ln 2 in two parts."""
    n, m = split(k, x)
    s, e = log_in_base(k, m - 1.0, PER_LN2, n)
    return edges(k, x, s + e)


def log10_(k: Builder, x: Value) -> Value:
    """log10 x, in the same way; exact for the powers of ten that are float64."""
    n, m = split(k, x)
    s, e = log_in_base(k, m - 1.0, PER_LN10, n * LOG10_2)
    return edges(k, x, s + k.fma(n, LOG10_2_LOW, e))


def log1p(k: Builder, x: Value) -> Value:
    """ln(1 + x): of u = fl(1 + x), plus what the rounding lost over u."""
    u, lost = two_sum(k, 1.0, x)
    n, m = split(k, u)
    f = m - 1.0
    h, t = log_parts(k, f)
    y = k.fma(n, LN2, f - (h - (t + k.fma(n, LN2_LOW, lost / u))))
    return k.select(abs(x) < 2.0**-54, x, edges(k, u, y))


def log1p_unit(k: Builder, x: Value) -> Value:
    """ln(1 + x) for 0 <= x <= 1: beyond sqrt(2) - 1 half of 1 + x is taken; no bit work."""
    far = x > 2**0.5 - 1
    f = k.select(far, k.fma(x, 0.5, -0.5), x)
    h, t = log_parts(k, f)
    y = f - (h - (t + k.select(far, k.const(f64, LN2_LOW), 0.0)))
    return y + k.select(far, k.const(f64, LN2), -0.0)


# ---- hyperbolic tangent, error function, root


def tanh(k: Builder, x: Value) -> Value:
    """tanh x = t / (t + 2) with t = e^2x - 1, for |x|.

    What t and t + 2 lost is put back; 1 / (t + 2) is (1 - q) / 2.
    """
    a = abs(x)
    s, rest = expm1_parts(k, clamp(k, a, 0.0, 20.0) * 2.0)
    t, t_low = fast_two_sum(k, s + s, rest + rest)
    d, d_low = two_sum(k, 2.0, t)
    q = t / d
    y = k.fma(k.fma(-q, d_low + t_low, t_low), k.fma(q, -0.5, 0.5), q)
    return k.copysign(k.select(a < 2.0**-27, a, y), x)


def erf(k: Builder, x: Value) -> Value:
    """erf x = x + x ERF(x²) up to 1, then 1 - exp(-LOG_ERFC(|x| - 1))."""
    a = abs(x)
    inside = k.fma(a, horner(k, a * a, *ERF), a)
    g = -horner(k, k.min(a, 6.0) - 1.0, *LOG_ERFC)
    n, i = nearest(k, g, LOG2_E)
    minus = -n
    r = k.fma(minus, LN2_LOW, k.fma(minus, LN2, g))
    beyond = k.fma(-exp_series(k, r), power_of_two(k, i), 1.0)
    return k.copysign(k.select(a > 1.0, beyond, inside), x)


def rsqrt(k: Builder, x: Value) -> Value:
    """1 / sqrt(x): the approximation and a step of Newton's, where that is defined."""
    y = k.rsqrt(x)
    rest = k.fma(-(x * y), y, 1.0)
    return k.select(abs(rest) < 0.5, k.fma(y * 0.5, rest, y), y)  # 0 · Inf at 0 and Inf


FUNCTIONS = {
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "log": log_,
    "log2": log2,
    "log10": log10_,
    "log1p": log1p,
    "log1p_unit": log1p_unit,
    "tanh": tanh,
    "erf": erf,
    "rsqrt": rsqrt,
}
