"""float64 functions against mpmath and long double: within their stated ulp, right at every edge.

Each ISA level below the present one runs in a child process (Numba's target is fixed once a process).
"""

import functools
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("numba", reason="needs numba")
pytest.importorskip("mpmath", reason="needs mpmath")
import mpmath
from numba import float64, njit, void
from trueno_simd.llvm import isa
from trueno_simd.llvm.jit import FLAGS
from trueno_simd.rows.float64 import FUNCTIONS, ULP

Array = npt.NDArray[np.float64]
ONE = sorted(set(FUNCTIONS) - {"pow"})
INF, NAN, TINY, LARGE = np.inf, np.nan, 5e-324, np.finfo(np.float64).max
PI = np.pi

mp = mpmath.mp.clone()
mp.prec = 140

EXACT: dict[str, Callable[..., Any]] = {
    "exp": mp.exp,
    "exp2": lambda x: mp.power(2, x),
    "expm1": mp.expm1,
    "log": mp.log,
    "log2": lambda x: mp.log(x) / mp.log(2),
    "log10": mp.log10,
    "log1p": mp.log1p,
    "log1p_unit": mp.log1p,
    "tanh": mp.tanh,
    "erf": mp.erf,
    "sin": mp.sin,
    "cos": mp.cos,
    "atan": mp.atan,
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "pow": mp.power,
}

# Where a function is computed at all; beyond, `EDGES` and the saturation test speak.
DOMAIN = {
    "exp": (-745.5, 710.0),
    "exp2": (-1075.5, 1024.5),
    "expm1": (-760.0, 710.0),
    "log": (TINY, LARGE),
    "log2": (TINY, LARGE),
    "log10": (TINY, LARGE),
    "log1p": (-1.0 + 2.0**-53, LARGE),
    "log1p_unit": (0.0, 1.0),
    "rsqrt": (TINY, LARGE),
}

# Zeros, branch points and range ends, whose neighbourhoods are sampled densely.
LN2 = 0.6931471805599453
NEAREST = 6381956970095103 * 2.0**797  # no float64 comes closer to a multiple of π/2
POINTS: dict[str, tuple[float, ...]] = {
    "exp": (0, 1, LN2 / 2, 1.5 * LN2, -LN2 / 2, 100.5 * LN2, 709.782712893384, -708.3964185322641, -745.1332191019411),
    "exp2": (0, 0.5, -0.5, 1.5, 10.5, 1023.9999999999999, -1022, -1073.5, -1074.5),
    "expm1": (0, LN2 / 2, -LN2 / 2, 1.5 * LN2, 2.0**-54, 2.0**-27, 36.7, 37.4, -37, 709.782712893384),
    "log": (1, 0.5**0.5, 2**0.5, 2, 0.25, 2.2250738585072014e-308, 1.5, LARGE),
    "log2": (1, 0.5**0.5, 2**0.5, 2, 0.25, 2.2250738585072014e-308, 1.5, LARGE),
    "log10": (1, 10, 1000, 0.1, 0.5**0.5, 2**0.5, 2.2250738585072014e-308, LARGE),
    "log1p": (0, -0.2928932188134524, 0.41421356237309503, 1, -1, 2.0**53, 2.0**-54, -0.5, LARGE),
    "log1p_unit": (0, 0.41421356237309503, 0.5, 1, 2.0**-54, 2.0**-27),
    "tanh": (0, 2.0**-27, LN2 / 4, 0.75 * LN2, 0.55, 1, 19.06, 20),
    "erf": (0, 1, 0.5, 0.84375, 2, 5.9, 6, 2.0**-28),
    "sin": (0, *(k * PI for k in (0.25, 0.5, 0.75, 1, 2, 3, 7, 355, 1e4, 318309)), 1e6, 2.0**20, NEAREST),
    "cos": (0, *(k * PI for k in (0.25, 0.5, 0.75, 1, 1.5, 2.5, 11.5, 1e4 + 0.5, 318308.5)), 1e6, NEAREST),
    "atan": (0, 0.41421356237309503, 2.414213562373095, 1, 0.5, 2.0**-27, 1e17),
    "rsqrt": (1, 2, 4, 0.25, 2.2250738585072014e-308, LARGE),
}  # fmt: skip

# Exact answers, signs of zero included.
ZERO, ODD = ((0.0, 0.0), (-0.0, -0.0)), ((0.0, 0.0), (-0.0, -0.0), (TINY, TINY), (-TINY, -TINY))
ONE_AT_ZERO = ((0.0, 1), (-0.0, 1), (TINY, 1), (-TINY, 1))
LOG = ((1, 0.0), (0.0, -INF), (-0.0, -INF), (INF, INF), (-TINY, NAN), (-1, NAN), (-LARGE, NAN), (-INF, NAN))
UNIT = ((INF, 1), (-INF, -1), (20, 1), (-20, -1), (LARGE, 1), (-LARGE, -1))
EDGES: dict[str, tuple[tuple[float, float], ...]] = {
    "exp": (*ONE_AT_ZERO, (INF, INF), (-INF, 0.0), (710, INF), (-746, 0.0), (LARGE, INF), (-LARGE, 0.0)),
    "exp2": (*ONE_AT_ZERO, (INF, INF), (-INF, 0.0), (1024, INF), (-1075, 0.0), (LARGE, INF), (-LARGE, 0.0)),
    "expm1": (*ODD, (INF, INF), (-INF, -1), (710, INF), (LARGE, INF), (-LARGE, -1)),
    "log": LOG,
    "log2": (*LOG, (TINY, -1074)),
    "log10": LOG,
    "log1p": (*ODD, (-1, -INF), (INF, INF), (-1.0000000000000002, NAN), (-LARGE, NAN), (-INF, NAN)),
    "log1p_unit": (*ZERO, (1, LN2), (TINY, TINY)),
    "tanh": (*ODD, *UNIT),
    "erf": (*ODD, *UNIT),
    "sin": (*ODD, (INF, NAN), (-INF, NAN)),
    "cos": (*ONE_AT_ZERO, (INF, NAN), (-INF, NAN)),
    "atan": (*ODD, (INF, PI / 2), (-INF, -PI / 2), (LARGE, PI / 2), (1, PI / 4), (-1, -PI / 4)),
    "rsqrt": ((0.0, INF), (-0.0, -INF), (INF, 0.0), (-INF, NAN), (-TINY, NAN), (-1, NAN), (4, 0.5), (TINY, 2.0**537)),
}


@functools.cache
def kernel(name: str) -> Any:
    """A plain loop around one function, as the printed kernels have."""
    f = FUNCTIONS[name]
    if name == "pow":

        @njit(void(float64[::1], float64[::1], float64[::1]), **FLAGS)
        def two(x, y, out):  # type: ignore[no-untyped-def]
            for i in range(x.size):
                out[i] = f(x[i], y[i])

        return two

    @njit(void(float64[::1], float64[::1]), **FLAGS)
    def one(x, out):  # type: ignore[no-untyped-def]
        for i in range(x.size):
            out[i] = f(x[i])

    return one


def run(name: str, *arguments: npt.ArrayLike) -> Array:
    """The function by the vector loop and, at the ends, by the scalar one: both must agree to the bit."""
    xs = [np.ascontiguousarray(a, np.float64) for a in arguments]
    out = np.full(xs[0].shape, 77.0)
    kernel(name)(*xs, out)
    for i in range(0, len(out), max(1, len(out) // 50)):
        lone = np.full(1, 77.0)
        kernel(name)(*(x[i : i + 1] for x in xs), lone)
        assert lone.tobytes() == out[i : i + 1].tobytes() or (np.isnan(lone[0]) and np.isnan(out[i]))
    return out


def error(got: float, exact: Any) -> float:
    """|got - exact| in ulp of the exact value; overflow and NaN must be the same."""
    rounded = float(exact)
    if not np.isfinite(rounded) or not np.isfinite(got):
        near = abs(exact) > mp.mpf(LARGE) * (1 - mp.mpf(2) ** -50) and abs(got) >= LARGE * (1 - 2.0**-50)
        return 0.0 if got == rounded or (near and got * rounded > 0) else INF
    return float(abs(mp.mpf(got) - exact) / mp.mpf(math.ulp(rounded)))


def worst(name: str, *arguments: Array) -> tuple[float, Any]:
    got = run(name, *arguments)
    found: tuple[float, Any] = (0.0, None)
    for y, *xs in zip(got.tolist(), *(a.tolist() for a in arguments), strict=True):
        e = error(y, EXACT[name](*(mp.mpf(x) for x in xs)))
        if not e <= found[0]:
            found = (e, (*xs, y))
    return found


def random(name: str) -> np.random.Generator:
    return np.random.default_rng([64, *name.encode()])


def patterns(rng: np.random.Generator, count: int) -> Array:
    """Floats of random bits: every exponent, subnormals, a few NaN."""
    bits = rng.integers(0, 2**64, count, dtype=np.uint64)
    bits[: count // 50] &= np.uint64(0x800FFFFFFFFFFFFF)
    return bits.view(np.float64)


def within(name: str, x: Array) -> Array:
    low, top = DOMAIN.get(name, (-LARGE, LARGE))
    return x[(x >= low) & (x <= top)]


def around(points: Iterable[float], rng: np.random.Generator, count: int) -> Array:
    """Neighbours of each point: the nearest floats, and others at distances of every scale."""
    seen = []
    for p in map(float, points):
        step = math.ulp(p)
        seen.append(p + step * np.arange(-count // 4, count // 4))
        scale = abs(p) if p else 1.0
        seen.append(p + scale * rng.standard_normal(count) * 2.0 ** -rng.integers(0, 1070 if p == 0 else 50, count))
    return np.concatenate(seen)


def same(a: Array, b: Array) -> npt.NDArray[np.bool_]:
    return ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))


def test_bounds_are_stated() -> None:
    assert set(ULP) == set(FUNCTIONS) == set(EXACT)
    assert max(ULP.values()) <= 4


@pytest.mark.parametrize("name", ONE)
def test_bits_at_random(name: str) -> None:
    rng = random(name)
    x = within(name, patterns(rng, 12_000))[:1500]
    low, top = DOMAIN.get(name, (-30.0, 30.0))
    x = np.concatenate([x, rng.uniform(max(low, -800), min(top, 1100), 1500)])
    e, at = worst(name, x)
    assert e <= ULP[name], (name, e, at)


@pytest.mark.parametrize("name", ONE)
def test_near_zeros_and_branches(name: str) -> None:
    with np.errstate(over="ignore"):
        x = within(name, around(POINTS[name], random(name), 60))
    e, at = worst(name, x)
    assert e <= ULP[name], (name, e, at)


LONG_DOUBLE = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10,
    "log1p": np.log1p, "log1p_unit": np.log1p, "tanh": np.tanh, "sin": np.sin, "cos": np.cos, "atan": np.arctan,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}  # fmt: skip


def against_long_double(name: str, count: int) -> tuple[float, float]:
    rng = random(name)
    low, top = DOMAIN.get(name, (-300.0, 300.0))
    x = np.concatenate(
        [
            rng.uniform(max(low, -700), min(top, 700), count),
            rng.uniform(-1.5, 1.5, count),
            rng.standard_normal(count) * 2.0 ** -rng.integers(0, 40, count),
            1 + rng.standard_normal(count) * 2.0 ** -rng.integers(0, 40, count),
        ]
    )
    x = within(name, x)
    exact = LONG_DOUBLE[name](x.astype(np.longdouble))
    e = np.abs(run(name, x) - exact) / np.spacing(np.abs(exact.astype(np.float64)))
    i = int(np.argmax(np.where(np.isnan(e), INF, e)))
    return float(e[i]), float(x[i])


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="long double is no wider than float64 here")
@pytest.mark.parametrize("name", sorted(LONG_DOUBLE))
def test_many_against_long_double(name: str) -> None:
    e, at = against_long_double(name, 25_000)
    assert e <= ULP[name], (name, e, at)


@pytest.mark.parametrize("name", ONE)
def test_edges(name: str) -> None:
    x, want = (np.array(v, np.float64) for v in zip(*EDGES[name], strict=True))
    got = run(name, np.tile(x, 5))
    assert same(got, np.tile(want, 5)).all(), list(zip(x, got, want, strict=False))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nan_stays(name: str) -> None:
    """A quiet NaN of either sign and any payload, alone and among numbers, and beside huge ones."""
    bits = np.array([0x7FF8 << 48, 0xFFF8 << 48, (0x7FF8 << 48) + 12345, -1 & 0xFFFFFFFFFFFFFFFF], np.uint64)
    x = np.tile(np.concatenate([[0.5, 1e300, 0.75], bits.view(np.float64)]), 7)
    got = run(name, x, np.full_like(x, 1.5)) if name == "pow" else run(name, x)
    expected = np.isnan(x) if name != "log1p_unit" else np.isnan(x) | (x > 1)
    assert np.isnan(got[np.isnan(x)]).all()
    assert not np.isnan(got[~expected]).any()


def test_saturation() -> None:
    """Beyond the range of the result nothing but Inf, zero or the limit comes out."""
    x = np.abs(patterns(random("saturation"), 20_000))
    x = x[np.isfinite(x)]
    big = x[x > 1100.0]
    limits = (("exp", INF, 0.0), ("exp2", INF, 0.0), ("expm1", INF, -1.0), ("tanh", 1, -1), ("erf", 1, -1))
    for name, up, down in limits:
        assert same(run(name, big), np.full_like(big, up)).all(), name
        assert same(run(name, -big), np.full_like(big, down)).all(), name
    for name in ("log", "log2", "log10", "rsqrt"):
        assert np.isnan(run(name, -x[x > 0])).all(), name
    assert np.isnan(run("log1p", -x[x > 1])).all()


def test_exact_values() -> None:
    n = np.arange(-1074.0, 1024.0)
    powers = np.ldexp(1.0, n.astype(np.int32))
    assert same(run("exp2", n), powers).all()
    assert (run("log2", powers) == n).all()
    tens = np.arange(0.0, 23.0)
    assert (run("log10", 10.0**tens) == tens).all()
    whole = np.arange(-9.0, 10.0)
    x, y = np.repeat(whole, 12), np.tile(np.arange(12.0), 19)
    assert same(run("pow", x, y), x**y).all()


def test_odd_and_even() -> None:
    x = patterns(random("odd"), 5000)
    for name in ("sin", "tanh", "erf", "atan"):
        assert same(run(name, -x), -run(name, x)).all(), name
    assert same(run("cos", -x), run("cos", x)).all()


def test_huge_angles() -> None:
    """Payne and Hanek's path, alone and in a vector beside small angles."""
    rng = random("huge")
    x = rng.uniform(1, 2, 1500) * 2.0 ** rng.integers(19, 1023, 1500) * rng.choice([-1, 1], 1500)
    x[::7] = rng.uniform(-9, 9, len(x[::7]))
    with np.errstate(over="ignore"):
        near = np.array([float(mp.mpf(k) * mp.pi / 2) for k in 2 ** rng.integers(20, 900, 300).astype(object) + 1])
    for name in ("sin", "cos"):
        e, at = worst(name, np.concatenate([x, near]))
        assert e <= ULP[name], (name, e, at)


def pairs(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    """Bases of every size, exponents that keep the power in range; and bases near 1."""
    x = np.concatenate(
        [
            np.exp(rng.uniform(-744, 709, count)),
            np.abs(1 + rng.standard_normal(count) * 2.0 ** -rng.integers(1, 52, count)),
            rng.uniform(0.5, 2, count),
        ]
    )
    x = x[x != 1]
    y = rng.uniform(-745, 710, len(x)) / np.log(x)
    kept = np.isfinite(y)
    return x[kept], y[kept]


def test_pow() -> None:
    rng = random("pow")
    e, at = worst("pow", *pairs(rng, 900))
    assert e <= ULP["pow"], (e, at)
    x, y = rng.integers(-30, 30, 900).astype(float), rng.integers(-60, 60, 900).astype(float)
    e, at = worst("pow", x[x != 0], y[x != 0])
    assert e <= ULP["pow"], (e, at)


def test_pow_anywhere() -> None:
    """Random bits: most powers are out of range, so compare them with the C library's."""
    rng = random("anywhere")
    x, y = patterns(rng, 20_000), patterns(rng, 20_000)
    y[::2] = rng.standard_normal(10_000) * 2.0 ** rng.integers(-5, 9, 10_000)
    with np.errstate(all="ignore"):
        want = np.power(x, y)
        got = run("pow", x, y)
        apart = np.abs(got - want) / np.spacing(np.abs(want))
    close = same(got, want) | ((apart <= 2) & (np.signbit(got) == np.signbit(want)))
    assert close.all(), list(zip(x[~close], y[~close], got[~close], want[~close], strict=True))[:5]


def test_pow_special() -> None:
    """All pairs of special values, by C99's Annex F (which Python's and NumPy's powers follow)."""
    one = (1.0, 2.0, 3.0, 0.5, 1.5, 1e308, TINY, 2.0**52 + 1, 2.0**53 + 2, 1 - 2.0**-53, 1 + 2.0**-52, 0.0, INF)
    values = np.array([*one, *(-v for v in one), NAN])
    x, y = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        want = np.power(x, y)
        got = run("pow", x, y)
        apart = np.abs(got - want) / np.spacing(np.abs(want))
    close = same(got, want) | ((apart <= 1) & (np.signbit(got) == np.signbit(want)))
    assert close.all(), list(zip(x[~close], y[~close], got[~close], want[~close], strict=True))


def test_position_changes_no_bit() -> None:
    """The loop's vectors, the shorter ones of its end, and its last numbers, one by one, compute the same."""
    rng = random("position")
    x, y = rng.uniform(0.1, 9, 45), rng.uniform(-9, 9, 45)
    for name in FUNCTIONS:
        operands = (x, y) if name == "pow" else (within(name, x),)
        whole = run(name, *operands)
        for start in (1, 8, 19):
            part = run(name, *(np.ascontiguousarray(v[start:]) for v in operands))
            np.testing.assert_array_equal(part, whole[start:], name)


def test_an_unusual_power_changes_no_other() -> None:
    rng = random("unusual")
    x, y = rng.uniform(0.1, 9, 29), rng.uniform(-9, 9, 29)
    usual = run("pow", x, y)
    for base, exponent in ((-2.0, 3.0), (0.0, 2.0), (NAN, 1.0), (2.0, INF), (2.0, NAN)):
        for at in range(x.size):
            x2, y2 = x.copy(), y.copy()
            x2[at], y2[at] = base, exponent
            z = run("pow", x2, y2)
            assert np.array_equal(np.delete(z, at), np.delete(usual, at))
            np.testing.assert_array_equal(z[at], np.float64(base) ** exponent)


LIBM = r"\b_?(exp2?|expm1|log(2|10|1p)?|tanh|erf|sin|cos|atan|pow|sqrt|fma|ldexp|rint|floor|trunc|fmod)f?\b"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_loop_is_vectorized(name: str) -> None:
    level = isa.level()
    if level not in isa.X86:
        pytest.skip(f"no assembly patterns for {level}")
    (assembly,) = kernel(name).inspect_asm().values()
    assert not re.findall(rf"(?:callq?\s+|\$){LIBM}", assembly)
    assert re.search(r"\tv?(mul|add|sub|div|sqrt|fn?m(add|sub)\d+)pd\s", assembly)
    # At sse2 and avx LLVM's cost tables see no gain in dividing by the vector: rsqrt may stay narrow there.
    if name != "rsqrt":
        # With AVX-512, LLVM's tuning for the CPU decides between 512 and 256 bits.
        own = "[yz]mm" if level == "avx512" else isa.registers(level)
        assert re.search(rf"\tv?(mul|add)pd\s.*%{own}", assembly)


LEVELS = isa.X86[: isa.X86.index(isa.level())] if isa.level() in isa.X86 else ()


@pytest.mark.skipif("TRUENO_FLOAT64_CHILD" in os.environ, reason="this is the child process")
@pytest.mark.parametrize("level", LEVELS)
def test_lower_level(level: str) -> None:
    """The tests that need no mpmath, once more, with a lower level's instructions."""
    environment = os.environ | {"TRUENO_MAX_ISA": level, "TRUENO_FLOAT64_CHILD": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    which = "long_double or edges or nan or saturation or exact_values or pow_ or vectorized"
    if level == "avx":  # the instructions of sse2 but for their width
        which = "edges or pow_ or vectorized"
    arguments = ["-q", "-x", "-p", "no:cacheprovider", __file__, "-k", which]
    code = f"from trueno_simd.llvm import isa; assert not isa.apply(); import pytest; exit(pytest.main({arguments}))"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:]
