"""Elementary functions of one float32 as PTX.

Branch-free: ranges are clamped by saturation or a min and a max that keep NaN, exponents are put in by integer adds,
and the special function unit does what polynomials need not: 2^x and 1/x.  Each function is right at NaN, ±Inf, ±0,
subnormals, overflow and its domain's edges.  `.ftz` stands only where a subnormal cannot matter, and saves the four
instructions that ptxas puts around an approximation to keep them.

A function's docstring ends with the number of its machine instructions (ptxas 13.0, sm_90, moves left out).  In the
time in which an H200's memory moves 8 bytes, its 132 · 128 lanes issue 49 (1.755 GHz, 4.8 TB/s): so many are free for
each float32 that is read and written.  Errors are in `trueno_cuda.rows.accuracy`.

Ideas: Cody and Waite's reduction, FDLIBM's and Cephes' ways to split logarithms, Muller's Elementary Functions.  The
coefficients are minimax fits of our own, the same as in the other backends.
"""

from math import inf, log, log10, pi

from trueno_cuda.ptx import Builder, Value, f32, s32, u32

MAGIC = 1.5 * 2**23
"""t = x + MAGIC holds the nearest integer in its low bits, and t - MAGIC is it: |x| < 2²²."""
LOG2_E, LOG2_E_LOW = 1.4426950216293335, 1.925963033500978e-08  # both above zero, so that Inf stays Inf
LN2_HIGH = 0.693359375  # nine digits, so that n · LN2_HIGH is exact
LN2_LOW = log(2) - LN2_HIGH
ONE_BITS, HALF_BITS, INF_BITS = 0x3F800000, 0x3F000000, 0x7F800000
ROOT_BITS, EXPONENT = 0x3F3504F3, -(1 << 23)  # of sqrt(1/2); mask of sign and exponent
LOW, STEPS = 126, 253  # 2^-126 … 2^127 are normal numbers

EXP = (0.49999994, 0.16666521, 0.041668274, 0.008368683, 0.0013820052)
LOG = (0.3333333, -0.2500082, 0.20001242, -0.16623409, 0.14201581, -0.13159613, 0.12762201, -0.07636403)
LOG2 = (0.44269505, -0.7213475, 0.4808965, -0.36068258, 0.2886188, -0.23995215, 0.20415677, -0.18825443,
        0.18686533, -0.11639451)  # fmt: skip
LOG10 = (-0.065705515, -0.21714725, 0.14476454, -0.10857662, 0.08687233, -0.07221139, 0.061588623, -0.056961764,
         0.05574629, -0.03387411)  # fmt: skip
LOG10_2 = 1233 / 4096  # eleven digits
TANH = (-0.33333313, 0.13332437, -0.053835757, 0.021000376, -0.006169614)
ERF = (0.12837917, -0.3761259, 0.11282865, -0.026807288, 0.0050577037, -0.00063485187)
LOG2_ERFC = (-0.00016549481, -1.6273823, -0.918422, -0.15068683, 0.03243045, -0.0044827675, 0.00029219323)
ATAN = (-0.33333153, 0.19993767, -0.14211002, 0.106657684, -0.07551656, 0.043204635, -0.016363103, 0.0029193931)


def horner(k: Builder, x: Value, *coefficients: float) -> Value:
    """c0 + x·(c1 + x·(…)), fused."""
    *rest, first, last = coefficients
    value = k.fma(x, last, first)
    for c in reversed(rest):
        value = k.fma(x, value, c)
    return value


def clamp(k: Builder, x: Value, low: float, high: float) -> Value:
    """x within two bounds; a NaN stays."""
    if k.target.number >= 80 and x.type is f32:
        return k.min(k.max(x, low, nan=True), high, nan=True)
    x = k.select(x < low, low, x)
    return k.select(x > high, high, x)


# ---- exponentials


def power_of_two(k: Builder, t: Value) -> Value:
    """2^n where t = n + MAGIC + 127."""
    return k.shl(t.bits(u32), 23).bits(f32)


def exp(k: Builder, x: Value) -> Value:
    """e^x = 2^n 2^r with n = rint(x log2 e) held in -126 … 127 by saturation, so that r takes what is beyond: 8."""
    s = k.fma(x, LOG2_E / STEPS, LOW / STEPS, sat=True)
    t = k.fma(s, STEPS, MAGIC + 127 - LOW)
    r = k.fma(x, LOG2_E, k.sub(MAGIC + 127, t))
    r = k.fma(x, LOG2_E_LOW, r)
    return k.exp2(r, ftz=True) * power_of_two(k, t)


def exp2(k: Builder, x: Value) -> Value:
    """2^x in the same way; exact at integers: 7."""
    s = k.fma(x, 1 / STEPS, LOW / STEPS, sat=True)
    t = k.fma(s, STEPS, MAGIC + 127 - LOW)
    return k.exp2(k.add(x, k.sub(MAGIC + 127, t)), ftz=True) * power_of_two(k, t)


def expm1(k: Builder, x: Value) -> Value:
    """e^x - 1 = 2^n (e^r - 1) + (2^n - 1), on half the scale so that 2^n never overflows: 18."""
    c = clamp(k, x, -18.0, 88.8)  # beyond: -1 and Inf
    t = k.fma(c, LOG2_E, MAGIC)
    n = t - MAGIC
    minus = k.neg(n)
    r = k.fma(minus, LN2_LOW, k.fma(minus, LN2_HIGH, c))
    p = k.fma(r * r, horner(k, r, *EXP), r)
    half = k.add(k.shl(t.bits(u32), 23), HALF_BITS).bits(f32)
    y = k.fma(half, p, half - 0.5)
    return k.copysign(k.select(n == 0.0, p, y + y), x)


# ---- logarithms


def split(k: Builder, x: Value) -> tuple[Value, Value]:
    """(f, n) with x = (1 + f) · 2^n and sqrt(1/2) <= 1 + f < sqrt(2), for 0 < x < Inf; f is exact."""
    tiny = x < 2.0**-126
    s = k.select(tiny, x * 2.0**24, x).bits(s32)
    e = k.and_(s - ROOT_BITS, EXPONENT)
    f = (s - e).bits(f32) - 1.0
    bias = k.select(tiny, k.const(f32, -24.0), 0.0)
    return f, k.fma(e.to(f32), 2.0**-23, bias)


def edges(k: Builder, x: Value, y: Value) -> Value:
    """y, or what every logarithm of zero, of a negative, of infinity and of NaN is."""
    y = k.select(x.bits(u32) >= INF_BITS, k.fma(x, inf, inf), y)
    return k.select(x == 0.0, -inf, y)


def log1p_series(k: Builder, f: Value, tail: Value | None = None) -> Value:
    """log(1 + f) + tail for sqrt(1/2) <= 1 + f < sqrt(2): f - f²/2 + f³ LOG(f), degree 10."""
    g = f * f
    h = k.fma(f, horner(k, f, *LOG), -0.5)
    return k.fma(g, h, f) if tail is None else f + k.fma(g, h, tail)


def log_(k: Builder, x: Value) -> Value:
    """Natural logarithm: the series and n · ln 2 in two parts: 27."""
    f, n = split(k, x)
    y = k.fma(n, LN2_HIGH, log1p_series(k, f, n * LN2_LOW))
    return edges(k, x, y)


def log2(k: Builder, x: Value) -> Value:
    """n + (f + f LOG2(f)); exact at powers of two: 25."""
    f, n = split(k, x)
    return edges(k, x, k.fma(f, horner(k, f, *LOG2), f) + n)


def log10_(k: Builder, x: Value) -> Value:
    """n log10(2) in two parts + f/2 + f LOG10(f); exact at powers of 10: 27."""
    f, n = split(k, x)
    y = k.fma(f, horner(k, f, *LOG10), k.fma(f, 0.5, n * (log10(2) - LOG10_2)))
    return edges(k, x, k.fma(n, LOG10_2, y))


def log1p(k: Builder, x: Value) -> Value:
    """log(1 + x) without a division: what 1 + x lost is added to its mantissa: 30."""
    w = x + 1.0
    lost = x - (w - 1.0)
    s = w.bits(s32)
    e = k.and_(s - ROOT_BITS, EXPONENT)
    shrink = k.sub(0x40800000, e).bits(f32)  # 4 · 2^-n is a normal float for every n
    f = k.fma(lost * shrink, 0.25, (s - e).bits(f32) - 1.0)
    n = e.to(f32) * 2.0**-23
    y = k.copysign(k.fma(n, LN2_HIGH, log1p_series(k, f, n * LN2_LOW)), x)
    y = k.select(w.bits(u32) >= INF_BITS, k.fma(x, inf, inf), y)  # of x < -1: -Inf + Inf
    return k.select(w == 0.0, -inf, y)


def log1p_unit(k: Builder, x: Value) -> Value:
    """log(1 + x) for 0 <= x <= 1, without bit work: ln 2 + log((1 + x)/2) beyond sqrt(2) - 1: 14."""
    far = x > 2**0.5 - 1
    f = k.select(far, k.fma(x, 0.5, -0.5), x)
    return log1p_series(k, f) + k.select(far, k.const(f32, log(2)), -0.0)


# ---- hyperbolic tangent, error function, arc tangent, root


def tanh(k: Builder, x: Value) -> Value:
    """x + x³ TANH(x²) up to 0.55, then 1 - 2 / (e^2x + 1), where errors of e^2x shrink: 14."""
    a = abs(x)
    e = k.exp2(a * (2 / log(2)), ftz=True)  # Inf gives 1
    far = k.fma(k.rcp_approx(e + 1.0, ftz=True), -2.0, 1.0)
    s = a * a
    near = k.fma(a, s * horner(k, s, *TANH), a)
    return k.copysign(k.select(a > 0.55, far, near), x)


def erf(k: Builder, x: Value) -> Value:
    """x + x ERF(x²) up to 0.85, then 1 - 2^L with a polynomial L for log2(erfc): 18."""
    a = abs(x)
    c = k.min(a, 3.93)  # beyond: 1; a NaN takes the other way
    far = 1.0 - k.exp2(horner(k, c, *LOG2_ERFC), ftz=True)
    near = k.fma(a, horner(k, a * a, *ERF), a)
    return k.copysign(k.select(a > 0.85, far, near), x)


def atan(k: Builder, x: Value) -> Value:
    """z + z³ ATAN(z²) with z = x, or π/2 + the same of z = -1/x beyond 1: 18."""
    a = abs(x)
    far = a > 1.0
    z = k.select(far, -k.rcp_approx(a, ftz=True), a)
    t = z * z
    low = k.select(far, k.const(f32, -4.371139e-08), 0.0)
    y = z + k.fma(z, t * horner(k, t, *ATAN), low)
    return k.copysign(y + k.select(far, k.const(f32, pi / 2), 0.0), x)


def rsqrt(k: Builder, x: Value) -> Value:
    """1 / sqrt(x): the approximation and a step of Newton's, where that is defined: 10."""
    y = k.rsqrt(x)
    rest = k.fma(k.neg(x * y), y, 1.0)
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
    "atan": atan,
    "rsqrt": rsqrt,
}
