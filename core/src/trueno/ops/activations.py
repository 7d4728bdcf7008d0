"""Activations.

Where a formula multiplies x by a factor that goes to 0, x = −Inf is −Inf · 0 = NaN, as in PyTorch: gelu,
silu, mish, hardswish.  Every finite x, however large, gives the limit.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from trueno.ops.op import op
from trueno.programs import language as lang

SQRT_HALF = 0.7071067811865476
SQRT_8_OVER_PI = 1.5957691216057308
SELU_ALPHA = 1.6732632423543772
SELU_SCALE = 1.0507009873554805


@op("x[...] -> y[...]")
def relu(x):
    """max(x, 0).

    Shapes: y as x.
    Edges: NaN stays NaN.
    """
    return lang.relu(x)


@op("x[...] -> y[...]")
def leaky_relu(x, *, slope: float = 0.01):
    """x where x ≥ 0, else slope · x.

    Shapes: y as x.
    Edges: NaN stays NaN.
    Source: Maas, Hannun, Ng (2013).
    """
    return lang.where(x < 0.0, slope * x, x)


@op("x[...] -> y[...]")
def elu(x, *, alpha: float = 1.0):
    """x where x > 0, else alpha · (eˣ − 1).

    Shapes: y as x.
    Edges: −Inf gives −alpha; NaN stays NaN.
    Source: Clevert, Unterthiner, Hochreiter (2015), arXiv 1511.07289.
    """
    return lang.where(x > 0.0, x, alpha * lang.expm1(x))


@op("x[...] -> y[...]")
def selu(x):
    """1.0507… · (x where x > 0, else 1.6732… · (eˣ − 1)).

    Shapes: y as x.
    Edges: −Inf gives −1.7580993408473766; NaN stays NaN.
    Source: Klambauer and others (2017), arXiv 1706.02515.
    """
    return lang.where(x > 0.0, SELU_SCALE * x, (SELU_SCALE * SELU_ALPHA) * lang.expm1(x))


@op("x[...] -> y[...]", choices={"approximate": ("tanh", "none")})
def gelu(x, *, approximate: str = "tanh"):
    """x · Φ(x), Φ the normal distribution; by default x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))).

    The tanh form is the default here, and approximate="none" is PyTorch's.  It is computed as x / (1 + e^−2u), which is
    the same and does not cancel for x < 0.  Its relative error is about |2u| ulp; float32 gives −0 below −10.06, where
    gelu is under 2e-38.  The exact form is x/2 · (1 + erf(x/√2)), accurate to rounding of x, not relatively below −3.
    Shapes: y as x.
    Edges: −Inf is NaN; NaN stays NaN.
    Source: Hendrycks, Gimpel (2016), arXiv 1606.08415.
    """
    if approximate == "none":
        return 0.5 * x * (1.0 + lang.erf(x * SQRT_HALF))
    twice_u = SQRT_8_OVER_PI * (x + 0.044715 * (x * x * x))
    return x / (1.0 + lang.exp(-twice_u))


@op("x[...] -> y[...]")
def sigmoid(x):
    """1 / (1 + e⁻ˣ).

    Shapes: y as x.
    Edges: −Inf gives 0, Inf gives 1; relatively accurate down to where eˣ underflows.
    """
    return lang.sigmoid(x)


@op("x[...] -> y[...]", aliases="swish")
def silu(x):
    """x / (1 + e⁻ˣ).

    Shapes: y as x.
    Edges: −Inf is NaN, a large negative x gives −0; NaN stays NaN.
    Source: Elfwing, Uchibe, Doya (2017), arXiv 1702.03118.
    """
    return x * lang.sigmoid(x)


@op("x[...] -> y[...]")
def mish(x):
    """x · tanh(softplus(x)).

    With w = eˣ and n = w(w + 2), tanh(ln(1 + w)) is n / (n + 2): positive terms only, so every digit of the
    tail x·eˣ is there, and one exp instead of exp, log and tanh.  From x = 30 on the quotient is 1.
    Shapes: y as x.
    Edges: −Inf is NaN, a large negative x gives −0; NaN stays NaN.
    Source: Misra (2019), arXiv 1908.08681.
    """
    w = lang.exp(lang.minimum(x, 30.0))
    n = w * (w + 2.0)
    return x * (n / (n + 2.0))


@op("x[...] -> y[...]")
def hardswish(x):
    """x · clip(x + 3, 0, 6) / 6.

    Shapes: y as x.
    Edges: exactly x from 3 on; −Inf is NaN; NaN stays NaN.
    Source: Howard and others (2019), arXiv 1905.02244.
    """
    return x * (lang.minimum(lang.maximum(x + 3.0, 0.0), 6.0) * (1.0 / 6.0))


@op("x[...] -> y[...]")
def softplus(x):
    """ln(1 + eˣ).

    As max(x, 0) + log1p(e^−|x|): nothing overflows.
    Shapes: y as x.
    Edges: −Inf gives 0, Inf gives Inf; NaN stays NaN.
    """
    return lang.softplus(x)


@op("x[...] -> y[...]", aliases="logsigmoid")
def log_sigmoid(x):
    """ln(1 / (1 + e⁻ˣ)).

    As min(x, −0) − log1p(e^−|x|): nothing overflows, and the left tail is x to the last digit.
    Shapes: y as x.
    Edges: −Inf gives −Inf, Inf gives −0; NaN stays NaN.
    """
    return lang.minimum(x, -0.0) - lang.log1p_unit(lang.exp(-lang.abs(x)))


@op("gate[...] up[...] -> y[...]")
def swiglu(gate, up):
    """silu(gate) · up, the gated unit of Llama, Qwen and Mistral.

    Shapes: operands broadcast.
    Edges: as silu and mul: gate = −Inf is NaN; NaN in either gives NaN.
    Source: Shazeer (2020), arXiv 2002.05202.
    """
    return silu.body(gate) * up


@op("gate[...] up[...] -> y[...]", choices={"approximate": ("tanh", "none")})
def geglu(gate, up, *, approximate: str = "tanh"):
    """gelu(gate) · up, the gated unit of Gemma and T5.

    approximate: as in gelu.
    Shapes: operands broadcast.
    Edges: as gelu and mul: gate = −Inf is NaN; NaN in either gives NaN.
    Source: Shazeer (2020), arXiv 2002.05202.
    """
    return gelu.body(gate, approximate=approximate) * up


APPLIED: dict[str, Callable[[Any], Any]] = {
    "relu": relu.body,
    "gelu": gelu.body,
    "gelu_erf": partial(gelu.body, approximate="none"),
    "silu": silu.body,
    "sigmoid": sigmoid.body,
    "tanh": lang.tanh,
    "none": lambda x: x,
}
"""What `bias_activation` may apply."""


@op("x[...,n] bias[n] -> y[...,n]", over="n", choices={"activation": tuple(APPLIED)})
def bias_activation(x, bias, *, activation: str = "relu"):
    """activation(x + bias), what follows the product of a linear layer.

    activation: relu, gelu (the tanh form), gelu_erf (the exact one), silu, sigmoid, tanh or none.
    Shapes: y as x; bias is shared by all rows.
    Edges: as add and the activation; an empty row is empty.
    """
    return APPLIED[activation](x + bias)
