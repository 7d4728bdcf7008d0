"""Reductions: one value per row, over the last axis; `axis=None` reduces all axes, the default of NumPy and PyTorch.

Row values are in the call's dtype: in float32 a sum of squares overflows to Inf from elements of 1e19, loses digits
where all are below 1e-19, and is 0 where all are below 2e-23.
"""

from trueno.ops.op import op
from trueno.programs import language as lang


@op("x[...,n] y[...,n] -> r[...]", over="n")
def dot(x, y):
    """Σ x · y.

    Shapes: leading axes broadcast; one value a row.
    Edges: an empty row gives 0; NaN and Inf − Inf as IEEE 754.
    """
    return lang.sum(x * y)


@op("x[...,n] -> r[...]", over="n")
def sum(x):
    """Σ x.

    Shapes: one value a row.
    Edges: an empty row gives 0; NaN and Inf − Inf as IEEE 754.
    """
    return lang.sum(x)


@op("x[...,n] -> r[...]", over="n")
def sum_kahan(x):
    """Σ x with a compensated or wider accumulator.

    The error does not grow with n: it is that of rounding the result, and nothing else visible in float32.
    Shapes: one value a row.
    Edges: an empty row gives 0; NaN and Inf − Inf as IEEE 754.
    Source: Kahan (1965), Communications of the ACM 8.
    """
    return lang.fsum(x)


@op("x[...,n] -> r[...]", over="n")
def sum_of_squares(x):
    """Σ x².

    Shapes: one value a row.
    Edges: an empty row gives 0; NaN stays NaN.
    """
    return lang.sum(x * x)


@op("x[...,n] -> r[...]", over="n")
def mean(x):
    """Σ x / n.

    Shapes: one value a row.
    Edges: an empty row is a ShapeError; NaN stays NaN; Inf where Σ x overflows.
    """
    return lang.mean(x)


@op("x[...,n] -> r[...]", over="n")
def min(x):
    """Smallest element.

    Shapes: one value a row.
    Edges: NaN if any is; which zero of +0 and −0 is unspecified; an empty row is a ShapeError.
    """
    return lang.min(x)


@op("x[...,n] -> r[...]", over="n")
def max(x):
    """Largest element.

    Shapes: one value a row.
    Edges: NaN if any is; which zero of +0 and −0 is unspecified; an empty row is a ShapeError.
    """
    return lang.max(x)


@op("x[...,n] -> k[...]:index", over="n")
def argmin(x):
    """Position of the smallest element, int64.

    Shapes: one value a row.
    Edges: the first among equals; the first NaN if any is; an empty row is a ShapeError.
    """
    return lang.argmin(x)


@op("x[...,n] -> k[...]:index", over="n")
def argmax(x):
    """Position of the largest element, int64.

    Shapes: one value a row.
    Edges: the first among equals; the first NaN if any is; an empty row is a ShapeError.
    """
    return lang.argmax(x)


@op("x[...,n] -> r[...]", over="n")
def norm_l1(x):
    """Σ |x|.

    Shapes: one value a row.
    Edges: an empty row gives 0; NaN stays NaN.
    """
    return lang.sum(lang.abs(x))


@op("x[...,n] -> r[...]", over="n")
def norm_l2(x):
    """√(Σ x²), the Euclidean length.

    Shapes: one value a row.
    Edges: an empty row gives 0; NaN stays NaN; Inf where Σ x² overflows, 0 where it underflows.
    """
    return lang.sqrt(lang.sum(x * x))


@op("x[...,n] -> r[...]", over="n", empty=0.0)
def norm_linf(x):
    """max |x|.

    Shapes: one value a row.
    Edges: an empty row gives 0; NaN if any is.
    """
    return lang.max(lang.abs(x))


@op("x[...,n] -> r[...]", over="n", aliases="var")
def variance(x):
    """Σ (x − mean)² / n, population.

    Two passes, so nothing cancels and the result is never negative.
    Shapes: one value a row.
    Edges: a constant row gives 0; an empty row is a ShapeError; Inf or NaN in a row gives NaN.
    """
    d = lang.centred(x)
    return lang.mean(d * d)


@op("x[...,n] -> r[...]", over="n", aliases="std")
def stddev(x):
    """√(Σ (x − mean)² / n), population.

    Shapes: one value a row.
    Edges: a constant row gives 0; an empty row is a ShapeError; Inf or NaN in a row gives NaN.
    """
    d = lang.centred(x)
    return lang.sqrt(lang.mean(d * d))


@op("x[...,n] y[...,n] -> r[...]", over="n")
def covariance(x, y):
    """Σ (x − mean x)(y − mean y) / n, population.

    Two passes, so nothing cancels.
    Shapes: leading axes broadcast; one value a row.
    Edges: 0 with a constant row; an empty row is a ShapeError; Inf or NaN in a row gives NaN.
    """
    return lang.mean(lang.centred(x) * lang.centred(y))


@op("x[...,n] y[...,n] -> r[...]", over="n")
def correlation(x, y):
    """Σ dx·dy / (√Σ dx² · √Σ dy²), dx = x − mean x, dy = y − mean y; Pearson's, within [−1, 1].

    Shapes: leading axes broadcast; one value a row.
    Edges: a constant row, or one of one element, is NaN (0/0); so is one whose deviations are all below 2e-23, and with
    deviations from 1e19 on it is 0 or NaN (in float64 1e-162 and 1e154), since squares vanish or overflow; an empty row
    is a ShapeError.
    """
    dx, dy = lang.centred(x), lang.centred(y)
    r = lang.sum(dx * dy) / (lang.sqrt(lang.sum(dx * dx)) * lang.sqrt(lang.sum(dy * dy)))
    return lang.minimum(lang.maximum(r, -1.0), 1.0)
