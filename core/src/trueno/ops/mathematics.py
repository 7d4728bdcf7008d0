"""Elementary functions, rounding and signs."""

from trueno.ops.op import op
from trueno.programs import language as lang

INF = float("inf")


@op("x[...] -> y[...]", aliases="absolute")
def abs(x):
    """|x|.

    Shapes: y as x.
    Edges: clears the sign bit: |−0| is 0, |−Inf| is Inf.
    """
    return lang.abs(x)


@op("x[...] -> y[...]", aliases="negative")
def neg(x):
    """−x.

    Shapes: y as x.
    Edges: flips the sign bit: −(0) is −0.
    """
    return -x


@op("x[...] -> y[...]", domain=(0.0, INF))
def sqrt(x):
    """√x.

    Shapes: y as x.
    Edges: correctly rounded; x < 0 is NaN, √−0 is −0.
    """
    return lang.sqrt(x)


@op("x[...] -> y[...]", domain=(0.0, INF))
def rsqrt(x):
    """1 / √x.

    Shapes: y as x.
    Edges: x < 0 is NaN, ±0 gives ±Inf, Inf gives 0.
    """
    return lang.rsqrt(x)


@op("x[...] -> y[...]", aliases="reciprocal")
def recip(x):
    """1 / x.

    Shapes: y as x.
    Edges: correctly rounded; ±0 gives ±Inf, ±Inf gives ±0.
    """
    return 1.0 / x


@op("x[...] -> y[...]")
def exp(x):
    """eˣ.

    Shapes: y as x.
    Edges: −Inf gives 0; Inf above 88.7 (float64 709.8); gradual underflow.
    """
    return lang.exp(x)


@op("x[...] -> y[...]")
def exp2(x):
    """2ˣ.

    Shapes: y as x.
    Edges: −Inf gives 0; Inf from 128 (float64 1024); exact at integers.
    """
    return lang.exp2(x)


@op("x[...] -> y[...]")
def expm1(x):
    """eˣ − 1, accurate near 0.

    Shapes: y as x.
    Edges: −Inf gives −1; ±0 is kept.
    """
    return lang.expm1(x)


@op("x[...] -> y[...]", aliases="log", domain=(0.0, INF))
def ln(x):
    """Natural logarithm of x.

    Shapes: y as x.
    Edges: ±0 gives −Inf; x < 0 is NaN.
    """
    return lang.log(x)


@op("x[...] -> y[...]", domain=(-1.0, INF))
def log1p(x):
    """ln(1 + x), accurate near 0.

    Shapes: y as x.
    Edges: −1 gives −Inf; x < −1 is NaN; ±0 is kept.
    """
    return lang.log1p(x)


@op("x[...] -> y[...]", domain=(0.0, INF))
def log2(x):
    """Logarithm of x to base 2.

    Shapes: y as x.
    Edges: ±0 gives −Inf; x < 0 is NaN.
    """
    return lang.log2(x)


@op("x[...] -> y[...]", domain=(0.0, INF))
def log10(x):
    """Logarithm of x to base 10.

    Shapes: y as x.
    Edges: ±0 gives −Inf; x < 0 is NaN.
    """
    return lang.log10(x)


@op("x[...] -> y[...]")
def sin(x):
    """sin x, x in radians.

    Shapes: y as x.
    Edges: ±Inf is NaN; ±0 is kept.
    """
    return lang.sin(x)


@op("x[...] -> y[...]")
def cos(x):
    """cos x, x in radians.

    Shapes: y as x.
    Edges: ±Inf is NaN.
    """
    return lang.cos(x)


@op("x[...] -> y[...]")
def tan(x):
    """sin x / cos x, x in radians.

    Shapes: y as x.
    Edges: ±Inf is NaN; ±0 is kept; no float is a pole, so it is always finite otherwise.
    """
    return lang.tan(x)


@op("x[...] -> y[...]", domain=(-1.0, 1.0))
def asin(x):
    """Angle in [−π/2, π/2] whose sine is x.

    As 2·atan(x / (1 + √((1−x)(1+x)))).
    Shapes: y as x.
    Edges: |x| > 1 is NaN; ±0 is kept.
    """
    return lang.asin(x)


@op("x[...] -> y[...]", domain=(-1.0, 1.0))
def acos(x):
    """Angle in [0, π] whose cosine is x.

    As 2·atan(√((1−x)/(1+x))), relatively accurate towards 1.
    Shapes: y as x.
    Edges: |x| > 1 is NaN; 1 gives 0.
    """
    return lang.acos(x)


@op("x[...] -> y[...]")
def atan(x):
    """Angle in [−π/2, π/2] whose tangent is x.

    Shapes: y as x.
    Edges: ±Inf gives ±π/2; ±0 is kept.
    """
    return lang.atan(x)


@op("x[...] -> y[...]")
def sinh(x):
    """(eˣ − e⁻ˣ) / 2, accurate near 0.

    Shapes: y as x.
    Edges: ±Inf and ±0 are kept; overflows only where the result does.
    """
    return lang.sinh(x)


@op("x[...] -> y[...]")
def cosh(x):
    """(eˣ + e⁻ˣ) / 2.

    Shapes: y as x.
    Edges: ±Inf gives Inf; overflows only where the result does.
    """
    return lang.cosh(x)


@op("x[...] -> y[...]")
def tanh(x):
    """(eˣ − e⁻ˣ) / (eˣ + e⁻ˣ).

    Shapes: y as x.
    Edges: ±Inf gives ±1; ±0 is kept.
    """
    return lang.tanh(x)


@op("x[...] -> y[...]")
def asinh(x):
    """sign(x) · ln(|x| + √(x² + 1)), accurate near 0.

    Shapes: y as x.
    Edges: ±Inf and ±0 are kept.
    """
    return lang.asinh(x)


@op("x[...] -> y[...]", domain=(1.0, INF))
def acosh(x):
    """ln(x + √(x² − 1)), accurate near 1.

    Shapes: y as x.
    Edges: x < 1 is NaN; 1 gives 0; Inf is kept.
    """
    return lang.acosh(x)


@op("x[...] -> y[...]", domain=(-1.0, 1.0))
def atanh(x):
    """ln((1 + x) / (1 − x)) / 2, accurate near 0.

    Shapes: y as x.
    Edges: ±1 gives ±Inf; |x| > 1 is NaN; ±0 is kept.
    """
    return lang.atanh(x)


@op("x[...] -> y[...]")
def floor(x):
    """Largest integer ≤ x.

    Shapes: y as x.
    Edges: exact; ±Inf, NaN and −0 are kept.
    """
    return lang.floor(x)


@op("x[...] -> y[...]")
def ceil(x):
    """Smallest integer ≥ x.

    Shapes: y as x.
    Edges: exact; ±Inf, NaN and −0 are kept.
    """
    return lang.ceil(x)


@op("x[...] -> y[...]", aliases="rint")
def round(x):
    """Nearest integer, half to even.

    Shapes: y as x.
    Edges: exact; 0.5 gives 0 and 1.5 gives 2; ±Inf and NaN are kept.
    """
    return lang.rint(x)


@op("x[...] -> y[...]")
def trunc(x):
    """x without its fraction: the nearest integer towards 0.

    Shapes: y as x.
    Edges: exact; ±Inf and NaN are kept.
    """
    return lang.trunc(x)


@op("x[...] -> y[...]", aliases="frac")
def fract(x):
    """x − trunc(x).

    Shapes: y as x.
    Edges: exact, with the sign of x; an integer gives 0; ±Inf is NaN.
    """
    return x - lang.trunc(x)


@op("x[...] -> y[...]", aliases="sign")
def signum(x):
    """1, −1 or 0: the sign of x.

    Shapes: y as x.
    Edges: ±0 gives ±0; NaN is NaN.
    """
    return lang.where(lang.abs(x) > 0.0, lang.copysign(1.0, x), x)
