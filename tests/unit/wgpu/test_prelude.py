"""The safe functions on the driver that is here, against float64: every kind of bit pattern, every edge.

A bound holds for the float64 value rounded nowhere: |y - exact| in units of the float32 spacing at the exact value.
Drivers may flush subnormals: a zero is right where the exact result is one, and subnormal arguments are left out, but
where the exact result is normal and the function looks at bits alone.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from trueno.discovery.protocol import Call
from trueno.programs import language
from trueno.programs.trace import trace

special = pytest.importorskip("scipy.special", reason="needs scipy")
mpmath = pytest.importorskip("mpmath", reason="needs mpmath")
pytest.importorskip("wgpu")
from trueno_wgpu.device.array import Array  # noqa: E402
from trueno_wgpu.rows.accuracy import ULP, WORST  # noqa: E402
from trueno_wgpu.rows.rowprogram import kernel  # noqa: E402

ORACLE: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "log1p_unit": np.log1p,
    "tanh": np.tanh,
    "erf": special.erf,
    "sin": np.sin,
    "cos": np.cos,
    "atan": np.arctan,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt,
}
UNARY = sorted(ORACLE)
F = np.float32
BIG, TINY = 2.0**128, 2.0**-126

EDGES = [0.0, 2.0**-127, TINY, 2.0**-25, 2.0**-24, 2.0**-12, 0.5, 0.55, 0.70710677, 0.85, 1.0, 1.4142135]
EDGES += [np.sqrt(2) - 1, np.pi / 4, np.pi / 2, np.pi, 3.93, 10.0, 17.3, 18.0, 87.3, 88.72284, 89.0, 103.97, 104.0]
EDGES += [126.0, 127.0, 128.0, 149.0, 150.0, 2.0**16, 2.0**23, 2.0**24, 2.0**48, 2.0**72, 2.0**96, 2.0**120, 2.0**127]
EDGES += [3.4028235e38, np.inf, 1e-30]


class Bare:
    """An op of one node."""

    doc, structured = "", False

    class signature:
        text = ""

    def __init__(self, kind: str, arity: int) -> None:
        self.name, self.arity = kind, arity

    def program(self, layout: str, **static: Any) -> Any:
        function = getattr(language, self.name, None) or (lambda x, y: x / y)
        names = [f"x{i}" for i in range(self.arity)]
        return trace(lambda **given: function(*given.values()), list(zip(names, layout, strict=True)), (), {})


KERNELS: dict[str, Any] = {}


def run(gpu: Any, kind: str, *x: Any) -> Any:
    key = f"{kind} {id(gpu)}"
    if key not in KERNELS:
        KERNELS[key] = kernel(gpu, Call(Bare(kind, len(x)), np.dtype(F), "e" * len(x), 1, (1,)))
    y = Array.empty(gpu, x[0].shape, F)
    assert KERNELS[key](*(Array.of(gpu, np.ascontiguousarray(v)) for v in x), y) == 0
    return y.numpy()


def ulps(y: Any, r: Any) -> Any:
    """The error in ulps of the result; infinite if NaN or the sign of a zero differs."""
    with np.errstate(all="ignore"):
        spacing = np.spacing(np.minimum(np.abs(r), np.finfo(F).max).astype(F)).astype(np.float64)
        error = np.abs(np.clip(y.astype(np.float64), -BIG, BIG) - np.clip(r, -BIG, BIG)) / spacing
    error[np.isnan(y) & np.isnan(r)] = 0
    error[np.isnan(y) != np.isnan(r)] = np.inf
    error[(np.abs(r) < TINY) & (y == 0)] = 0
    error[(y == 0) & (r == 0) & (np.signbit(y) != np.signbit(r))] = np.inf
    return error


def judge(gpu: Any, kind: str, *x: Any) -> float:
    """The worst error, within what is stated."""
    keep = np.logical_and.reduce([(np.abs(v) >= TINY) | (v == 0) | np.isnan(v) for v in x])
    if kind == "log1p_unit":
        keep &= ~((x[0] < 0) | np.signbit(x[0]) | (x[0] > 1))
    x = tuple(v[keep] for v in x)
    y = run(gpu, kind, *x)
    function = {"pow": np.power, "div": np.divide}.get(kind) or ORACLE[kind]
    with np.errstate(all="ignore"):
        r = function(*(v.astype(np.float64) for v in x))
    error = ulps(y, r)
    at = int(error.argmax())
    words = ", ".join(repr(v[at]) for v in x)
    assert error[at] <= ULP[kind], f"{kind}({words}) = {y[at]!r}, exactly {r[at]!r}: {error[at]:.3f} ulp"
    return float(error[at])


def around(values: list[float], steps: int = 2000) -> Any:
    """Each value, its neighbours on both sides, and their negatives."""
    centre = np.array(values, F).view(np.int32)[:, None] + np.arange(-steps, steps + 1, dtype=np.int32)
    x = np.clip(centre, 0, 0x7F800000).astype(np.int32).view(F).ravel()
    return np.concatenate([x, -x])


def random_bits(rng: np.random.Generator, count: int = 500_000) -> Any:
    return rng.integers(0, 2**32, count, np.uint32).view(F)


@pytest.mark.parametrize("kind", UNARY)
def test_errors_are_as_stated(kind: str, gpu: Any, rng: np.random.Generator) -> None:
    """And, on the drivers that they were measured on, what `WORST` says of them."""
    dense = [np.linspace(-a, a, 200_000, dtype=F) for a in (1.5, 20.0, 160.0, 70_000.0)]
    waves = around((np.arange(1, 20_000) * (np.pi / 2)).tolist(), 1)
    worst = judge(gpu, kind, np.concatenate([random_bits(rng), around(EDGES), *dense, waves]))
    print(f"{kind}: {worst:.3f} ulp, {WORST[kind]} before, {ULP[kind]} stated")


@pytest.mark.parametrize("kind", UNARY)
def test_nan_stays(kind: str, gpu: Any) -> None:
    """Quiet, signalling, of either sign: in every lane."""
    bits = np.array([0x7FC00001, 0xFFC00000, 0x7F800001, 0xFFFFFFFF, 0x7FFFFFFF, 0xFF800001], np.uint32)
    assert np.isnan(run(gpu, kind, np.resize(bits.view(F), 300))).all()


@pytest.mark.parametrize("kind", ["expm1", "log1p", "tanh", "erf", "sin", "atan", "sqrt"])
def test_sign_of_zero(kind: str, gpu: Any) -> None:
    y = run(gpu, kind, np.array([0.0, -0.0], F))
    assert (y == 0).all() and list(np.signbit(y)) == [False, True]


@pytest.mark.parametrize(
    "kind, x, y",
    [
        ("exp", [-np.inf, -104, 0, -0.0, 89, np.inf], [0, 0, 1, 1, np.inf, np.inf]),
        ("exp2", [-np.inf, -151, 0, 127, 128], [0, 0, 1, 2.0**127, np.inf]),
        ("expm1", [-np.inf, -100, 89, np.inf], [-1, -1, np.inf, np.inf]),
        ("log", [0, -0.0, -1, -np.inf, 1, np.inf], [-np.inf, -np.inf, np.nan, np.nan, 0, np.inf]),
        ("log2", [0, -0.0, -1, 1, np.inf], [-np.inf, -np.inf, np.nan, 0, np.inf]),
        ("log1p", [-1, -1.0000001, -np.inf, np.inf], [-np.inf, np.nan, np.nan, np.inf]),
        ("tanh", [-np.inf, -50, 50, 100, np.inf], [-1, -1, 1, 1, 1]),
        ("erf", [-np.inf, -4, 4, np.inf], [-1, -1, 1, 1]),
        ("sin", [-np.inf, np.inf], [np.nan, np.nan]),
        ("cos", [-np.inf, np.inf, 0, -0.0], [np.nan, np.nan, 1, 1]),
        ("atan", [-np.inf, np.inf], [F(-np.pi / 2), F(np.pi / 2)]),
        ("sqrt", [-1, -np.inf, np.inf], [np.nan, np.nan, np.inf]),
        ("rsqrt", [0, -0.0, -1, np.inf], [np.inf, -np.inf, np.nan, 0]),
    ],
)
def test_exact_values(kind: str, x: list[float], y: list[float], gpu: Any) -> None:
    """Each of these was wrong on a driver of the two, by its own function."""
    np.testing.assert_array_equal(run(gpu, kind, np.array(x, F)), np.array(y, F))


def test_exact_powers(gpu: Any) -> None:
    n = np.arange(-126, 128)
    x = np.ldexp(1.0, n).astype(F)
    assert (run(gpu, "exp2", n.astype(F)) == x).all()
    assert (run(gpu, "log2", x) == n).all()
    tens = np.arange(11)  # up to 10¹⁰ a power of ten is a float32
    assert (run(gpu, "log10", (10.0**tens).astype(F)) == tens).all()


@pytest.mark.parametrize("kind", ["log", "log2", "log10"])
def test_logarithms_of_subnormals(kind: str, gpu: Any) -> None:
    """They look at bits, so it does not matter whether arithmetic flushes."""
    x = (np.arange(1, 5000, dtype=np.uint32) * 1677).view(F)
    y = run(gpu, kind, x)
    assert ulps(y, ORACLE[kind](x.astype(np.float64))).max() <= ULP[kind]


@pytest.mark.parametrize("kind", ["sin", "cos"])
def test_waves_of_huge_arguments(kind: str, gpu: Any) -> None:
    """mpmath is the judge, at random and where x comes closest to a multiple of π/2."""
    rng = np.random.default_rng(7)
    x = np.ldexp(rng.uniform(0.5, 1, 400), rng.integers(10, 129, 400)).astype(F)
    x = np.concatenate([x, np.array([16367173.0 * 2.0**72, 1e38, 3.4028235e38, 13195795.0 * 2.0**-20], F)])
    with mpmath.workdps(80):
        r = np.array([float(getattr(mpmath, kind)(mpmath.mpf(float(v)))) for v in x])
    assert ulps(run(gpu, kind, x), r).max() <= ULP[kind]


SPECIAL = [0.0, 1.0, 2.0, 0.5, 3.0, 1.5, 2.5, np.inf, 1e-30, 1e30, 3.4028235e38, 8388607.0, 8388608.0]
SPECIAL += [8388609.0, 16777215.0, 16777216.0, 16777218.0, 4194303.5, 4194304.5, 0.99999994, 1.0000001]
SPECIAL += [2147483520.0, 2147483648.0]


def test_power_special_values(gpu: Any) -> None:
    values = np.array([*SPECIAL, *(-v for v in SPECIAL), np.nan], F)
    judge(gpu, "pow", *(v.ravel().copy() for v in np.meshgrid(values, values)))


def test_power(gpu: Any, rng: np.random.Generator) -> None:
    n = 300_000
    judge(gpu, "pow", random_bits(rng, n), random_bits(rng, n))
    judge(gpu, "pow", rng.integers(-60, 60, n).astype(F), rng.integers(-30, 30, n).astype(F))
    close = 1 + rng.uniform(-1, 1, n) * np.ldexp(1.0, -rng.integers(1, 24, n))
    for x in (np.ldexp(rng.uniform(1, 2, n), rng.integers(-125, 127, n)).astype(F), close.astype(F)):
        with np.errstate(all="ignore"):  # results from below the normal numbers to overflow
            y = (rng.uniform(-152, 130, n) / np.log2(x.astype(np.float64))).astype(F)
        judge(gpu, "pow", x, y)


def test_quotients(gpu: Any, rng: np.random.Generator) -> None:
    """Divisors beyond 2^126 included, for which WGSL promises nothing."""
    judge(gpu, "div", random_bits(rng), random_bits(rng))
    values = np.array([0.0, -0.0, 1.0, -3.0, TINY, 2.0**126, 3e38, 3.4028235e38, np.inf, -np.inf, np.nan], F)
    judge(gpu, "div", *(v.ravel().copy() for v in np.meshgrid(values, values)))


def test_every_function_states_its_error() -> None:
    assert {*ORACLE, "pow", "div"} == ULP.keys() == WORST.keys()
    assert all(WORST[kind] <= ULP[kind] for kind in ULP)
