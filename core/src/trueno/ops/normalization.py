"""Row ops: each row of the last axis is mapped to a row.  Ops use no epsilon that the caller does not pass.

Sums of squares are in the call's dtype, and rows are not scaled first, which would cost another pass.
"""

from trueno.ops.op import op
from trueno.programs import language as lang


@op("x[...,n] -> y[...,n]", over="n")
def softmax(x):
    """e^(x − max x) / Σ e^(x − max x).

    Shapes: y as x.
    Edges: a row with NaN or +Inf, or all −Inf, is NaN; −Inf beside a number gives 0; an empty row is empty.
    """
    e = lang.exp(x - lang.max(x))
    return e * (1.0 / lang.sum(e))


@op("x[...,n] -> y[...,n]", over="n")
def log_softmax(x):
    """x − max x − ln Σ e^(x − max x).

    Shapes: y as x.
    Edges: a row with NaN or +Inf, or all −Inf, is NaN; −Inf beside a number gives −Inf; an empty row is empty.
    """
    d = x - lang.max(x)
    return d - lang.log(lang.sum(lang.exp(d)))


@op("x[...,n] w[n] b[n] -> y[...,n]", over="n", rules="eps >= 0")
def layer_norm(x, w, b, *, eps: float = 1e-5):
    """(x − mean) / √(variance + eps) · w + b.

    Shapes: y as x; w and b are shared by all rows.
    Edges: a constant row gives b (NaN if eps is 0); Inf or NaN in a row gives NaN; an empty row is empty; the variance
    overflows and underflows as in zscore, the latter if eps is 0.
    Source: Ba, Kiros, Hinton (2016), arXiv 1607.06450.
    """
    d = lang.centred(x)
    return d * lang.rsqrt(lang.mean(d * d) + eps) * w + b


@op("x[...,n] w[n] -> y[...,n]", over="n", rules="eps >= 0")
def rms_norm(x, w, *, eps: float = 1e-6):
    """x / √(Σ x² / n + eps) · w.

    Shapes: y as x; w is shared by all rows.  Per head, as in Qwen3: x[..., heads, d] with w[d].
    Edges: a zero row gives 0 (NaN if eps is 0); Σ x² overflows and underflows as in normalize, the latter if eps is 0;
    an empty row is empty.
    Source: Zhang, Sennrich (2019), arXiv 1910.07467.
    """
    return x * lang.rsqrt(lang.mean(x * x) + eps) * w


@op("x[...,n] residual[...,n] w[n] -> h[...,n] y[...,n]", over="n", rules="eps >= 0")
def residual_rms_norm(x, residual, w, *, eps: float = 1e-6):
    """h = x + residual and y = rms_norm(h, w), in one read of each.

    Shapes: leading axes broadcast; h and y alike; w is shared by all rows.
    Edges: as add and rms_norm.
    """
    h = x + residual
    return h, h * lang.rsqrt(lang.mean(h * h) + eps) * w


@op("x[...,n] -> y[...,n]", over="n")
def normalize(x):
    """x / √(Σ x²).

    Shapes: y as x.
    Edges: a zero row is NaN (0/0); in float32 Σ x² overflows from elements of 1e19, which gives 0; a row whose elements
    are all below 1e-19 loses digits, and below 2e-23, where Σ x² is 0, gives ±Inf (NaN for 0).  In float64 that is from
    1e154, below 1e-154, below 1e-162.  An empty row is empty.
    """
    return x * lang.rsqrt(lang.sum(x * x))


@op("x[...,n] -> y[...,n]", over="n")
def zscore(x):
    """(x − mean) / √(Σ (x − mean)² / n), population.

    Shapes: y as x.
    Edges: a constant row, or one of one element, is NaN (0/0); Inf or NaN in a row gives NaN; an empty row is empty;
    Σ (x − mean)² overflows and underflows as Σ x² does in normalize.
    """
    d = lang.centred(x)
    return d * lang.rsqrt(lang.mean(d * d))


@op("x[...,n] -> y[...,n]", over="n")
def minmax_normalize(x):
    """(x − min x) / (max x − min x).

    A quotient, not a product with the reciprocal: the ends are exactly 0 and 1.
    Shapes: y as x.
    Edges: a constant row is NaN (0/0); NaN in a row gives NaN; an empty row is empty.
    """
    low = lang.min(x)
    return (x - low) / (lang.max(x) - low)
