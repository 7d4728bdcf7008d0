"""Element functions in PTX against float64 and mpmath: any bits, dense ranges, thresholds, the worst approximations."""

import re
from collections.abc import Callable

import numpy as np
import pytest
from seeds import fresh_seed
from trueno.programs.program import ELEMENTS
from trueno_cuda.ptx import Type, f32, f64
from trueno_cuda.ptx.emulate.instructions import approximate
from trueno_cuda.rows import (
    elementary32,
    elementary32_power,
    elementary32_trig,
    elementary64,
    elementary64_power,
    elementary64_trig,
)
from trueno_cuda.rows.accuracy import ACCURACY
from trueno_cuda.rows.expressions import DOUBLE, EXPRESSIONS, SINGLE
from unit.cuda.ptx.assembler import assembled
from unit.cuda.ptx.assembler import run as assemble
from unit.cuda.rows.elementary import DTYPES, Array, around, element, exact, random_bits, run, ulps

Function = Callable[[Array], Array]
UNARY = sorted(kind for kind in SINGLE if ELEMENTS[kind].arity == 1)
SPANS = {
    f32: {"exp": (-105, 90), "exp2": (-152, 130), "expm1": (-20, 90), "tanh": (-11, 11), "erf": (-4.5, 4.5)},
    f64: {"exp": (-750, 712), "exp2": (-1078, 1026), "expm1": (-55, 712), "tanh": (-21, 21), "erf": (-6.5, 6.5)},
}
THRESHOLDS = [0.0, 0.25, 0.5, 0.55, 0.5**0.5, 0.785398163, 0.85, 1.0, 2**0.5, 2**0.5 - 1, 2**0.5 + 1, 1.570796327]
THRESHOLDS += [2.0, 3.141592654, 3.93, 4.0, 6.0, 10.0, 18.0, 20.0, 50.0, 87.33655, 88.72284, 103.97208, 126.0, 127.0]
THRESHOLDS += [128.0, 149.0, 150.0, 708.3964, 709.782712893384, 745.1332191019412, 746.0, 1022.0, 1024.0, 1074.0]
THRESHOLDS += [2.0**16, 2.0**20, 2.0**23, 2.0**48, 2.0**72, 2.0**96, 2.0**120, 2.0**-12, 2.0**-24, 2.0**-27, 2.0**-54]
THRESHOLDS += [2.0**-126, 1e-30, 16367173.0 * 2.0**72, 13195795.0 * 2.0**-20, np.inf]
BEYOND_FLOAT32 = [6381956970095103.0 * 2.0**797, 2.0**-1022, 2.0**1023]  # the first is close to a multiple of π/2


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A fresh seed each run; pytest shows it when a test fails."""
    seed = fresh_seed()
    print(f"seed {seed} of {request.node.name}")
    return np.random.default_rng(seed)


def arguments(rng: np.random.Generator, kind: str, dtype: Type, count: int) -> Array:
    """Any bits, the span where the function moves, numbers near 0 and 1, all magnitudes, thresholds."""
    low, high = SPANS[dtype].get(kind, (0, 3) if kind.startswith("log") else (-100, 100))
    parts = [
        random_bits(rng, dtype, count),
        rng.uniform(low, high, count),
        rng.uniform(-1.5, 1.5, count),
        10.0 ** rng.uniform(-18, 9, count) * rng.choice([-1, 1], count),
        np.round(rng.uniform(-2e5, 2e5, count // 4)) * (np.pi / 2),
        around(THRESHOLDS, dtype),
        around(BEYOND_FLOAT32 if dtype is f64 else [], dtype),
        np.array([np.nan, -np.nan]),
    ]
    x = np.concatenate([p.astype(DTYPES[dtype]) for p in parts])
    return x[~((x < 0) | (x > 1))] if kind == "log1p_unit" else x


def pairs(rng: np.random.Generator, dtype: Type, count: int) -> tuple[Array, Array]:
    """For pow: any bits, results of all magnitudes, whole numbers, bases near 1, and every special case."""
    least, most = (-104, 89) if dtype is f32 else (-746, 710)
    kind = DTYPES[dtype]
    special = [0.0, 1.0, 2.0, 0.5, 1.5, 3.0, np.inf, 1e-45, 3.4e38, 2.0**24, 2.0**24 - 1, 2.0**31]
    if dtype is f64:
        special += [2.0**53 - 1, 2.0**53, 1e300, 1e-320]
    grid = np.meshgrid(*2 * [np.array([*special, np.nan, *(-s for s in special)])])
    bases = [
        np.exp(rng.uniform(-80, 80, count)),
        1 + rng.uniform(-0.3, 0.4, count),
        1 + rng.uniform(-1e-3, 1e-3, count),
    ]
    x = [b.astype(kind) for b in bases]
    with np.errstate(divide="ignore"):
        y = [rng.uniform(least, most, count) / np.log(b.astype(np.float64)) for b in x]
    x += [rng.integers(-50, 50, count), random_bits(rng, dtype, count), grid[0].ravel()]
    y += [rng.integers(-30, 30, count), random_bits(rng, dtype, count), grid[1].ravel()]
    return np.concatenate([v.astype(kind) for v in x]), np.concatenate([v.astype(kind) for v in y])


def check(kind: str, dtype: Type, operands: tuple[Array, ...], fresh: bool = False) -> None:
    got = run(element(kind, dtype), *operands, fresh=fresh)
    value, low = exact(kind, *operands)
    error = ulps(got, value, low)
    worst = int(np.argmax(error))
    words = ", ".join(repr(x[worst].item()) for x in operands)
    assert error[worst] <= ACCURACY.ulp[kind], (
        f"{kind}({words}) of {dtype} = {got[worst]!r}, exactly {value[worst]!r}: {error[worst]:.3f} ulp"
    )


@pytest.mark.parametrize("kind", UNARY)
def test_float32_functions(rng: np.random.Generator, kind: str) -> None:
    check(kind, f32, (arguments(rng, kind, f32, 6000),))


@pytest.mark.parametrize("kind", UNARY)
def test_float64_functions(rng: np.random.Generator, kind: str) -> None:
    check(kind, f64, (arguments(rng, kind, f64, 200),))


@pytest.mark.parametrize("dtype, count", [(f32, 5000), (f64, 150)], ids=str)
def test_pow(rng: np.random.Generator, dtype: Type, count: int) -> None:
    check("pow", dtype, pairs(rng, dtype, count))


# ---- approximations as bad as PTX lets them be

STATED = {"ex2": 2.0, "rcp": 1.0, "rsqrt": 2.0}
"""The largest errors of .approx.f32, in ulps (PTX ISA 9.0, 9.7.3)."""
WAYS = {
    "above": lambda _: 1,
    "below": lambda _: -1,
    "either": lambda shape: np.random.default_rng(fresh_seed()).choice([-1, 1], shape),
}


@pytest.fixture(params=sorted(WAYS))
def worst(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every approximation of float32 wrong by what is stated, but where PTX fixes the result: at 0 and Inf."""

    def spoilt(right: Function, most: float) -> Function:
        def function(x: Array) -> Array:
            y = right(x)
            _, exponent = np.frexp(np.where((y == 1) & (x < 0), 0.75, np.abs(y)))  # of 2^x, which is less than 1
            far = most * np.ldexp(1.0, np.maximum(exponent - 24, -149))
            z = (y + WAYS[request.param](y.shape) * far).astype(np.float32)
            z = np.where(np.abs(z - y) > far, np.nextafter(z, y.astype(np.float32)), z).astype(np.float64)
            z = np.where(np.signbit(y) == np.signbit(z), z, 0.0 * y)
            return np.where(np.isfinite(y) & (y != 0) & (x != 0), z, y)

        return function

    for name, most in STATED.items():
        monkeypatch.setitem(approximate.FUNCTIONS, name, spoilt(approximate.FUNCTIONS[name], most))


@pytest.mark.usefixtures("worst")
@pytest.mark.parametrize("kind", ["exp", "exp2", "tanh", "erf", "atan", "rsqrt"])
def test_float32_with_the_worst_approximations(rng: np.random.Generator, kind: str) -> None:
    assert ".approx." in element(kind, f32).text
    check(kind, f32, (arguments(rng, kind, f32, 6000),), fresh=True)


@pytest.mark.usefixtures("worst")
def test_pow_with_the_worst_approximations(rng: np.random.Generator) -> None:
    check("pow", f32, pairs(rng, f32, 5000), fresh=True)


@pytest.mark.parametrize("way", [-1, 1])
def test_float64_root_with_a_bad_approximation(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, way: int
) -> None:
    """PTX does not state how good rsqrt.approx.f64 is, so half of its digits must be enough."""
    right = approximate.FUNCTIONS["rsqrt"]
    monkeypatch.setitem(approximate.FUNCTIONS, "rsqrt", lambda x: right(x) * (1 + way * 2.0**-30))
    check("rsqrt", f64, (arguments(rng, "rsqrt", f64, 300),), fresh=True)


# ---- exact properties


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_exact_powers(dtype: Type) -> None:
    info, kind = np.finfo(DTYPES[dtype]), DTYPES[dtype]
    n = np.arange(int(info.minexp) - int(info.nmant), int(info.maxexp)).astype(kind)
    powers = np.ldexp(np.ones_like(n), n.astype(int))
    np.testing.assert_array_equal(run(element("exp2", dtype), n), powers)
    np.testing.assert_array_equal(run(element("log2", dtype), powers), n)
    tens = np.arange(11 if dtype is f32 else 23)
    exact_tens = np.array([float(10 ** int(t)) for t in tens]).astype(kind)
    np.testing.assert_array_equal(run(element("log10", dtype), exact_tens), tens)


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("kind, least, most", [
    ("sin", -1, 1), ("cos", -1, 1), ("tanh", -1, 1), ("erf", -1, 1), ("expm1", -1, np.inf), ("exp", 0, np.inf),
])  # fmt: skip
def test_range(rng: np.random.Generator, kind: str, least: float, most: float, dtype: Type) -> None:
    near = np.arange(1, 200) * (np.pi / 2)
    x = np.concatenate([rng.uniform(-30, 30, 2000), np.nextafter(near, 0), near, np.nextafter(near, np.inf)])
    y = run(element(kind, dtype), x.astype(DTYPES[dtype]))
    assert ((y >= least) & (y <= most)).all()


def test_constants() -> None:
    """What the reductions and the splits rest on, beyond the digits that any argument shows."""
    mpmath = pytest.importorskip("mpmath", reason="needs mpmath")
    single, double = elementary32_trig, elementary64_trig
    with mpmath.workprec(1400):
        pi, ln2, per = mpmath.pi, mpmath.ln(2), lambda x: 1 / mpmath.ln(x)
        words = sum(word << 32 * (len(double.WORDS) - 1 - i) for i, word in enumerate(double.WORDS))
        assert words == int(mpmath.floor(mpmath.ldexp(1 / (2 * pi), 32 * (len(double.WORDS) - 1))))
        for _, scale, high, low in single.PARTS:
            turns = (mpmath.mpf(high) + mpmath.mpf(low) - 2 / pi / scale) / 4
            assert abs(turns - mpmath.nint(turns)) < 2.0**-105
        halves = [
            [float(np.float32(part)) for part in single.HALF_PI],
            double.PARTS,
            (double.HALF_PI, double.HALF_PI_LOW),
        ]
        for parts, digits in zip(halves, (70, 145, 105), strict=True):
            assert abs(sum(map(mpmath.mpf, parts)) - pi / 2) < 2.0**-digits
        close = [
            (elementary32.LN2_HIGH, float(np.float32(elementary32.LN2_LOW)), ln2, 35),
            (elementary64.LN2, elementary64.LN2_LOW, ln2, 95),
            (*elementary64.PER_LN2, per(2), 105),
            (*elementary64.PER_LN10, per(10), 105),
            (elementary64.LOG10_2, elementary64.LOG10_2_LOW, mpmath.log10(2), 95),
            (*elementary32_power.LN2, ln2, 40),
            *((*parts, -mpmath.ln(c), 40) for c, *parts in (elementary32_power.BELOW_C, elementary32_power.ABOVE_C)),
            (elementary64_power.TWO_THIRDS, elementary64_power.TWO_THIRDS_LOW, mpmath.mpf(2) / 3, 105),
        ]
        for high, low, right, digits in close:
            assert abs(mpmath.mpf(high) + mpmath.mpf(low) - right) < 2.0**-digits, right


# ---- the text


def test_every_kind_is_there() -> None:
    assert set(EXPRESSIONS) == set(ELEMENTS)
    assert set(SINGLE) == set(DOUBLE) == set(ACCURACY.ulp)


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("kind", sorted(SINGLE))
def test_functions_are_not_contracted(kind: str, dtype: Type) -> None:
    """Inside of a function each rounding is meant; a mode that is named keeps ptxas from merging two into one."""
    assert not re.findall(r"^\s*(?:add|sub|mul)\.f\d\d.*", element(kind, dtype).text, re.MULTILINE)


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("kind", sorted(SINGLE))
def test_registers(kind: str, dtype: Type) -> None:
    """A function alone leaves room for several elements a thread."""
    report = assembled(element(kind, dtype, "sm_90"))
    assert report.spilled == 0
    assert report.registers <= (24 if dtype is f32 else 40)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_120"])
@pytest.mark.parametrize("kind", ["maximum", "minimum", "expm1", "sin", "pow"])
def test_other_architectures(kind: str, arch: str) -> None:
    for dtype in (f32, f64):
        good, log = assemble(element(kind, dtype, arch).text, arch)
        assert good, log
