"""The functions that NumPy lacks, against mpmath, Python's fractions and float64."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from trueno_scalar import functions as f

F32, F64 = np.float32, np.float64


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def ulps(got, want, dtype):
    """|got − want| in units of the last place of `want`."""
    info = np.finfo(dtype)
    exponent = np.maximum(np.frexp(np.abs(want))[1] - 1, info.minexp)
    return np.abs(got.astype(want.dtype) - want) / np.ldexp(1.0, exponent - info.nmant)


def test_erf_float32():
    x = np.arange(0, 2**32, 65_521, dtype=np.uint64).astype(np.uint32).view(F32)  # a prime step: all exponents
    x = np.concatenate([x, np.linspace(-4.5, 4.5, 40_001, dtype=F32)])
    x = x[np.isfinite(x)]
    with mpmath.workprec(100):
        want = np.array([float(mpmath.erf(v)) for v in x.tolist()])
    assert ulps(f.erf(x, None, None, None), want, F32).max() <= 4


def test_erf_float64(rng):
    x = np.concatenate([rng.standard_normal(2000), rng.uniform(-7, 7, 2000), 2.0 ** -rng.uniform(0, 1022, 500)])
    got = f.erf(x, None, None, None).tolist()
    with mpmath.workprec(200):
        worst = max(
            float(abs(mpmath.mpf(g) - (w := mpmath.erf(v))) / mpmath.ldexp(1, max(mpmath.frexp(w)[1], -1021) - 53))
            for v, g in zip(x.tolist(), got, strict=True)
        )
    assert worst <= 4


@pytest.mark.parametrize("dtype", [F32, F64])
def test_erf_edges(dtype):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 40, -40], dtype)
    y = f.erf(x, None, None, None)
    np.testing.assert_array_equal(y, np.array([0, 0, 1, -1, np.nan, 1, -1], dtype))
    assert np.signbit(y)[[0, 1]].tolist() == [False, True]
    a, p = np.empty_like(x), np.empty_like(x)
    np.testing.assert_array_equal(f.erf(x, x, a, p), y)  # in place


def test_fma_float64_is_correctly_rounded(rng):
    x, y = rng.standard_normal((2, 3000))
    z = np.where(rng.random(3000) < 0.3, rng.standard_normal(3000), -x * y * (1 + rng.integers(-3, 4, 3000) * 2.0**-52))
    got = f.fma64(x, y, z, None, *[None] * 6)
    want = [
        float(Fraction(a) * Fraction(b) + Fraction(c))
        for a, b, c in zip(*map(np.ndarray.tolist, (x, y, z)), strict=True)
    ]
    np.testing.assert_array_equal(got, want)


def test_fma_edges():
    x, y, z = np.array(
        [[1e300, 1e308, 2.0, np.inf, 1e308], [1e-10, 1e300, 3.0, 0.0, 1.5], [1.0, 1.0, np.nan, 1.0, -1e308]]
    )
    np.testing.assert_array_equal(f.fma64(x, y, z, x, *[None] * 6), [1e290, np.inf, np.nan, np.nan, 5e307])


def test_fma_float32(rng):
    x, y = rng.standard_normal((2, 3000)).astype(F32)
    z = -(x * y)
    exact = x.astype(F64) * y + z
    np.testing.assert_array_equal(f.fma32(x, y, z, None, None), exact.astype(F32))
    np.testing.assert_array_equal(f.fma32(x, y, z, z, np.empty(3000)), exact.astype(F32))


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("n", [10, 10_000])
def test_choosing_by_bits(dtype, n, rng):
    x, y = rng.standard_normal((2, n)).astype(dtype)
    x[::7], y[::5], x[::9] = np.nan, -np.inf, -0.0
    c = rng.random(n) < 0.5
    bits = np.empty(n, f.INTEGER[np.dtype(dtype)])
    for place in range(3):  # out may be either argument
        a, b = x.copy(), y.copy()
        out = [np.empty_like(a), a, b][place]
        np.testing.assert_array_equal(f.where(c, a, b, out, bits), np.where(c, x, y))
        a, b = x.copy(), y.copy()
        out = [np.empty_like(a), a, b][place]
        got, want = f.copysign(a, b, out, bits), np.copysign(x, y)
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def test_seen():
    for values, status in ([1, 2], 0), ([1, np.nan], 1), ([-np.inf, 1], 2), ([np.inf, np.nan], 3), ([3e38, 3e38], 0):
        assert f.seen(np.array(values, F32)) == status
    assert f.seen(np.array(np.nan, F32)) == 1  # a lone value too
    assert f.seen(np.array(1.0, F32)) == 0


def test_product(rng):
    for n in (1, 5, 2047, 2048, 5000):
        x = rng.uniform(0.9, 1.1, n)
        assert abs(f.product(x) / np.prod(x.astype(np.longdouble)) - 1) < n * 2.3e-16
