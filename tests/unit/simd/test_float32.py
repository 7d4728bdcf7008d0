"""float32 functions against float64 ones of NumPy and SciPy: every kind of bit pattern, every edge, every level.

A bound holds for the float64 value rounded nowhere: |y - exact| in units of the float32 spacing at the exact value.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

numba = pytest.importorskip("numba", reason="needs numba")
special = pytest.importorskip("scipy.special", reason="needs scipy")
mpmath = pytest.importorskip("mpmath", reason="needs mpmath")
from trueno_simd.llvm import bits, isa  # noqa: E402
from trueno_simd.llvm.jit import FLAGS  # noqa: E402
from trueno_simd.rows import float32  # noqa: E402

Array = np.ndarray[Any, Any]
ORACLE: dict[str, Callable[..., Array]] = {
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
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt,
}
UNARY = sorted(ORACLE)
F = np.float32
BIG = 2.0**128  # what Inf is the next float to

EDGES = [0.0, 2.0**-149, 2.0**-127, 2.0**-126, 2.0**-24, 2.0**-12, 0.5, 0.55, 0.70710677, 0.85, 1.0, 1.4142135]
EDGES += [np.sqrt(2) - 1, np.pi / 4, np.pi / 2, np.pi, 3.93, 10.0, 17.3, 18.0, 87.3, 88.72284, 89.0, 103.97, 104.0]
EDGES += [126.0, 127.0, 128.0, 149.0, 150.0, 2.0**16, 2.0**23, 2.0**24, 2.0**48, 2.0**72, 2.0**96, 2.0**120, 2.0**127]
EDGES += [3.4028235e38, np.inf]
EDGES += [k / 16 for k in range(1, 64)]  # where tables end and begin


def compiled(name: str) -> Any:
    f = float32.FUNCTIONS[name]

    def one(x: Any, y: Any) -> None:
        for i in range(x.size):
            y[i] = f(x[i])

    def two(x: Any, z: Any, y: Any) -> None:
        for i in range(x.size):
            y[i] = f(x[i], z[i])

    a = "float32[::1]"
    signature, loop = (f"void({a},{a},{a})", two) if name == "pow" else (f"void({a},{a})", one)
    return numba.njit(signature, cache=False, no_cfunc_wrapper=True, **FLAGS)(loop)


KERNELS: dict[str, Any] = {}


def run(name: str, *x: Array) -> Array:
    if name not in KERNELS:
        KERNELS[name] = compiled(name)
    y = np.full_like(x[0], 12345)
    KERNELS[name](*x, y)
    return y


def exact(function: Callable[..., Array], *x: Array) -> Array:
    with np.errstate(all="ignore"):
        return function(*(v.astype(np.float64) for v in x))


def ulps(y: Array, r: Array) -> Array:
    """The error in ulps of the result; infinite if NaN or the sign of a zero differs."""
    with np.errstate(all="ignore"):
        spacing = np.spacing(np.minimum(np.abs(r), np.finfo(F).max).astype(F)).astype(np.float64)
        error = np.abs(np.clip(y.astype(np.float64), -BIG, BIG) - np.clip(r, -BIG, BIG)) / spacing
    error[np.isnan(y) & np.isnan(r)] = 0
    error[np.isnan(y) != np.isnan(r)] = np.inf
    error[(y == 0) & (r == 0) & (np.signbit(y) != np.signbit(r))] = np.inf
    return error


def judge(name: str, bound: float, function: Callable[..., Array], *x: Array) -> None:
    y, r = run(name, *x), exact(function, *x)
    error = ulps(y, r)
    worst = int(error.argmax())
    words = ", ".join(repr(v[worst]) for v in x)
    assert error[worst] <= bound, f"{name}({words}) = {y[worst]!r}, exactly {r[worst]!r}: {error[worst]:.3f} ulp"


def around(values: list[float], steps: int = 2000) -> Array:
    """Each value, its neighbours on both sides, and their negatives."""
    centre = np.array(values, F).view(np.int32)[:, None] + np.arange(-steps, steps + 1, dtype=np.int32)
    x = np.clip(centre, 0, 0x7F800000).astype(np.int32).view(F).ravel()
    return np.concatenate([x, -x])


def random_bits(seed: int, count: int = 200_000) -> Array:
    return np.random.default_rng(seed).integers(0, 2**32, count, np.uint32).view(F)


def within(name: str, x: Array) -> Array:
    """What the function promises to take; a NaN always."""
    if name == "log1p_unit":
        return x[~((x < 0) | np.signbit(x) | (x > 1))]
    return x


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("seed", [1, 2])
def test_any_bits(name: str, seed: int) -> None:
    judge(name, float32.ULP[name], ORACLE[name], within(name, random_bits(seed)))


@pytest.mark.parametrize("name", UNARY)
def test_around_edges(name: str) -> None:
    judge(name, float32.ULP[name], ORACLE[name], within(name, around(EDGES)))


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("low, high", [(-1.5, 1.5), (-20.0, 20.0), (-160.0, 160.0)])
def test_dense(name: str, low: float, high: float) -> None:
    judge(name, float32.ULP[name], ORACLE[name], within(name, np.linspace(low, high, 400_000, dtype=F)))


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("count", [0, 1, 3, 16, 17, 63])
def test_nan_stays_in_every_lane(name: str, count: int) -> None:
    x = np.full(count, np.nan, F)
    assert np.isnan(run(name, x)).all()
    x = np.concatenate([x, np.array([0x7FC00001, 0xFFC00000, 0x7F800001, 0xFFFFFFFF], np.uint32).view(F)])
    assert np.isnan(run(name, x)).all()


@pytest.mark.parametrize("name", ["expm1", "log1p", "tanh", "erf", "sin", "atan", "sqrt"])
def test_sign_of_zero(name: str) -> None:
    y = run(name, np.array([0.0, -0.0], F))
    assert (y == 0).all() and list(np.signbit(y)) == [False, True]


@pytest.mark.parametrize(
    "name, x, y",
    [
        ("exp", [-np.inf, -104, 0, -0.0, 89, np.inf], [0, 0, 1, 1, np.inf, np.inf]),
        ("exp2", [-np.inf, -151, -149, 0, 127, 128], [0, 0, 2.0**-149, 1, 2.0**127, np.inf]),
        ("expm1", [-np.inf, -100, 89, np.inf], [-1, -1, np.inf, np.inf]),
        ("log", [0, -0.0, -1, -np.inf, 1, np.inf], [-np.inf, -np.inf, np.nan, np.nan, 0, np.inf]),
        ("log1p", [-1, -1.0000001, -np.inf, np.inf], [-np.inf, np.nan, np.nan, np.inf]),
        ("tanh", [-np.inf, -50, 50, np.inf], [-1, -1, 1, 1]),
        ("erf", [-np.inf, -4, 4, np.inf], [-1, -1, 1, 1]),
        ("sin", [-np.inf, np.inf], [np.nan, np.nan]),
        ("cos", [-np.inf, np.inf, 0, -0.0], [np.nan, np.nan, 1, 1]),
        ("atan", [-np.inf, np.inf], [F(-np.pi / 2), F(np.pi / 2)]),
        ("rsqrt", [0, -0.0, -1, np.inf, 4], [np.inf, -np.inf, np.nan, 0, 0.5]),
    ],
)
def test_exact_values(name: str, x: list[float], y: list[float]) -> None:
    np.testing.assert_array_equal(run(name, np.array(x, F)), np.array(y, F))


def test_exact_powers() -> None:
    n = np.arange(-149, 128)
    x = np.ldexp(1.0, n).astype(F)
    assert (run("exp2", n.astype(F)) == x).all()
    assert (run("log2", x) == n).all()
    tens = np.arange(11)  # up to 10¹⁰ a power of ten is a float32
    assert (run("log10", (10.0**tens).astype(F)) == tens).all()


@pytest.mark.parametrize("name", ["exp", "exp2", "log", "sqrt", "tanh", "atan", "erf"])
def test_grows(name: str) -> None:
    """Where neighbours fall back, they do so by rounding only."""
    x = np.linspace(0.01, 80, 500_000, dtype=F)
    y = run(name, x).astype(np.float64)
    assert (np.diff(y) >= -2 * float32.ULP[name] * np.spacing(y[1:].astype(F))).all()


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_waves_of_huge_arguments(name: str) -> None:
    """mpmath is the judge, at random and where x comes closest to a multiple of π/2."""
    rng = np.random.default_rng(7)
    x = np.ldexp(rng.uniform(0.5, 1, 400), rng.integers(10, 129, 400)).astype(F)
    x = np.concatenate([x, np.array([16367173.0 * 2.0**72, 1e38, 3.4028235e38, 13195795.0 * 2.0**-20], F)])
    with mpmath.workdps(80):
        r = np.array([float(getattr(mpmath, name)(mpmath.mpf(float(v)))) for v in x])
    assert ulps(run(name, x), r).max() <= float32.ULP[name]


def test_multiples_of_half_pi() -> None:
    """The floats next to k π/2, whose sine or cosine loses the most digits."""
    k = np.concatenate([np.arange(1.0, 60_000), np.random.default_rng(8).integers(1, 2**62, 60_000)])
    x = around((k * (np.pi / 2)).astype(F).tolist(), 1)
    for name in ("sin", "cos"):
        judge(name, float32.ULP[name], ORACLE[name], x)


@pytest.mark.skipif(not bits.AVX512, reason="needs AVX-512")
def test_the_root_without_the_hardware_has_its_bits() -> None:
    """Every exponent, and where the remainder would be subnormal; whichever root this CPU's kernels take."""
    from trueno_simd.rows.float32_avx512 import sqrt

    @numba.njit("void(float32[::1], float32[::1])", cache=False, **FLAGS)
    def roots(x: Any, y: Any) -> None:
        for i in range(x.size):
            y[i] = sqrt(x[i])

    squares = (np.arange(1, 100_000, dtype=np.float64) ** 2).astype(F)
    exponents = np.repeat(np.exp2(np.arange(-149, 128)).astype(F), 100) * np.linspace(1, 1.99, 27_700, dtype=F)
    x = np.concatenate([random_bits(15, 1_000_000), around(EDGES), squares, np.nextafter(squares, F(0)), exponents])
    y = np.empty_like(x)
    roots(x, y)
    with np.errstate(invalid="ignore"):
        wanted = np.sqrt(x)
    assert np.array_equal(np.isnan(y), np.isnan(wanted))
    assert np.array_equal(y.view(np.int32)[~np.isnan(y)], wanted.view(np.int32)[~np.isnan(y)])


def test_tangent() -> None:
    """What the printer calls for sin x / cos x: as accurate as the two and a division."""

    @numba.njit("void(float32[::1], float32[::1])", cache=False, **FLAGS)
    def tangent(x: Any, y: Any) -> None:
        for i in range(x.size):
            y[i] = float32.tan(x[i])

    x = np.concatenate([random_bits(14), around(EDGES), around((np.arange(1, 2000) * (np.pi / 2)).tolist(), 2)])
    y = np.empty_like(x)
    tangent(x, y)
    assert ulps(y, exact(np.tan, x)).max() <= float32.ULP["sin"] + float32.ULP["cos"] + 0.5


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_waves_of_ordinary_arguments(name: str) -> None:
    """Up to 2¹⁶, where the reduction stays in float32, and just beyond, where it does not."""
    x = np.concatenate([random_bits(3), around(EDGES)])
    x = np.concatenate([x, around((np.arange(1, 41_800) * (np.pi / 2)).tolist(), 2)])
    with np.errstate(invalid="ignore"):
        x = x[np.abs(x) <= 65_600]
    judge(name, float32.ULP[name], ORACLE[name], x)
    assert np.abs(run(name, x)).max() == 1  # not a rounding more


@pytest.mark.parametrize("name", UNARY)
def test_position_changes_no_bit(name: str) -> None:
    """The loop's vectors, the shorter ones of its end, and its last numbers, one by one, compute the same."""
    x = within(name, np.concatenate([np.linspace(0, 20, 80, dtype=F), random_bits(11, 70)]))
    whole = run(name, x).view(np.int32)
    for start in (0, 1, 5, 16, 33):
        for stop in (start + 1, start + 7, start + 31, x.size - 3, x.size):
            part = run(name, x[start:stop].copy())
            np.testing.assert_array_equal(part.view(np.int32), whole[start:stop], f"{name}, {start}:{stop}")


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_a_huge_argument_changes_no_other(name: str) -> None:
    """Whatever its lane, and in the loop's tail: the slow path is taken for one number alone."""
    x = np.linspace(-30, 30, 77, dtype=F)
    usual = run(name, x)
    for huge in (1e30, -70_000.0, np.inf, np.nan):
        for at in range(x.size):
            y = x.copy()
            y[at] = huge
            z = run(name, y)
            assert np.array_equal(np.delete(z, at), np.delete(usual, at))
            assert ulps(z[at : at + 1], exact(ORACLE[name], y[at : at + 1]))[0] <= float32.ULP[name]


TWICE = """
import sys, numpy as np
from trueno_simd.llvm import isa
isa.apply()
from numba import float32, float64, njit, void
from trueno_simd.rows import float32 as single, float64 as double
from trueno_simd.llvm.jit import FLAGS

def sin32(x, y):
    for i in range(x.size): y[i] = single.sin(x[i])
def both32(x, y):
    for i in range(x.size): y[i] = single.sin(x[i]) * single.cos(x[i])
def sin64(x, y):
    for i in range(x.size): y[i] = double.sin(x[i])
hits = 0
for function, kind, dtype in ((sin32, float32, "f4"), (both32, float32, "f4"), (sin64, float64, "f8")):
    kernel = njit(void(kind[::1], kind[::1]), cache=True, **FLAGS)(function)
    hits += sum(kernel.stats.cache_hits.values())
    x = np.linspace(-9, 9, 1001).astype(dtype)
    x[::100] = 1e20
    y = np.empty_like(x)
    kernel(x, y)
    r = np.sin(x.astype("f8")) * (np.cos(x.astype("f8")) if function is both32 else 1)
    assert np.allclose(y, r, atol=1e-6), function
print(hits)
"""


def test_slow_paths_are_kept_on_disk(tmp_path: Any) -> None:
    """Several kernels of a process share them, and a second process finds them in Numba's cache."""
    (tmp_path / "twice.py").write_text(TWICE)
    path = os.pathsep.join(p for p in sys.path if p)
    environment = os.environ | {"TRUENO_CACHE_DIR": str(tmp_path), "PYTHONPATH": path}
    for hits in ("0", "3"):
        done = subprocess.run(
            [sys.executable, str(tmp_path / "twice.py")], env=environment, capture_output=True, text=True, timeout=300
        )
        assert (done.returncode, done.stdout.strip()) == (0, hits), done.stderr


SPECIAL = [0.0, 1.0, 2.0, 0.5, 3.0, 1.5, 2.5, np.inf, 1e-45, 1e-40, 1e-30, 1e30, 3.4028235e38, 8388607.0, 8388608.0]
SPECIAL += [8388609.0, 16777215.0, 16777216.0, 16777218.0, 4194303.5, 4194304.5, 0.99999994, 1.0000001]
SPECIAL += [2147483520.0, 2147483648.0]


def test_power_special_values() -> None:
    values = np.array([*SPECIAL, *(-v for v in SPECIAL), np.nan], F)
    x, y = (v.ravel().copy() for v in np.meshgrid(values, values))
    judge("pow", float32.ULP["pow"], np.power, x, y)


@pytest.mark.parametrize("seed", [4, 5])
def test_power(seed: int) -> None:
    rng, n = np.random.default_rng(seed), 200_000
    judge("pow", float32.ULP["pow"], np.power, random_bits(seed, n), random_bits(seed + 10, n))
    integers = (rng.integers(-60, 60, n).astype(F), rng.integers(-30, 30, n).astype(F))
    judge("pow", float32.ULP["pow"], np.power, *integers)
    close = 1 + rng.uniform(-1, 1, n) * np.ldexp(1.0, -rng.integers(1, 24, n))
    for x in (np.ldexp(rng.uniform(1, 2, n), rng.integers(-140, 127, n)).astype(F), close.astype(F)):
        with np.errstate(all="ignore"):  # results from the smallest subnormal to overflow
            y = (rng.uniform(-152, 130, n) / np.log2(x.astype(np.float64))).astype(F)
        judge("pow", float32.ULP["pow"], np.power, x, y)


def test_an_unusual_power_changes_no_other() -> None:
    """Whatever its lane, and in the loop's tail: other cases of x^y are computed elsewhere."""
    x = np.random.default_rng(12).uniform(0.1, 9, 53).astype(F)
    y = np.random.default_rng(13).uniform(-9, 9, 53).astype(F)
    usual = run("pow", x, y)
    for start in (1, 16, 30):
        np.testing.assert_array_equal(run("pow", x[start:].copy(), y[start:].copy()), usual[start:])
    for base, exponent in ((-2.0, 3.0), (0.0, 2.0), (np.nan, 1.0), (np.inf, 1.0), (2.0, np.inf), (2.0, np.nan)):
        for at in range(x.size):
            x2, y2 = x.copy(), y.copy()
            x2[at], y2[at] = base, exponent
            z = run("pow", x2, y2)
            assert np.array_equal(np.delete(z, at), np.delete(usual, at))
            np.testing.assert_array_equal(z[at], F(base) ** F(exponent))


def test_names_and_bounds_agree() -> None:
    assert set(float32.FUNCTIONS) == set(float32.ULP) == {*ORACLE, "pow"}
    assert max(float32.ULP.values()) <= 4


# ---- exact tricks that fast-math flags or a missing FMA could break


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exact_sums_and_products(dtype: Any) -> None:
    @numba.njit(cache=False, **FLAGS)
    def pairs(x: Any, y: Any, out: Any) -> None:
        for i in range(x.size):
            out[0, i], out[1, i] = bits.two_sum(x[i], y[i])
            out[2, i], out[3, i] = bits.two_product(x[i], y[i])

    rng = np.random.default_rng(9)
    x, y = rng.normal(size=(2, 500)).astype(dtype)
    out = np.empty((4, 500), dtype)
    pairs(x, y, out)
    with mpmath.workprec(400):
        a, b, s, t, p, e = ([mpmath.mpf(float(v)) for v in row] for row in (x, y, *out))
        assert all(u + v == w + z for u, v, w, z in zip(a, b, s, t, strict=True))
        slack = 0 if bits.FMA or dtype == np.float32 else 2.0**-105
        assert all(abs(u * v - w - z) <= slack * abs(w) for u, v, w, z in zip(a, b, p, e, strict=True))


# ---- levels: Numba's target is fixed once a process

X86 = isa.detect().level in isa.X86
LEVELS = isa.X86[: isa.X86.index(isa.detect().level) + 1] if X86 else ()


def report() -> None:
    """Print level, function, packed instructions by register, calls and, for a sample, whether bounds hold."""
    for name in [*UNARY, "pow"]:
        kernel = KERNELS[name] = compiled(name)
        text = kernel.inspect_asm(kernel.signatures[0])
        packed = re.findall(r"\t(?!vp?mov|mov|vp?broadcast)v?p?\w+(?:ps|pd|d|q)\t[^\n]*%([xyz]mm)", text)
        calls = {
            c for c in re.findall(r"\$\.?(\w+)", text) if re.fullmatch(r"(fma|exp|log|pow|sin|cos|rint|ldexp)\w*", c)
        }
        print(isa.level(), name, max((packed.count(r), r) for r in ("xmm", "ymm", "zmm"))[0], *calls)
        if name != "pow":
            test_position_changes_no_bit(name)
            judge(
                name, float32.ULP[name], ORACLE[name], within(name, np.concatenate([random_bits(6), around(EDGES, 50)]))
            )
    test_exact_powers()
    test_power_special_values()
    test_multiples_of_half_pi()
    test_tangent()
    for name in ("sin", "cos"):
        test_waves_of_ordinary_arguments(name)
        test_a_huge_argument_changes_no_other(name)


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_every_level(level: str) -> None:
    """Bounds hold and no loop calls libm, whatever the registers."""
    words = ("TRUENO_MAX_ISA", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX")
    environment = {k: v for k, v in os.environ.items() if k not in words} | {"TRUENO_MAX_ISA": level}
    environment["PYTHONPATH"] = os.pathsep.join([os.path.dirname(__file__), *(p for p in sys.path if p)])
    code = "from trueno_simd.llvm import isa; assert isa.apply() is None; import test_float32; test_float32.report()"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) == len(UNARY) + 1
    for at, _, packed, *calls in lines:
        assert at == level and int(packed) > 0 and not calls
