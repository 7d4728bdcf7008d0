"""The functions that NumPy lacks, against mpmath, fractions and float64."""

import mpmath
import numpy as np
import pytest
from seeds import fresh_seed
from trueno_scalar.operands import seen
from trueno_scalar.rows import functions as f
from unit.fused import exact, operands, same

F32, F64 = np.float32, np.float64


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


@pytest.fixture
def seed():
    return fresh_seed()


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


FMA = {F32: (f.fma32, 2), F64: (f.fma64, 6)}
"""With the number of its tiles of scratch, which are float64."""


@pytest.mark.parametrize("dtype", [F32, F64])
def test_fma_is_rounded_once(dtype, seed):
    arrays = operands(dtype, np.random.default_rng(seed))
    want = exact(*arrays)
    fma, tiles = FMA[dtype]
    assert same(fma(*arrays, None, *[None] * tiles), want), f"seed {seed}"
    for place in range(3):  # out may be an argument
        args = [v.copy() for v in arrays]
        assert fma(*args, args[place], *np.empty((tiles, want.size))) is args[place]
        assert same(args[place], want), f"seed {seed}"


@pytest.mark.parametrize("dtype", [F32, F64])
def test_fma_of_plain_numbers_is_done_once(dtype, rng, monkeypatch):
    """What is done again takes twenty times as long, so usual operands must not be."""
    again = []
    monkeypatch.setattr(f, "fma", lambda *given: again.append(given[0].size) or given[2])
    fma, tiles = FMA[dtype]
    x, y, z = rng.standard_normal((3, 5000)).astype(dtype)
    x[::3], y[::5], z[::7] = 0, 0, 0
    fma(x, y, z, None, *[None] * tiles)
    assert sum(again) <= 2, again


@pytest.mark.parametrize("dtype", [F32, F64])
def test_fma_of_columns_and_of_nothing(dtype, rng):
    fma, tiles = FMA[dtype]
    x, y, z = rng.standard_normal((3, 1)).astype(dtype), rng.standard_normal(4).astype(dtype), np.array(1.5, dtype)
    got = fma(x, y, z, None, *[None] * tiles)
    assert same(got.reshape(-1), exact(*(np.broadcast_to(v, (3, 4)).reshape(-1) for v in (x, y, z))))
    assert fma(x[:0], y, z, None, *[None] * tiles).shape == (0, 4)


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
        assert seen(np.array(values, F32)) == status
    assert seen(np.array(np.nan, F32)) == 1  # a lone value too
    assert seen(np.array(1.0, F32)) == 0


def test_product(rng):
    for n in (1, 5, 2047, 2048, 5000):
        x = rng.uniform(0.9, 1.1, n)
        assert abs(f.product(x) / np.prod(x.astype(np.longdouble)) - 1) < n * 2.3e-16
