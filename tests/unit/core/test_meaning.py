"""Every op means what its name says elsewhere: its body in float64 against code that shares nothing with it.

The judges are mpmath (40 digits), PyTorch, SciPy and Python's exact fractions; NumPy, which evaluates the
bodies, judges nothing it computed itself.  The seed is in the test's name; one of them is new every day.

Tolerance: a body is a chain of operations that each round by at most 1 ulp, so a function of few operations
without cancellation stays within a few ulp of the true value (`ULP`, relative).  Sums are compared relative
to Σ|terms|, the scale at which they round.
"""

import datetime
import math
import statistics
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import gguf
import lz4.block
import mpmath
import numpy as np
import pytest
import scipy.signal
import scipy.special
import scipy.stats
import torch
import torch.nn.functional as F
from trueno.errors import ParameterError, ShapeError
from trueno.formats import FORMATS
from trueno.formats.samples import random_rows
from trueno.ops import TABLE
from trueno.programs.evaluate import evaluate

EPS = np.finfo(np.float64).eps
SEEDS = [1, 2, datetime.date.today().toordinal()]
INF, NAN = math.inf, math.nan
CASES: dict[str, Callable[[np.random.Generator], None]] = {}


def meaning(name: str, *operands, **given):
    """What the op's body gives in float64, shaped as the public function's results."""
    op = TABLE[name]
    arrays = [np.asarray(x) for x in operands]
    params = [given.pop(p.name, p.default) for p in op.params if p.symbolic]
    if op.structured:
        return op.body(*arrays, **dict(zip(op.symbolic, params, strict=True)), **given)
    results = evaluate(op.program(**given), arrays, params, np.float64)
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    shapes = [shape if op.over is None or op.over in o.dims else shape[:-1] for o in op.signature.outputs]
    results = tuple(r.reshape(s) for r, s in zip(results, shapes, strict=True))
    return results if len(results) > 1 else results[0]


def near(got, want, ulp: float, scale=None):
    """|got − want| ≤ ulp·ε·scale (the true value's size, unless given)."""
    got, want = np.asarray(got), np.asarray(want, np.float64)
    assert got.shape == want.shape
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    with np.errstate(invalid="ignore"):
        bound = ulp * EPS * np.abs(want if scale is None else scale) + 5e-324 * ulp
        wrong = ~((got == want) | (np.abs(got - want) <= bound) | np.isnan(want))
    if wrong.any():
        i = np.unravel_index(np.argmax(wrong), wrong.shape)
        raise AssertionError(f"at {i}: {got[i]!r}, not {want[i]!r}; allowed is {np.asarray(bound)[i]:.3g}")


def case(name: str):
    def register(check):
        CASES[name] = check
        return check

    return register


def numbers(rng, n: int, low: float = -INF, high: float = INF) -> np.ndarray:
    """n numbers of (low, high): some ordinary, some of every size down to 1e-8."""
    if math.isfinite(low) and math.isfinite(high):
        near_end = np.where(rng.random(n) < 0.5, low, high) * (1 - 10 ** rng.uniform(-8, -1, n))
        return np.where(rng.random(n) < 0.6, rng.uniform(low, high, n), near_end)
    size = np.where(rng.random(n) < 0.5, np.abs(rng.normal(0, 3, n)), 10 ** rng.uniform(-8, 2, n))
    if math.isfinite(low):
        return low + size
    return size * rng.choice([-1.0, 1.0], n)


def matrix(rng, rows: int = 5, n: int = 37) -> np.ndarray:
    """Rows of different sizes, with a mean far from 0."""
    return rng.normal(3, 1, (rows, n)) * 10.0 ** rng.integers(-6, 7, (rows, 1))


def mp(f, *args, digits: int = 40) -> np.ndarray:
    """f in many digits, element by element."""
    with mpmath.workdps(digits):
        return np.array([float(f(*map(mpmath.mpf, map(float, row)))) for row in zip(*args, strict=True)])


def by_torch(f, *args, **kwargs):
    result = f(*(torch.from_numpy(np.ascontiguousarray(a)) for a in args), **kwargs)
    return result.numpy()


# ---- arithmetic -----------------------------------------------------------------------------------


def _binary(name, reference, ulp=0):
    @case(name)
    def check(rng):
        x, y = numbers(rng, 400), numbers(rng, 400)
        x[:4], y[:4] = [0.0, -0.0, 1.0, -3.0], [-2.0, 5.0, 1.0, -3.0]
        near(meaning(name, x, y), by_torch(reference, x, y), ulp)


_binary("add", torch.add)
_binary("residual_add", torch.add)
_binary("sub", torch.sub)
_binary("mul", torch.mul)
_binary("div", torch.div)
_binary("minimum", torch.minimum)
_binary("maximum", torch.maximum)
_binary("copysign", torch.copysign)


@case("pow")
def _(rng):
    x, y = numbers(rng, 200, 0.0), rng.normal(0, 4, 200)
    near(meaning("pow", x, y), mp(mpmath.power, x, y), 4)
    assert meaning("pow", [-2.0], [3.0]) == -8
    assert np.isnan(meaning("pow", [-2.0], [0.5]))
    np.testing.assert_array_equal(meaning("pow", [NAN, 0.0, INF, 1.0], [0.0, -1.0, -1.0, NAN]), [1, INF, 0, 1])


@case("fma")
def _(rng):
    x, y, z = (numbers(rng, 200) for _ in range(3))
    exact = [float(Fraction(a) * Fraction(b) + Fraction(c)) for a, b, c in zip(x, y, z, strict=True)]
    np.testing.assert_array_equal(meaning("fma", x, y, z), exact)  # rounded once; harder ones: test_fused.py
    a = np.float32(1 + 2.0**-12)
    op = TABLE["fma"]
    single = evaluate(op.program(), [np.array([v], np.float32) for v in (a, a, -1.0)], [], np.float32)[0]
    assert single[0, 0] == np.float32(float(a) ** 2 - 1), "the product of float32 numbers is not rounded"


@case("lerp")
def _(rng):
    x, y = numbers(rng, 200), numbers(rng, 200)
    for t in (0.0, 0.3, 0.5, 0.8, 1.0, -0.5, 2.5):
        want = [float(Fraction(a) + Fraction(t) * (Fraction(b) - Fraction(a))) for a, b in zip(x, y, strict=True)]
        near(meaning("lerp", x, y, t=t), want, 4 * (1 + abs(t)), np.abs(x) + np.abs(y))
        near(meaning("lerp", x, y, t=t), by_torch(torch.lerp, x, y, weight=t), 4 * (1 + abs(t)), np.abs(x) + np.abs(y))
    np.testing.assert_array_equal(meaning("lerp", x, y, t=0.0), x)
    np.testing.assert_array_equal(meaning("lerp", x, y, t=1.0), y)


@case("scale")
def _(rng):
    x = numbers(rng, 200)
    near(meaning("scale", x, factor=-2.7), [float(Fraction(v) * Fraction(-2.7)) for v in x], 0)


@case("clamp")
def _(rng):
    x = numbers(rng, 200)
    near(meaning("clamp", x, min=-0.5, max=1.5), by_torch(torch.clamp, x, min=-0.5, max=1.5), 0)
    np.testing.assert_array_equal(meaning("clamp", [NAN, INF, -INF], min=-1.0, max=2.0), [NAN, 2, -1])


# ---- mathematics ----------------------------------------------------------------------------------

SPECIAL = [NAN, INF, -INF, 0.0, -0.0]
"""Every function at these: [NaN, +Inf, −Inf, +0, −0]."""


def _function(name, reference, special, *, ulp=4, low=None, high=None, extra=None):
    @case(name)
    def check(rng):
        domain = TABLE[name].domain or (-INF, INF)
        x = numbers(rng, 300, domain[0] if low is None else low, domain[1] if high is None else high)
        if extra is not None:
            x = np.concatenate([x, np.asarray(extra, np.float64)])
        near(meaning(name, x), mp(reference, x), ulp)
        got = meaning(name, SPECIAL)
        np.testing.assert_array_equal(got, special)
        same = np.signbit(got[3:]) == np.signbit(special[3:])
        assert np.all(same | (np.array(special[3:]) != 0)), "sign of zero"


_function("abs", abs, [NAN, INF, INF, 0.0, 0.0], ulp=0)
_function("neg", lambda x: -x, [NAN, -INF, INF, -0.0, 0.0], ulp=0)
_function("sqrt", mpmath.sqrt, [NAN, INF, NAN, 0.0, -0.0], ulp=0.51)
_function("rsqrt", lambda x: 1 / mpmath.sqrt(x), [NAN, 0.0, NAN, INF, -INF], ulp=2)
_function("recip", lambda x: 1 / x, [NAN, 0.0, -0.0, INF, -INF], ulp=0.51)
_function("exp", mpmath.exp, [NAN, INF, 0.0, 1.0, 1.0], extra=[709.0, -709.0, -740.0])
_function("exp2", lambda x: mpmath.power(2, x), [NAN, INF, 0.0, 1.0, 1.0], extra=[1023.0, -1074.0])
_function("expm1", mpmath.expm1, [NAN, INF, -1.0, 0.0, -0.0], extra=[1e-300, -1e-12, 700.0])
_function("ln", mpmath.log, [NAN, INF, NAN, -INF, -INF], extra=[1e-310, 1e308, 1 + 1e-9])
_function("log1p", mpmath.log1p, [NAN, INF, NAN, 0.0, -0.0], extra=[1e-300, -1 + 1e-12, 1e300])
_function("log2", lambda x: mpmath.log(x, 2), [NAN, INF, NAN, -INF, -INF], extra=[8.0, 1e-310])
_function("log10", mpmath.log10, [NAN, INF, NAN, -INF, -INF], extra=[1000.0, 1e-310])
_function("sin", mpmath.sin, [NAN, NAN, NAN, 0.0, -0.0], extra=[math.pi, 1e15, -1e5])
_function("cos", mpmath.cos, [NAN, NAN, NAN, 1.0, 1.0], extra=[math.pi / 2, 1e15, -1e5])
_function("tan", mpmath.tan, [NAN, NAN, NAN, 0.0, -0.0], extra=[math.pi / 2, math.pi, 1e5])
_function("asin", mpmath.asin, [NAN, NAN, NAN, 0.0, -0.0], ulp=6, extra=[1.0, -1.0, 1e-300])
_function("acos", mpmath.acos, [NAN, NAN, NAN, math.pi / 2, math.pi / 2], ulp=6, extra=[1.0, -1.0, 1 - 2**-53])
_function("atan", mpmath.atan, [NAN, math.pi / 2, -math.pi / 2, 0.0, -0.0], extra=[1e300, 1e-300])
_function("sinh", mpmath.sinh, [NAN, INF, -INF, 0.0, -0.0], ulp=6, extra=[710.4, -710.4, 39.9, 40.1, 1e-300])
_function("cosh", mpmath.cosh, [NAN, INF, INF, 1.0, 1.0], ulp=6, extra=[710.4, -710.4])
_function("tanh", mpmath.tanh, [NAN, 1.0, -1.0, 0.0, -0.0], extra=[1e-300, 19.0, 30.0])
_function("asinh", mpmath.asinh, [NAN, INF, -INF, 0.0, -0.0], ulp=6, extra=[1e308, 1e9, -1.01e9, 1e-300])
_function("acosh", mpmath.acosh, [NAN, INF, NAN, NAN, NAN], ulp=6, extra=[1.0, 1 + 1e-12, 1e9, 1.01e9, 1e308])
_function("atanh", mpmath.atanh, [NAN, NAN, NAN, 0.0, -0.0], ulp=6, extra=[1e-300, 1 - 2**-53])
_function("floor", mpmath.floor, [NAN, INF, -INF, 0.0, -0.0], ulp=0, extra=[2.0, -2.0, 1e300])
_function("ceil", mpmath.ceil, [NAN, INF, -INF, 0.0, -0.0], ulp=0, extra=[2.0, -2.0, 1e300])
_function("round", mpmath.nint, [NAN, INF, -INF, 0.0, -0.0], ulp=0, extra=[0.5, 1.5, 2.5, -0.5, -1.5, 2**52 + 1.0])
_function("trunc", lambda x: math.trunc(float(x)), [NAN, INF, -INF, 0.0, -0.0], ulp=0, extra=[2.5, -2.5, 1e300])
_function("fract", lambda x: math.modf(float(x))[0], [NAN, NAN, NAN, 0.0, 0.0], ulp=0, extra=[2.5, -2.5, 1e300])
_function("signum", mpmath.sign, [NAN, 1.0, -1.0, 0.0, -0.0], ulp=0, extra=[5e-324, -1e308])


@pytest.mark.parametrize(
    ("name", "x", "want"),
    [
        ("acosh", [0.5, -1.0, -5.0, -1e10, -1e300], [NAN] * 5),
        ("atanh", [1.0, -1.0, 1.5, -1e10], [INF, -INF, NAN, NAN]),
        ("asin", [1.5, -1e300], [NAN, NAN]),
        ("acos", [1.5, -1.5, 1.0, -1.0], [NAN, NAN, 0.0, math.pi]),
        ("log1p", [-1.0, -1.5], [-INF, NAN]),
        ("ln", [-1.0, -1e-300], [NAN, NAN]),
        ("sqrt", [-1.0], [NAN]),
        ("exp", [710.0, -746.0], [INF, 0.0]),
        ("sinh", [711.0, -711.0], [INF, -INF]),
        ("cosh", [711.0, -711.0], [INF, INF]),
    ],
)
def test_outside_the_domain(name, x, want):
    np.testing.assert_array_equal(meaning(name, x), want)


# ---- activations ----------------------------------------------------------------------------------


def _sigmoid(x):
    return 1 / (1 + mpmath.exp(-x))


def _gelu(x):
    return x / 2 * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3)))


FAR = [-1e30, -745.0, -700.0, -100.0, -30.0, -20.0, 20.0, 30.0, 40.0, 100.0, 800.0, 1e30]

_function("relu", lambda x: max(x, 0), [NAN, INF, 0.0, 0.0, 0.0], ulp=0, extra=FAR)
_function("leaky_relu", lambda x: x if x >= 0 else mpmath.mpf(0.01) * x, [NAN, INF, -INF, 0.0, -0.0], ulp=1, extra=FAR)
_function("elu", lambda x: x if x > 0 else mpmath.expm1(x), [NAN, INF, -1.0, 0.0, -0.0], extra=FAR)
_ALPHA = mpmath.mpf("1.6732632423543772848170429916717")
_SCALE = mpmath.mpf("1.0507009873554804934193349852946")
_function(
    "selu",
    lambda x: _SCALE * (x if x > 0 else _ALPHA * mpmath.expm1(x)),
    [NAN, INF, -1.7580993408473766, 0.0, -0.0],
    extra=FAR,
)
_function("sigmoid", _sigmoid, [NAN, 1.0, 0.0, 0.5, 0.5], extra=FAR)
_function("silu", lambda x: x * _sigmoid(x), [NAN, INF, NAN, 0.0, -0.0], ulp=6, extra=FAR[2:])
_function(
    "mish",
    lambda x: x * mpmath.tanh(mpmath.log1p(mpmath.exp(x))),
    [NAN, INF, NAN, 0.0, -0.0],
    ulp=8,
    extra=FAR[2:],
)
_function(
    "log_sigmoid", lambda x: -mpmath.log1p(mpmath.exp(-x)), [NAN, -0.0, -INF, -math.log(2), -math.log(2)], extra=FAR
)
_function("softplus", lambda x: mpmath.log1p(mpmath.exp(x)), [NAN, INF, 0.0, math.log(2), math.log(2)], extra=FAR)
_function(
    "hardswish",
    lambda x: x * min(max(x + 3, mpmath.mpf(0)), mpmath.mpf(6)) / 6,
    [NAN, INF, NAN, 0.0, -0.0],
    low=-2.5,
    high=100.0,
    extra=[*FAR, 1e308],
)


@case("gelu")
def _(rng):
    x = np.concatenate([rng.uniform(-8, 8, 200), FAR])
    # e^−2u turns the rounding of 2u, about 3 ulp, into a relative one of 3|2u| ulp
    tail = x[np.abs(x) <= 20]
    want = mp(_gelu, tail, digits=400)
    near(meaning("gelu", tail), want, 6, np.abs(want) * np.maximum(1, 1.6 * np.abs(tail + 0.045 * tail**3)))
    near(meaning("gelu", x), by_torch(F.gelu, x, approximate="tanh"), 8, np.abs(x))
    exact = mp(lambda v: v * mpmath.ncdf(v), x)
    near(meaning("gelu", x, approximate="none"), exact, 4, np.abs(x))
    near(meaning("gelu", x, approximate="none"), by_torch(F.gelu, x), 4, np.abs(x))
    for form in ("tanh", "none"):
        np.testing.assert_array_equal(meaning("gelu", SPECIAL, approximate=form), [NAN, INF, NAN, 0, 0])


@case("swiglu")
def _(rng):
    gate, up = np.concatenate([rng.uniform(-8, 8, 200), FAR[2:]]), rng.normal(size=200 + len(FAR) - 2)
    near(meaning("swiglu", gate, up), mp(lambda g, u: g * _sigmoid(g) * u, gate, up), 8)
    near(meaning("swiglu", gate, up), by_torch(lambda g, u: F.silu(g) * u, gate, up), 8, np.abs(gate * up))
    np.testing.assert_array_equal(meaning("swiglu", SPECIAL, [2.0] * 5), [NAN, INF, NAN, 0, 0])


@case("geglu")
def _(rng):
    gate, up = np.concatenate([rng.uniform(-8, 8, 200), FAR]), rng.normal(size=200 + len(FAR))
    for form in ("tanh", "none"):
        want = by_torch(lambda g, u, f=form: F.gelu(g, approximate=f) * u, gate, up)
        near(meaning("geglu", gate, up, approximate=form), want, 12, np.abs(gate * up))
        np.testing.assert_array_equal(meaning("geglu", SPECIAL, [2.0] * 5, approximate=form), [NAN, INF, NAN, 0, 0])
    exact = mp(lambda g, u: g * mpmath.ncdf(g) * u, gate, up)
    near(meaning("geglu", gate, up, approximate="none"), exact, 8, np.abs(gate * up))


@case("bias_activation")
def _(rng):
    x, bias = rng.normal(0, 4, (5, 37)), rng.normal(size=37)
    functions = {
        "relu": F.relu,
        "gelu": lambda t: F.gelu(t, approximate="tanh"),
        "gelu_erf": F.gelu,
        "silu": F.silu,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "none": lambda t: t,
    }
    assert set(functions) == set(TABLE["bias_activation"].params[0].choices)
    for name, f in functions.items():
        want = by_torch(lambda t, b, f=f: f(t + b), x, bias)
        near(meaning("bias_activation", x, bias, activation=name), want, 16, np.maximum(np.abs(x + bias), 1))
    np.testing.assert_array_equal(meaning("bias_activation", [[-1.0, NAN]], [3.0, 1.0]), [[2.0, NAN]])


@pytest.mark.parametrize("seed", SEEDS)
def test_activations_agree_with_pytorch(seed):
    x = np.random.default_rng(seed).normal(0, 5, 500)
    for name, f in {
        "relu": F.relu, "selu": F.selu, "sigmoid": torch.sigmoid, "silu": F.silu, "mish": F.mish,
        "hardswish": F.hardswish, "softplus": lambda t: F.softplus(t, threshold=100),
    }.items():  # fmt: skip
        near(meaning(name, x), by_torch(f, x), 16, np.maximum(np.abs(x), 1))
    near(meaning("elu", x, alpha=0.7), by_torch(F.elu, x, alpha=0.7), 8, 1.0)
    near(meaning("leaky_relu", x, slope=0.2), by_torch(F.leaky_relu, x, negative_slope=0.2), 1)


@pytest.mark.parametrize("name", ["sigmoid", "silu", "mish", "softplus", "elu", "selu"])
def test_activations_keep_their_digits_in_float32(name):
    """In float32 too, no tail cancels: a few ulp of float32 from −87 to 87."""
    x = np.linspace(-87, 87, 4001, dtype=np.float32)
    op = TABLE[name]
    params = [p.default for p in op.params]
    single = evaluate(op.program(), [x], params, np.float32)[0]
    wide = evaluate(op.program(), [x], params, np.float64)[0]
    ulps = np.abs(single - wide) / np.spacing(np.abs(wide).astype(np.float32))
    assert ulps.max() < 6


# ---- reductions -----------------------------------------------------------------------------------


def _each(f, *arrays) -> np.ndarray:
    return np.array([float(f(*row)) for row in zip(*(a.tolist() for a in arrays), strict=True)])


def _fractions(f):
    return lambda *rows: f(*([Fraction(v) for v in row] for row in rows))


def _reduction(name, reference, scale, *, ulp=8, operands=1):
    @case(name)
    def check(rng):
        arrays = [matrix(rng) for _ in range(operands)]
        near(meaning(name, *arrays), _each(_fractions(reference), *arrays), ulp, scale(*arrays))


def _size(*arrays):
    return np.abs(math.prod(arrays[1:], start=arrays[0])).sum(-1)


def _mean(x):
    return sum(x) / len(x)


def _products(x, y):
    mx, my = _mean(x), _mean(y)
    return [(a - mx) * (b - my) for a, b in zip(x, y, strict=True)]


_reduction("dot", lambda x, y: sum(a * b for a, b in zip(x, y, strict=True)), _size, operands=2)
_reduction("sum", sum, _size)
_reduction("sum_of_squares", lambda x: sum(a * a for a in x), lambda x: _size(x, x))
_reduction("mean", _mean, lambda x: _size(x) / x.shape[-1])
_reduction("norm_l1", lambda x: sum(map(abs, x)), _size)
_reduction("norm_linf", lambda x: max(map(abs, x)), lambda x: 0 * x[:, 0])
_reduction("min", min, lambda x: 0 * x[:, 0])
_reduction("max", max, lambda x: 0 * x[:, 0])
_reduction("variance", statistics.pvariance, lambda x: np.ptp(x, axis=-1) ** 2)
_reduction("stddev", statistics.pstdev, lambda x: np.ptp(x, axis=-1))
_reduction("covariance", lambda x, y: _mean(_products(x, y)), lambda x, y: np.ptp(x, -1) * np.ptp(y, -1), operands=2)


@case("sum_kahan")
def _(rng):
    x = matrix(rng, 3, 1001)
    near(meaning("sum_kahan", x), [math.fsum(row) for row in x], 1)
    op = TABLE["sum_kahan"]
    single = np.full((1, 100_001), 0.1, np.float32)
    assert evaluate(op.program(), [single], [], np.float32)[0] == np.float32(100_001 * float(np.float32(0.1)))


@case("norm_l2")
def _(rng):
    x = matrix(rng)
    near(meaning("norm_l2", x), [math.hypot(*row) for row in x], 4)


@case("argmin")
def _(rng):
    x = rng.integers(-4, 5, (20, 30)).astype(np.float64)
    np.testing.assert_array_equal(meaning("argmin", x), [row.index(min(row)) for row in x.tolist()])
    np.testing.assert_array_equal(meaning("argmin", [[1.0, NAN, -5.0, NAN], [INF, -INF, 0.0, -INF]]), [1, 1])


@case("argmax")
def _(rng):
    x = rng.integers(-4, 5, (20, 30)).astype(np.float64)
    np.testing.assert_array_equal(meaning("argmax", x), [row.index(max(row)) for row in x.tolist()])
    got = meaning("argmax", [[1.0, NAN, 5.0, NAN], [INF, -INF, 0.0, INF], [-INF] * 4])
    np.testing.assert_array_equal(got, [1, 0, 0])
    assert got.dtype == np.int64


@case("correlation")
def _(rng):
    x = matrix(rng)
    y = 0.3 * x + rng.normal(0, 1, x.shape) * np.abs(x[:, :1])
    want = [scipy.stats.pearsonr(a, b).statistic for a, b in zip(x, y, strict=True)]
    near(meaning("correlation", x, y), want, 32, 1.0)
    near(meaning("correlation", x, 7 - 2 * x), -np.ones(len(x)), 8)
    many = rng.normal(size=(2000, 5))  # of some rows Σdx² is above √Σdx²·√Σdx²
    assert np.all(meaning("correlation", many, many) <= 1)
    assert np.all(meaning("correlation", many, -many) >= -1)
    constant = np.full((1, 3), 0.1)  # its computed mean is not 0.1
    assert np.isnan(meaning("correlation", constant, np.array([[1.0, 2.0, 4.0]]))[0])


@pytest.mark.parametrize("name", [n for n, o in TABLE.items() if o.reduces and len(o.operands) == 1])
def test_reductions_with_nan_and_inf(name):
    index = TABLE[name].signature.outputs[0].index
    x = np.array([[1.0, NAN, 3.0], [1.0, INF, 3.0], [INF, -INF, 0.0]])
    got = meaning(name, x)
    if index:
        return
    assert np.isnan(got[0])
    if name in ("variance", "stddev"):
        assert np.isnan(got[1])
    else:
        assert got[1] == (1 if name == "min" else INF)
    if name in ("sum", "sum_kahan", "mean"):
        assert np.isnan(got[2])


def test_variance_does_not_cancel():
    x = np.array([[1e9, 1e9 + 1, 1e9 + 2]])
    assert meaning("variance", x)[0] == pytest.approx(2 / 3, rel=1e-15)
    assert meaning("covariance", x, -x)[0] == pytest.approx(-2 / 3, rel=1e-15)


def test_empty_rows():
    zero = {"dot", "sum", "sum_kahan", "sum_of_squares", "norm_l1", "norm_l2", "norm_linf"}
    for name, op in TABLE.items():
        if op.over is not None and not op.structured:
            assert op.empty_is_error == (op.reduces and name not in zero), name


# ---- normalization --------------------------------------------------------------------------------


@case("softmax")
def _(rng):
    x = rng.normal(0, 10, (5, 37))
    near(meaning("softmax", x), scipy.special.softmax(x, axis=-1), 32)
    got = meaning("softmax", [[-INF, 0.0, 0.0], [INF, 0.0, 0.0], [NAN, 0.0, 0.0], [-INF] * 3, [1e308, -1e308, 0.0]])
    np.testing.assert_array_equal(got, [[0, 0.5, 0.5], [NAN] * 3, [NAN] * 3, [NAN] * 3, [1, 0, 0]])


@case("log_softmax")
def _(rng):
    x = rng.normal(0, 10, (5, 37))
    near(meaning("log_softmax", x), scipy.special.log_softmax(x, axis=-1), 8, np.ptp(x) + np.log(37))
    got = meaning("log_softmax", [[-INF, 0.0, 0.0], [INF, 0.0, 0.0], [-INF] * 3])
    near(got, [[-INF, -math.log(2), -math.log(2)], [NAN] * 3, [NAN] * 3], 2)


@case("layer_norm")
def _(rng):
    x, w, b = rng.normal(5, 2, (5, 37)), rng.normal(size=37), rng.normal(size=37)
    want = by_torch(lambda t, u, v: F.layer_norm(t, (37,), u, v, eps=1e-5), x, w, b)
    near(meaning("layer_norm", x, w, b), want, 64, np.abs(w) * 5 + np.abs(b))
    want = by_torch(lambda t, u, v: F.layer_norm(t, (37,), u, v, eps=0.5), x, w, b)
    near(meaning("layer_norm", x, w, b, eps=0.5), want, 64, np.abs(w) * 5 + np.abs(b))
    near(meaning("layer_norm", np.full((1, 37), 4.0), w, b), b[None], 0)


@case("rms_norm")
def _(rng):
    x, w = rng.normal(1, 2, (5, 37)), rng.normal(size=37)
    near(meaning("rms_norm", x, w), by_torch(lambda t, u: F.rms_norm(t, (37,), u, eps=1e-6), x, w), 8)
    near(meaning("rms_norm", x, w, eps=0.5), by_torch(lambda t, u: F.rms_norm(t, (37,), u, eps=0.5), x, w), 8)
    near(meaning("rms_norm", np.zeros((1, 37)), w), np.zeros((1, 37)), 0)
    heads, w = rng.normal(1, 2, (3, 4, 16)), rng.normal(size=16)
    near(meaning("rms_norm", heads, w), by_torch(lambda t, u: F.rms_norm(t, (16,), u, eps=1e-6), heads, w), 8)


@case("residual_rms_norm")
def _(rng):
    x, residual, w = rng.normal(1, 2, (5, 37)), rng.normal(1, 2, (5, 37)), rng.normal(size=37)
    h, y = meaning("residual_rms_norm", x, residual, w)
    want = by_torch(torch.add, x, residual)
    near(h, want, 0)
    near(y, by_torch(lambda t, u: F.rms_norm(t, (37,), u, eps=1e-6), want, w), 8)


@case("normalize")
def _(rng):
    x = matrix(rng)
    near(meaning("normalize", x), by_torch(F.normalize, x, dim=-1, eps=0.0), 8)
    np.testing.assert_array_equal(meaning("normalize", [[0.0, 0.0], [3.0, -4.0]])[0], [NAN, NAN])
    near(meaning("normalize", [[3.0, -4.0]]), [[0.6, -0.8]], 2)


@case("zscore")
def _(rng):
    x = matrix(rng)
    near(meaning("zscore", x), scipy.stats.zscore(x, axis=-1), 64, np.full(x.shape, 6.0))
    for value, n in ((0.1, 3), (1 / 3, 7), (5.0, 1), (1e300, 11)):  # some of these means round away from the value
        assert np.isnan(meaning("zscore", np.full((1, n), value))).all()


@case("minmax_normalize")
def _(rng):
    x = matrix(rng)
    rows = [[Fraction(v) for v in row] for row in x.tolist()]
    want = [[float((v - min(row)) / (max(row) - min(row))) for v in row] for row in rows]
    near(meaning("minmax_normalize", x), want, 4, 1.0)
    got = meaning("minmax_normalize", x)
    assert np.all(got.min(-1) == 0)
    assert np.all(got.max(-1) == 1)
    assert np.isnan(meaning("minmax_normalize", [[2.0, 2.0, 2.0]])).all()


# ---- matrix ---------------------------------------------------------------------------------------


def _product(name, spec, *shapes):
    @case(name)
    def check(rng):
        for dtype, eps_per_term in ((np.float64, EPS), (np.float32, float(np.finfo(np.float32).eps))):
            a, b = (rng.normal(size=s).astype(dtype) for s in shapes)
            got = meaning(name, a, b)
            assert got.dtype == dtype
            exact = by_torch(lambda s, t: torch.einsum(spec, s, t), a.astype(float), b.astype(float))
            size = by_torch(lambda s, t: torch.einsum(spec, s, t), np.abs(a.astype(float)), np.abs(b.astype(float)))
            assert np.all(np.abs(got - exact) <= 20 * eps_per_term * size)
        wide = meaning(name, *(rng.normal(size=s).astype(np.longdouble) for s in shapes))
        assert wide.dtype == np.longdouble


_product("matmul", "mk,kn->mn", (7, 13), (13, 5))
_product("matvec", "mk,k->m", (7, 13), (13,))
_product("vecmat", "k,kn->n", (13,), (13, 5))
_product("batched_matmul", "bhmk,bhkn->bhmn", (2, 3, 7, 13), (2, 3, 13, 5))
_product("outer", "m,n->mn", (7,), (5,))


@case("transpose")
def _(rng):
    x = rng.normal(size=(7, 5))
    got = meaning("transpose", x)
    np.testing.assert_array_equal(got, by_torch(lambda t: t.t().contiguous(), x))
    assert got.flags.c_contiguous


@case("convolve2d")
def _(rng):
    for p, q in ((3, 3), (1, 1), (2, 4), (5, 2), (9, 11)):
        x, kernel = rng.normal(size=(9, 11)), rng.normal(size=(p, q))
        size = np.abs(kernel).sum() * np.abs(x).max()
        near(meaning("convolve2d", x, kernel), scipy.signal.correlate2d(x, kernel, "valid"), 4, size)
        flipped = scipy.signal.convolve2d(x, kernel[::-1, ::-1], "valid")
        near(meaning("convolve2d", x, kernel, mode="valid"), flipped, 4, size)
        many, kernels = rng.normal(size=(3, 9, 11)), rng.normal(size=(4, 3, p, q))
        for mode in ("valid", "same"):
            want = by_torch(lambda a, b, m=mode: F.conv2d(a[None], b, padding=m)[0], many, kernels)
            near(meaning("convolve2d", many, kernels, mode=mode), want, 16, 3 * p * q * 9)
            shapes = TABLE["convolve2d"].result_shapes((many.shape, kernels.shape), {"mode": mode})
            assert shapes == (want.shape,)
    single = meaning("convolve2d", rng.normal(size=(4, 4)).astype(np.float32), np.ones((3, 3), np.float32))
    assert single.dtype == np.float32
    tall = meaning("convolve2d", np.ones((2, 2)), np.ones((5, 5)), mode="same")
    np.testing.assert_array_equal(tall, np.full((2, 2), 4.0))


@case("embedding_lookup")
def _(rng):
    table, i = rng.normal(size=(11, 4)), rng.integers(0, 11, (2, 3))
    want = by_torch(lambda t, k: F.embedding(k, t), table, i)
    np.testing.assert_array_equal(meaning("embedding_lookup", table, i), want)
    np.testing.assert_array_equal(meaning("embedding_lookup", table, i.astype(np.uint8)), want)
    assert meaning("embedding_lookup", table, np.array(3)).shape == (4,)


@case("symmetric_eigen")
def _(rng):
    for dtype in (np.float64, np.float32):
        a = rng.normal(size=(12, 12))
        a = (a + a.T).astype(dtype)
        values, vectors = meaning("symmetric_eigen", a)
        assert values.dtype == vectors.dtype == dtype
        tiny = float(np.finfo(dtype).eps) * np.abs(a).sum()
        want = by_torch(torch.linalg.eigvalsh, a.astype(np.float64))[::-1]
        assert np.all(np.abs(values - want) <= tiny)
        assert np.all(np.abs(a @ vectors - vectors * values) <= tiny)
        assert np.all(np.abs(vectors.T @ vectors - np.eye(12)) <= 12 * 16 * np.finfo(dtype).eps)
        columns = range(12)
        assert np.all(vectors[np.argmax(np.abs(vectors), axis=0), columns] > 0)
    values, vectors = meaning("symmetric_eigen", np.empty((0, 0)))
    assert values.shape == (0,)
    assert vectors.shape == (0, 0)


GGML = np.load(Path(__file__).parents[2] / "golden/ggml/quant.npz", allow_pickle=False)
KINDS = [str(kind).lower() for kind in GGML["types"]]


def by_gguf(w, kind):
    """Rows of blocks as numbers, by the decoders of the gguf package."""
    return gguf.quants.dequantize(w, gguf.GGMLQuantizationType[kind.upper()]).astype(np.float64)


@case("quantize_rows")
def _(rng):
    for kind in KINDS:
        np.testing.assert_array_equal(meaning("quantize_rows", GGML["x"], format=kind), GGML[f"q_{kind.upper()}"])
    x = rng.normal(size=(5, 96)).astype(np.float32)
    for kind in ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "mxfp4"):
        wanted = gguf.quants.quantize(x, gguf.GGMLQuantizationType[kind.upper()])
        np.testing.assert_array_equal(meaning("quantize_rows", x, format=kind), wanted)


@case("quantize_rows_weighted")
def _(rng):
    for kind in KINDS:
        got = meaning("quantize_rows_weighted", GGML["x"], GGML["imatrix"], format=kind)
        np.testing.assert_array_equal(got, GGML[f"qim_{kind.upper()}"])


@case("dequantize")
def _(rng):
    for kind in KINDS:
        w = random_rows(FORMATS[kind], (4, FORMATS[kind].row_bytes(512)), rng)
        np.testing.assert_array_equal(meaning("dequantize", w, format=kind), by_gguf(w, kind).astype(np.float32))


def product(rng, kind, rows, columns):
    """Blocks, what they stand for, and what they are multiplied with: of its own length, exact in 8 bits."""
    w = random_rows(FORMATS[kind], (rows, FORMATS[kind].row_bytes(columns)), rng)
    return w, by_gguf(w, kind)


def whole(rng, *shape):
    """Whole numbers, in each 32 of which one is -127 or 127: 8 bits with a scale of 1 hold them as they are."""
    x = rng.integers(-127, 128, shape)
    x[..., ::32] = -127
    return x.astype(np.float64)


@case("quant_matvec")
def _(rng):
    for kind in KINDS:
        w, numbers = product(rng, kind, 7, 512)
        x = rng.normal(size=512)
        size = np.abs(numbers).max() * np.abs(x).sum()
        near(meaning("quant_matvec", w, x, format=kind, activations="f32"), numbers @ x, 512, size)
        x = whole(rng, 512)
        size = np.abs(numbers).max() * np.abs(x).sum()
        near(meaning("quant_matvec", w, x, format=kind, activations="q8"), numbers @ x, 512, size)


@case("quant_matmul")
def _(rng):
    for kind in KINDS:
        w, numbers = product(rng, kind, 7, 512)
        for x, how in ((rng.normal(size=(3, 512)), "f32"), (whole(rng, 3, 512), "q8")):
            size = np.abs(numbers).max() * np.abs(x).sum(axis=1).max()
            near(meaning("quant_matmul", x, w, format=kind, activations=how), x @ numbers.T, 512, size)


@case("quant_matvec_colmajor")
def _(rng):
    for kind in KINDS:
        w, numbers = product(rng, kind, 7, 512)
        x = rng.normal(size=7)
        near(
            meaning("quant_matvec_colmajor", w, x, format=kind), x @ numbers, 8, np.abs(numbers).max() * np.abs(x).sum()
        )


@case("quant_matmul_colmajor")
def _(rng):
    for kind in KINDS:
        w, numbers = product(rng, kind, 7, 512)
        x = rng.normal(size=(3, 7))
        size = np.abs(numbers).max() * np.abs(x).sum(axis=1).max()
        near(meaning("quant_matmul_colmajor", x, w, format=kind), x @ numbers, 8, size)


def _rotary(x, positions, rates, interleaved=False):
    """The textbook's rotation, as complex numbers: pairs times e^(iα)."""
    turn = torch.polar(torch.ones(()).double(), torch.from_numpy(positions[..., None, None] * rates))
    if interleaved:
        return torch.view_as_real(torch.view_as_complex(torch.from_numpy(x).unflatten(-1, (-1, 2))) * turn).flatten(-2)
    a, b = torch.from_numpy(x).chunk(2, -1)
    turned = torch.complex(a, b) * turn
    return torch.cat((turned.real, turned.imag), -1)


@case("rope")
def _(rng):
    x, positions = rng.normal(size=(2, 5, 3, 16)), rng.integers(0, 1000, (2, 5))
    scale = np.abs(x).max() * 2000  # the angles of this comparison are rounded to 2⁻⁵³ of some hundred turns
    rates = 5e5 ** (-np.arange(8) / 8)
    near(meaning("rope", x, positions, theta=5e5), _rotary(x, positions, rates), 1, scale)
    want = _rotary(x, positions, rates, interleaved=True)
    near(meaning("rope", x, positions, theta=5e5, style="interleaved"), want, 1, scale)
    got = meaning("rope", x, positions, dims=6)
    near(got[..., :6], _rotary(x[..., :6], positions, 1e4 ** (-np.arange(3) / 3)), 1, scale)
    np.testing.assert_array_equal(got[..., 6:], x[..., 6:])
    np.testing.assert_array_equal(meaning("rope", x, np.zeros((2, 5), np.int64)), x)
    near(meaning("rope", x, positions[:, :1], theta=5e5)[:, 3], _rotary(x, positions[:, :1], rates)[:, 3], 1, scale)


@case("attention")
def _(rng):
    q, k, v = (rng.normal(size=(2, n, h, d)) for n, h, d in ((9, 6, 16), (13, 2, 16), (13, 2, 5)))
    heads = [torch.from_numpy(x).transpose(-2, -3) for x in (q, k, v)]
    size = np.abs(v).max()

    def by_heads(scale=None, mask=None):
        want = F.scaled_dot_product_attention(*heads, attn_mask=mask, scale=scale, enable_gqa=True)
        return want.transpose(-2, -3).numpy()

    near(meaning("attention", q, k, v), by_heads(), 64, size)
    near(meaning("attention", q, k, v, scale=0.7), by_heads(scale=0.7), 64, size)
    distance = torch.arange(4, 13)[:, None] - torch.arange(13)  # of a key, before its query
    near(meaning("attention", q, k, v, causal=True), by_heads(mask=distance >= 0), 64, size)
    near(
        meaning("attention", q, k, v, causal=True, window=3), by_heads(mask=(distance >= 0) & (distance < 3)), 64, size
    )
    near(meaning("attention", q, k, v, window=3), by_heads(mask=distance.abs() < 3), 64, size)
    scores = torch.einsum("bhtd,bhsd->bhts", heads[0], heads[1].repeat_interleave(3, 1)) * 0.25
    weights = torch.softmax(2 * torch.tanh(scores / 2), -1)
    want = torch.einsum("bhts,bhse->bthe", weights, heads[2].repeat_interleave(3, 1))
    near(meaning("attention", q, k, v, softcap=2.0), want, 64, size)
    few = meaning("attention", q, k[:, :4], v[:, :4], causal=True)
    assert not few[:, :5].any(), "the first five queries see no key"
    near(few[:, 5], np.repeat(v[:, 0], 3, -2), 4, size)


@case("attention_sinks")
def _(rng):
    q, k, v, sinks = (rng.normal(size=shape) for shape in ((9, 6, 16), (13, 2, 16), (13, 2, 5), (6,)))
    more = [np.concatenate([np.zeros((1, *x.shape[1:])), x]) for x in (k, v)]  # a key with the sink's score
    heads = [torch.from_numpy(x).transpose(-2, -3) for x in (q, *more)]
    mask = torch.zeros(6, 9, 14, dtype=torch.double)
    mask[:, :, 0] = torch.from_numpy(sinks)[:, None]
    mask[:, torch.arange(4, 13)[:, None] < torch.arange(-1, 13)] = -INF
    want = F.scaled_dot_product_attention(*heads, attn_mask=mask, enable_gqa=True).transpose(-2, -3).numpy()
    near(meaning("attention_sinks", q, k, v, sinks, causal=True), want, 64, np.abs(v).max())
    none = np.full(6, -INF)
    np.testing.assert_array_equal(meaning("attention_sinks", q, k, v, none), meaning("attention", q, k, v))
    assert not meaning("attention_sinks", q, k[:4], v[:4], sinks, causal=True)[:5].any()


@case("attention_masked")
def _(rng):
    q, k, v = (rng.normal(size=(2, n, h, d)) for n, h, d in ((9, 6, 16), (13, 2, 16), (13, 2, 5)))
    heads = [torch.from_numpy(x).transpose(-2, -3) for x in (q, k, v)]
    for shape in ((1, 1, 13), (6, 9, 13), (2, 1, 9, 13)):
        mask = np.where(rng.random(shape) < 0.2, -INF, rng.normal(size=shape))
        want = F.scaled_dot_product_attention(*heads, attn_mask=torch.from_numpy(mask), enable_gqa=True)
        near(meaning("attention_masked", q, k, v, mask), want.transpose(-2, -3).numpy(), 64, np.abs(v).max())
    zeros = np.zeros((1, 1, 13))
    for given in ({"causal": True}, {"window": 3}, {"softcap": 2.0, "scale": 0.3}):
        near(meaning("attention_masked", q, k, v, zeros, **given), meaning("attention", q, k, v, **given), 4, 1)
    assert not meaning("attention_masked", q, k, v, zeros - INF).any()


@case("attention_ragged")
def _(rng):
    q, k, v = (rng.normal(size=(n, h, d)) for n, h, d in ((20, 6, 16), (30, 2, 16), (30, 2, 5)))
    of_q, of_k = np.array([1, 4, 4, 15, 19]), np.array([0, 9, 12, 30, 30])
    y = meaning("attention_ragged", q, k, v, of_q, of_k, causal=True, window=8)
    mask = torch.ones(20, 30, dtype=torch.bool)
    for i in range(20):
        for j in range(30):
            a, b = (int(np.searchsorted(o, x, "right")) for o, x in ((of_q, i), (of_k, j)))
            distance = (of_k[min(a, 4)] - of_q[min(a, 4)] + i) - j
            mask[i, j] = bool(a == b and 0 < a < 5 and 0 <= distance < 8)
    heads = [torch.from_numpy(x).transpose(-2, -3) for x in (q, k, v)]
    want = F.scaled_dot_product_attention(*heads, attn_mask=mask, enable_gqa=True).transpose(-2, -3)
    want = torch.where(mask.any(-1)[:, None, None], want, 0.0).numpy()
    near(y, want, 64, np.abs(v).max())


@case("topk")
def _(rng):
    x = rng.permuted(np.arange(60.0).reshape(3, 20), axis=-1)
    for k in (1, 5, 20):
        want = by_torch(lambda a: torch.topk(a, k).values, x), by_torch(lambda a: torch.topk(a, k).indices, x)  # noqa: B023
        for got, expected in zip(meaning("topk", x, k=k), want, strict=True):
            np.testing.assert_array_equal(got, expected)
    values, indices = meaning("topk", np.array([0.0, 3, NAN, -0.0, 3, -INF, NAN, INF]), k=8)
    np.testing.assert_array_equal(values, [NAN, NAN, INF, 3, 3, 0, 0, -INF])
    np.testing.assert_array_equal(indices, [2, 6, 7, 1, 4, 0, 3, 5])


@case("sample")
def _(rng):
    x, steps = rng.normal(size=9), (np.arange(4000) + 0.5) / 4000
    for given, logits in (
        ({}, x),
        ({"temperature": 0.5}, x / 0.5),
        ({"top_k": 3}, np.where(x >= np.sort(x)[-3], x, -INF)),
        ({"min_p": 0.2, "temperature": 2.0}, np.where(x >= x.max() + math.log(0.2), x, -INF) / 2.0),
    ):
        drawn = meaning("sample", x, steps, **given)
        share = np.bincount(drawn, minlength=9) / 4000
        np.testing.assert_allclose(share, by_torch(lambda a: torch.softmax(a, -1), logits), rtol=0, atol=1 / 4000)
        assert (np.diff(x[drawn]) <= 0).all()  # the largest come first
    kept = set(meaning("sample", x, steps, top_p=0.6).tolist())
    share = np.sort(by_torch(lambda a: torch.softmax(a, -1), x))[::-1]
    assert len(kept) == 1 + np.searchsorted(np.cumsum(share), 0.6)
    assert meaning("sample", x, np.array(0.9), temperature=0.0) == meaning("sample", x, np.array(0.0)) == np.argmax(x)


@case("attention_decode")
def _(rng):
    q, table, lengths = rng.normal(size=(2, 3, 6, 16)), np.array([[3, 0], [1, 9]]), np.array([7, 4])
    k, v = (rng.normal(size=(4, 5, 2, d)).astype(np.float32) for d in (16, 8))
    held = [torch.from_numpy(np.stack([x[3], x[0]]).reshape(10, 2, -1)[:7]) for x in (k, v)]
    distance = torch.arange(4, 7)[:, None] - torch.arange(7)
    for window, seen in ((0, distance >= 0), (2, (distance >= 0) & (distance < 2))):
        got = meaning("attention_decode", q, k.view(np.uint8), v.view(np.uint8), table, lengths, format="f32",
                      window=window)  # fmt: skip
        heads = [x.double().transpose(0, 1) for x in (torch.from_numpy(q[0]), *held)]
        want = F.scaled_dot_product_attention(*heads, attn_mask=seen, enable_gqa=True).transpose(0, 1).numpy()
        near(got[0], want, 64, np.abs(v).max())
    alone = meaning(
        "attention", q[1], k[1, :4].astype(float), v[1, :4].astype(float), causal=True, scale=0.3, softcap=2.0
    )
    got = meaning("attention_decode", q, k.view(np.uint8), v.view(np.uint8), table, lengths, format="f32", scale=0.3,
                  softcap=2.0)  # fmt: skip
    near(got[1], alone, 64, np.abs(v).max())


@case("attention_decode_sinks")
def _(rng):
    q, table, lengths, sinks = rng.normal(size=(2, 3, 6, 16)), np.array([[3, 0], [1, 9]]), [7, 4], rng.normal(size=6)
    k, v = (rng.normal(size=(4, 5, 2, d)).astype(np.float32) for d in (16, 8))
    got = meaning("attention_decode_sinks", q, k.view(np.uint8), v.view(np.uint8), table, np.array(lengths), sinks,
                  format="f32", window=6)  # fmt: skip
    for i, n in enumerate(lengths):
        held = [x[table[i, : -(-n // 5)]].reshape(-1, *x.shape[2:])[:n].astype(float) for x in (k, v)]
        want = meaning("attention_sinks", q[i], *held, sinks, causal=True, window=6)
        near(got[i], want, 64, np.abs(v).max())


@case("kv_cache_scatter")
def _(rng):
    cache, x = torch.zeros(3, 4, 2, 32, dtype=torch.bfloat16), torch.from_numpy(rng.normal(size=(3, 2, 32))).float()
    for dtype, form in ((torch.bfloat16, "bf16"), (torch.float16, "f16"), (torch.float32, "f32")):
        cache = torch.zeros(3, 4, 2, 32, dtype=dtype)
        got = meaning(
            "kv_cache_scatter", cache.view(torch.uint8).numpy(), x.numpy(), np.array([11, -1, 2]), format=form
        )
        cache[2, 3], cache[0, 2] = x[0].to(dtype), x[2].to(dtype)
        np.testing.assert_array_equal(got, cache.view(torch.uint8).numpy())
    got = meaning("kv_cache_scatter", np.zeros((1, 2, 2, 34), np.uint8), x.numpy()[:2], np.array([1, 1]), format="q8_0")
    d = np.abs(x[1, 0].numpy()).max() / 127
    assert not got[0, 0].any() and got[0, 1, 0, :2].view(np.float16) == np.float16(d)
    assert np.abs(got[0, 1, 0, 2:].view(np.int8) * d - x[1, 0].numpy()).max() <= d * 0.501, "the last row counts"


@case("quant_embedding_lookup")
def _(rng):
    for kind in ("q4_0", "q8_0", "q5_1"):
        w = gguf.quants.quantize(rng.normal(size=(9, 256)).astype(np.float32), gguf.GGMLQuantizationType[kind.upper()])
        i = rng.integers(0, 9, (2, 3))
        got = meaning("quant_embedding_lookup", w, i, format=kind)
        np.testing.assert_array_equal(got, gguf.quants.dequantize(w, gguf.GGMLQuantizationType[kind.upper()])[i])


@case("quant_experts")
def _(rng):
    w = gguf.quants.quantize(rng.normal(size=(4 * 5, 256)).astype(np.float32), gguf.GGMLQuantizationType.Q8_0)
    experts = gguf.quants.dequantize(w, gguf.GGMLQuantizationType.Q8_0).reshape(4, 5, 256).astype(np.float64)
    x, ids = rng.normal(size=(3, 1, 256)).astype(np.float32), rng.integers(0, 4, (3, 2))
    got = meaning("quant_experts", w, x, ids, outputs=5, format="q8_0", activations="f32")
    want = np.einsum("tuok,tk->tuo", experts[ids], x[:, 0])
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-4)
    rounded = meaning("quant_experts", w, x, ids, outputs=5, format="q8_0", activations="q8")
    assert 0 < np.abs(rounded - want).max() < 0.02 * np.abs(want).max()


@case("concatenate")
def _(rng):
    a, b = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 5, 4))
    np.testing.assert_array_equal(meaning("concatenate", a, b, axis=1), by_torch(lambda *x: torch.cat(x, 1), a, b))
    np.testing.assert_array_equal(meaning("concatenate", a, a, axis=-1), by_torch(lambda *x: torch.cat(x, -1), a, a))
    np.testing.assert_array_equal(meaning("concatenate", a[0], b[0]), by_torch(lambda *x: torch.cat(x), a[0], b[0]))


@case("lz4_compress")
def _(rng):
    """The library reads every block; what is not a block is the page itself, and is not worth one."""
    x = np.repeat(rng.integers(0, 9, (5, 300), np.uint8), [1, 2, 3, 1, 1], axis=0)[:, : int(rng.integers(1, 300))]
    x[-1] = rng.integers(0, 256, x.shape[1])
    x[0] = 7
    for level in (1, 2):
        blocks, sizes = meaning("lz4_compress", x, level=level)
        for page, block, size in zip(x, blocks, sizes, strict=True):
            part, rest = bytes(block[: abs(size)]), block[abs(size) :]
            decoded = part if size < 0 else lz4.block.decompress(part, uncompressed_size=len(page))
            assert decoded == page.tobytes() and not rest.any() and (size == -len(page) or 0 < size < len(page))
        assert x.shape[1] < 60 or (0 < sizes[0] < 30 and sizes[-1] == -x.shape[1])


@case("lz4_decompress")
def _(rng):
    texts = [bytes(rng.integers(97, 101, int(n), np.uint8)) for n in rng.integers(0, 400, 6)]
    blocks = [lz4.block.compress(t, store_size=False) for t in texts]
    packed = np.frombuffer(b"?".join(blocks) + b"xyz", np.uint8)
    offsets = np.cumsum([0, *(len(b) + 1 for b in blocks)])
    sizes = np.array([*map(len, blocks), -3])
    sizes[2] = 0
    y, lengths = meaning("lz4_decompress", packed, np.append(offsets[:6], offsets[6] - 1), sizes, page=400)
    wanted = [b"" if i == 2 else t for i, t in enumerate([*texts, b"xyz"])]
    assert lengths.tolist() == [len(t) for t in wanted]
    assert [bytes(row) for row in y] == [t.ljust(400, b"\0") for t in wanted]
    y, lengths = meaning("lz4_decompress", np.frombuffer(b"\x10a\x02\x00\x50abcde", np.uint8), [0], [10], page=400)
    assert lengths.tolist() == [-1] and not y.any(), "an offset before the page"


@case("lz4_pack")
def _(rng):
    blocks, sizes = rng.integers(0, 256, (6, 50), np.uint8), rng.integers(-50, 51, 6)
    packed, offsets = meaning("lz4_pack", blocks, sizes)
    whole = b"".join(bytes(row[: abs(size)]) for row, size in zip(blocks, sizes, strict=True))
    assert bytes(packed) == whole.ljust(300, b"\0")
    assert offsets.tolist() == [sum(abs(sizes[:i])) for i in range(6)]


def test_symmetric_eigen_says_what_is_wrong():
    with pytest.raises(ParameterError, match=r"a\[0, 1\] is 2.0, but a\[1, 0\] is 3.0 \(largest asymmetry 1.0\)"):
        meaning("symmetric_eigen", np.array([[1.0, 2.0], [3.0, 1.0]]))
    with pytest.raises(ParameterError, match=r"a\[1, 1\] is nan"):
        TABLE["symmetric_eigen"].check(np.array([[1.0, 2.0], [2.0, NAN]]))
    gram = np.random.default_rng(1).normal(size=(40, 9)).astype(np.float32)
    TABLE["symmetric_eigen"].check(gram.T @ gram * (1 + 1e-7))


def test_embedding_lookup_names_the_index():
    table = np.zeros((5, 2))
    with pytest.raises(ParameterError, match=r"embedding_lookup: i\[1, 0\] is 5; rows of table are 0 to 4"):
        meaning("embedding_lookup", table, np.array([[0, 4], [5, -1]]))
    with pytest.raises(ParameterError, match="i is -1"):
        TABLE["embedding_lookup"].check(table, np.array(-1))
    with pytest.raises(ParameterError, match="none, as table is empty"):
        TABLE["embedding_lookup"].check(table[:0], np.array([0]))


@pytest.mark.parametrize(
    ("x", "kernel", "message"),
    [
        ((3, 3), (4, 2), r"kernel\[p\] is 4, but x\[h\] is 3.*mode=\"same\""),
        ((3, 3), (2, 0), r"kernel\[q\] is 0"),
        ((2, 5, 5), (4, 3, 2, 2), r"kernel\[c\] is 3, but x\[c\] is 2"),
        ((5, 5), (1, 1, 3, 3), r"x has shape \(5, 5\) and kernel \(1, 1, 3, 3\); give"),
        ((1, 2, 5, 5), (4, 2, 3, 3), "give"),
    ],
)
def test_convolve2d_says_what_is_wrong(x, kernel, message):
    with pytest.raises(ShapeError, match=message):
        TABLE["convolve2d"].result_shapes((x, kernel), {"mode": "valid"})


def test_cost_of_structured_ops():
    def cost(name, *shapes):
        op = TABLE[name]
        sizes, leading = op.signature.bind(name, shapes)
        return op.flops(sizes, math.prod(leading)), op.chain_length(sizes, math.prod(leading))

    assert cost("matmul", (2, 3), (3, 5)) == (60, 3)
    assert cost("batched_matmul", (4, 2, 3), (3, 5)) == (240, 3)
    assert cost("convolve2d", (9, 9), (3, 3)) == (2 * 81 * 9, 9)
    assert cost("convolve2d", (2, 9, 9), (4, 2, 3, 3)) == (2 * 81 * 9 * 2 * 4, 72)
    assert cost("transpose", (2, 3)) == (0, 1)
    assert cost("embedding_lookup", (5, 2), (3,)) == (0, 1)
    assert cost("rope", (4, 3, 2), (4,)) == (3 * 24, 4)
    assert cost("attention", (9, 6, 16), (13, 2, 16), (13, 2, 5)) == (2 * 9 * 13 * 6 * 21, 1)


# ---- the table ------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")  # torch, of its own copy
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", TABLE)
def test_meaning(name, seed):
    CASES[name](np.random.default_rng([seed, *name.encode()]))


def test_every_op_has_an_independent_comparison():
    assert set(TABLE) == set(CASES)


@pytest.mark.parametrize("name", TABLE)
def test_every_op_says_formula_shapes_and_edges(name):
    lines = TABLE[name].doc.splitlines()
    assert lines[0].endswith(".")
    assert any(line.startswith("Shapes: ") for line in lines)
    assert any(line.startswith("Edges: ") for line in lines)
