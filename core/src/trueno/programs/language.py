"""The functions in which an op's body is written.

Element functions and folds make one node each.  Everything below the line is plain Python that composes them:
printers never see it, and every backend has it at once.  A backend states the accuracy of each node kind;
the accuracy of a composition follows from the program (`trueno.judge.bound`).
"""

from typing import Any

from trueno.programs.program import NUMBERS, Node
from trueno.programs.trace import Symbol

LN2 = 0.6931471805599453


def _of(*values: Any) -> Symbol:
    for value in values:
        if isinstance(value, Symbol):
            return value
    raise TypeError("an op's body needs at least one symbol in every function")


def _element(kind: str, *values: Any) -> Symbol:
    some = _of(*values)
    return Symbol(some.builder, some.builder.element(kind, *(some.lift(v) for v in values)))


def exp(x: Any) -> Symbol:
    return _element("exp", x)


def exp2(x: Any) -> Symbol:
    return _element("exp2", x)


def expm1(x: Any) -> Symbol:
    return _element("expm1", x)


def log(x: Any) -> Symbol:
    return _element("log", x)


def log2(x: Any) -> Symbol:
    return _element("log2", x)


def log10(x: Any) -> Symbol:
    return _element("log10", x)


def log1p(x: Any) -> Symbol:
    return _element("log1p", x)


def log1p_unit(u: Any) -> Symbol:
    """log(1 + u) for 0 ≤ u ≤ 1 only: half the work of `log1p`."""
    return _element("log1p_unit", u)


def tanh(x: Any) -> Symbol:
    return _element("tanh", x)


def erf(x: Any) -> Symbol:
    return _element("erf", x)


def sin(x: Any) -> Symbol:
    return _element("sin", x)


def cos(x: Any) -> Symbol:
    return _element("cos", x)


def atan(x: Any) -> Symbol:
    return _element("atan", x)


def sqrt(x: Any) -> Symbol:
    return _element("sqrt", x)


def rsqrt(x: Any) -> Symbol:
    return _element("rsqrt", x)


def floor(x: Any) -> Symbol:
    return _element("floor", x)


def ceil(x: Any) -> Symbol:
    return _element("ceil", x)


def trunc(x: Any) -> Symbol:
    return _element("trunc", x)


def rint(x: Any) -> Symbol:
    """Nearest integer, half to even."""
    return _element("rint", x)


def abs(x: Any) -> Symbol:
    return _element("abs", x)


def isnan(x: Any) -> Symbol:
    return _element("isnan", x)


def isinf(x: Any) -> Symbol:
    return _element("isinf", x)


def pow(x: Any, y: Any) -> Symbol:
    return _element("pow", x, y)


def copysign(x: Any, sign: Any) -> Symbol:
    return _element("copysign", x, sign)


def maximum(x: Any, y: Any) -> Symbol:
    """The larger; NaN if either is."""
    return _element("maximum", x, y)


def minimum(x: Any, y: Any) -> Symbol:
    """The smaller; NaN if either is."""
    return _element("minimum", x, y)


def fma(x: Any, y: Any, z: Any) -> Symbol:
    return _element("fma", x, y, z)


def where(condition: Any, x: Any, y: Any) -> Symbol:
    """x where the condition holds, else y; both are computed."""
    return _element("where", condition, x, y)


def sum(x: Any) -> Symbol:
    return _of(x).fold("sum")


def fsum(x: Any) -> Symbol:
    """Sum with a compensated or wider accumulator."""
    return _of(x).fold("fsum")


def prod(x: Any) -> Symbol:
    return _of(x).fold("prod")


def max(x: Any) -> Symbol:
    return _of(x).fold("max")


def min(x: Any) -> Symbol:
    return _of(x).fold("min")


def any(x: Any) -> Symbol:
    return _of(x).fold("any")


def all(x: Any) -> Symbol:
    return _of(x).fold("all")


def argmax(x: Any) -> Symbol:
    return _of(x).fold("argmax")


def argmin(x: Any) -> Symbol:
    return _of(x).fold("argmin")


def count(x: Any) -> Symbol:
    """The row length n, as a float."""
    builder = _of(x).builder
    return Symbol(builder, builder.add(Node("count", (), None, "u", "T")))


# ---- compositions: printers never see these -------------------------------------------------------


def mean(x: Any) -> Symbol:
    return sum(x) / count(x)


def centred(x: Any) -> Symbol:
    """x − mean, the mean kept within [min, max], where rounding may push it out: a constant row gives exact zeros.

    A NaN in the row makes the mean NaN, and that stays NaN whatever it is kept within.
    """
    low, high = _of(x).fold("min", NUMBERS), _of(x).fold("max", NUMBERS)
    return _of(x) - minimum(maximum(mean(x), low), high)


def relu(x: Any) -> Symbol:
    return maximum(x, 0.0)


def sigmoid(x: Any) -> Symbol:
    """w / (1 + w), w = eˣ: keeps the digits of the left tail, where 1 / (1 + e⁻ˣ) overflows; 1 from x = 50 on."""
    w = exp(minimum(x, 50.0))
    return w / (1.0 + w)


def softplus(x: Any) -> Symbol:
    """log(1 + eˣ) = max(x, 0) + log1p(e^−|x|): no overflow, and u in [0, 1]."""
    return maximum(x, 0.0) + log1p_unit(exp(-abs(x)))


def tan(x: Any) -> Symbol:
    return sin(x) / cos(x)


def asin(x: Any) -> Symbol:
    """2·atan(x / (1 + √((1−x)(1+x)))): 1−x is exact near 1 (Sterbenz), so no cancellation."""
    return 2.0 * atan(x / (1.0 + sqrt((1.0 - x) * (1.0 + x))))


def acos(x: Any) -> Symbol:
    """2·atan(√((1−x)/(1+x))): relatively accurate at x → 1, and π at −1."""
    return 2.0 * atan(sqrt((1.0 - x) / (1.0 + x)))


def sinh(x: Any) -> Symbol:
    """With q = e^(a/2)−1 and h = q(q+2)/2, a = |x|: h + h/(2h+1).  h overflows only where sinh does."""
    q = expm1(0.5 * abs(x))
    h = (0.5 * q) * (q + 2.0)
    return copysign(h + h / (2.0 * minimum(h, 1e30) + 1.0), x)


def cosh(x: Any) -> Symbol:
    """(eᵃ + e⁻ᵃ)/2 from e^(a/2), so that it overflows only where cosh does."""
    half = exp(0.5 * abs(x))
    return (0.5 * half) * half + 0.5 / (half * half)


def asinh(x: Any) -> Symbol:
    """log1p(a + a²/(1+√(1+a²))), a = |x|; where a² would lose or overflow, log1p(a−1) + log 2."""
    a = abs(x)
    big = a > 1e9
    b = minimum(a, 1e9)
    near = b + b * b / (1.0 + sqrt(1.0 + b * b))
    return copysign(log1p(where(big, a - 1.0, near)) + where(big, LN2, 0.0), x)


def acosh(x: Any) -> Symbol:
    """log1p(t + √t·√(t+2)), t = x−1; for large x log1p(t) + log 2.  √t makes x < 1 NaN, √(t(t+2)) would not."""
    t = x - 1.0
    big = x > 1e9
    return log1p(where(big, t, t + sqrt(t) * sqrt(t + 2.0))) + where(big, LN2, 0.0)


def atanh(x: Any) -> Symbol:
    """log1p(2a/(1−a))/2, a = |x|."""
    a = abs(x)
    return copysign(0.5 * log1p(2.0 * a / (1.0 - a)), x)
