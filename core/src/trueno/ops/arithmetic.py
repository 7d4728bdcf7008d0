"""Binary and scalar arithmetic.  One read of each operand and one write: memory-bound everywhere."""

from trueno.ops.op import op
from trueno.programs import language as lang


@op("x[...] y[...] -> z[...]")
def add(x, y):
    """x + y.

    Shapes: operands broadcast.
    Edges: IEEE 754; Inf − Inf is NaN.
    """
    return x + y


@op("x[...] residual[...] -> y[...]")
def residual_add(x, residual):
    """x + residual, the sum around a layer: `add` under the name that a model's code uses.

    Shapes: operands broadcast.
    Edges: as add.
    """
    return x + residual


@op("x[...] y[...] -> z[...]", aliases="subtract")
def sub(x, y):
    """x − y.

    Shapes: operands broadcast.
    Edges: IEEE 754; Inf − Inf is NaN.
    """
    return x - y


@op("x[...] y[...] -> z[...]", aliases="multiply")
def mul(x, y):
    """x · y.

    Shapes: operands broadcast.
    Edges: IEEE 754; 0 · Inf is NaN.
    """
    return x * y


@op("x[...] y[...] -> z[...]", aliases="divide")
def div(x, y):
    """x / y.

    Shapes: operands broadcast.
    Edges: IEEE 754, no error: x / 0 is ±Inf, 0 / 0 and Inf / Inf are NaN.
    """
    return x / y


@op("x[...] y[...] -> z[...]")
def minimum(x, y):
    """min(x, y).

    Shapes: operands broadcast.
    Edges: NaN if either is; which zero of +0 and −0 is unspecified.
    """
    return lang.minimum(x, y)


@op("x[...] y[...] -> z[...]")
def maximum(x, y):
    """max(x, y).

    Shapes: operands broadcast.
    Edges: NaN if either is; which zero of +0 and −0 is unspecified.
    """
    return lang.maximum(x, y)


@op("x[...] y[...] -> z[...]")
def copysign(x, y):
    """|x| with the sign of y.

    Shapes: operands broadcast.
    Edges: the sign bit of y decides, also for zeros and NaN; a NaN x stays NaN.
    """
    return lang.copysign(x, y)


@op("x[...] y[...] -> z[...]", aliases="power", domain=(0.0, float("inf")))
def pow(x, y):
    """xʸ.

    Shapes: operands broadcast.
    Edges: as C's pow: a negative x with a fractional y is NaN; x⁰ and 1ʸ are 1, also for NaN; 0⁻¹ is Inf.
    """
    return lang.pow(x, y)


@op("x[...] y[...] z[...] -> r[...]")
def fma(x, y, z):
    """x · y + z, the product not rounded.

    Shapes: operands broadcast.
    Edges: as IEEE 754's fusedMultiplyAdd, rounded once; wgpu may round the product too, as WGSL allows.
    """
    return lang.fma(x, y, z)


@op("x[...] y[...] -> z[...]")
def lerp(x, y, t: float):
    """x + t · (y − x).

    Computed from the nearer end, x + t(y − x) or y + (t − 1)(y − x), so that t = 0 gives x and t = 1 gives y exactly.
    Shapes: operands broadcast; t is one number, any (outside 0 … 1 it extrapolates).
    Edges: where y − x overflows the result is ±Inf, or NaN if t is 0 or 1; NaN if x and y are the same Inf.
    """
    near = t < 0.5
    return lang.where(near, x, y) + lang.where(near, t, t - 1.0) * (y - x)


@op("x[...] -> y[...]")
def scale(x, factor: float):
    """factor · x.

    Shapes: y as x.
    Edges: IEEE 754; 0 · Inf is NaN.
    """
    return x * factor


@op("x[...] -> y[...]", rules="min <= max", aliases="clip")
def clamp(x, min: float, max: float):
    """min(max(x, min), max).

    Shapes: y as x.
    Edges: NaN stays NaN; min > max is a ParameterError, and so is a NaN limit.
    """
    return lang.minimum(lang.maximum(x, min), max)
