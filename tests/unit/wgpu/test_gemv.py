"""matvec and vecmat of wgpu against float64 NumPy: any length, one to three vectors, splits, bands, budgets."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("wgpu")
from trueno.errors import KernelError
from trueno_wgpu.device.array import Array
from trueno_wgpu.kernels.gemv import COLUMNS, MOST_VECTORS, ROWS, Lanes, column_dispatches, row_dispatches
from unit.wgpu.products import assert_product, compute, floats, kernel, planned, unwritten

SIZES = [
    (1, 1),
    (1, 7),
    (7, 1),
    (3, 4),
    (5, 12),
    (16, 16),
    (17, 33),
    (64, 256),
    (300, 12),
    (12, 300),
    (5, 4096),
    (2, 5001),
]


def check_rows(gpu, rng, m, k, vectors=1, limits=None, **given):
    a, x = floats(rng, m, k), floats(rng, vectors, k) if vectors > 1 else floats(rng, k)
    dispatches = row_dispatches("test", m, k, limits or gpu.limits, vectors=vectors, **given)
    got = planned(gpu, dispatches, (vectors, m) if vectors > 1 else (m,), a, x)
    assert_product(got.T, a, x.T)
    return dispatches


def check_columns(gpu, rng, m, k, vectors=1, limits=None, **given):
    a, x = floats(rng, k, m), floats(rng, vectors, k) if vectors > 1 else floats(rng, k)
    dispatches = column_dispatches("test", vectors, m, k, limits or gpu.limits, **given)
    assert_product(planned(gpu, dispatches, (vectors, m) if vectors > 1 else (m,), x, a), x, a)
    return dispatches


BOTH = pytest.mark.parametrize("check", [check_rows, check_columns])


@pytest.mark.parametrize("vectors", range(1, MOST_VECTORS + 1))
@BOTH
def test_any_length(gpu, rng, check, vectors):
    for m, k in SIZES:
        check(gpu, rng, m, k, vectors)


@pytest.mark.parametrize("lanes", [Lanes(32, 1, 2), Lanes(128, 4, 4), Lanes(256, 1, 8), Lanes(16, 2, 1)], ids=str)
def test_any_lanes(gpu, rng, lanes):
    for m, k in ((37, 2048), (200, 1023)):
        check_rows(gpu, rng, m, k, lanes=lanes)
        check_columns(gpu, rng, m, k, lanes=lanes)


@BOTH
def test_splits(gpu, rng, check):
    for m, k in ((5, 4096), (17, 333), (64, 1000)):
        for vectors in (1, 3):
            (dispatch,) = check(gpu, rng, m, k, vectors, splits=5)
            assert dispatch.then is not None


def test_a_large_gpu_is_filled(gpu):
    """Few rows or columns are split; what is tall enough is not."""
    limits = replace(gpu.limits, trips=0)
    assert row_dispatches("test", 8, 1 << 20, limits)[0].then is not None
    assert row_dispatches("test", 1 << 14, 4096, limits)[0].then is None
    (dispatch,) = column_dispatches("test", 1, 4096, 4096, limits)
    assert dispatch.then is not None and dispatch.groups[0] >= 256


@BOTH
def test_a_hundred_thousand_ones(gpu, check):
    class Ones:
        def standard_normal(self, shape):
            return np.ones(shape)

    for m in (1, 3, 4):
        check(gpu, Ones(), m, 100_000)


@BOTH
def test_a_small_budget_takes_more_dispatches(gpu, rng, check):
    limits = replace(gpu.limits, trips=40)
    dispatches = check(gpu, rng, 7, 90_000, limits=limits)
    assert len(dispatches) > 1 and dispatches[-1].final and not dispatches[0].final
    check(gpu, rng, 7, 90_000, 2, limits=limits)


@pytest.mark.parametrize("splits", [0, 2])
@BOTH
def test_a_matrix_beyond_a_binding_comes_in_bands(gpu, rng, check, splits):
    for m, k, binding in ((200, 400, 64 << 10), (301, 403, 256 << 10)):
        for vectors in (1, 2):
            limits = replace(gpu.limits, binding=binding)
            assert len(check(gpu, rng, m, k, vectors, limits, splits=splits)) > 1


def test_a_result_beyond_a_binding_comes_in_bands(gpu, rng):
    limits = replace(gpu.limits, binding=16 << 10)
    assert len(check_rows(gpu, rng, 5000, 6, limits=limits)) > 1
    with pytest.raises(KernelError, match="the result has 40000 bytes, and this adapter binds 16384"):
        row_dispatches("test", 5000, 6, limits, vectors=2)


@pytest.mark.parametrize("guarded", [False, True])
def test_the_ops(gpu, rng, guarded):
    for m, k in SIZES:
        a, x, z = floats(rng, m, k), floats(rng, k), floats(rng, m)
        assert_product(compute(gpu, "matvec", (m,), a, x, guarded=guarded), a, x)
        assert_product(compute(gpu, "vecmat", (k,), z, a, guarded=guarded), z, a)
    assert gpu.take_status() == 0


@pytest.mark.parametrize("m", [37, 40])
def test_nan_and_inf_are_told(gpu, rng, m):
    a = np.abs(floats(rng, m, 44))
    a[5, 43], a[36, 0] = np.nan, np.inf
    gpu.take_status()
    y = compute(gpu, "matvec", (m,), a, np.ones(44, np.float32), guarded=True)
    assert gpu.take_status() == 3
    w = compute(gpu, "vecmat", (44,), np.ones(m, np.float32), a, guarded=True)
    assert gpu.take_status() == 3
    assert np.isnan(y[5]) and np.isposinf(y[36]) and np.isfinite(np.delete(y, [5, 36])).all()
    assert np.isnan(w[43]) and np.isposinf(w[0]) and np.isfinite(w[1:43]).all()


def test_refusals(gpu, rng):
    for op, cases in {
        "matvec": [((4, 5), (4,), (4,)), ((4, 5), (5,), (5,)), ((5,), (5,), (1,))],
        "vecmat": [((5,), (4, 5), (5,)), ((4,), (4, 5), (4,)), ((4,), (4,), (1,))],
    }.items():
        for first, second, shape in cases:
            out = unwritten(gpu, shape)
            run = kernel(gpu, op, np.empty(first), np.empty(second))
            assert run(Array.of(gpu, floats(rng, *first)), Array.of(gpu, floats(rng, *second)), out) == -1
            assert np.isnan(out.numpy()).all()
    a, x = Array.of(gpu, floats(rng, 6, 6)), Array.of(gpu, floats(rng, 6))
    before = x.numpy().tobytes()
    assert kernel(gpu, "matvec", np.empty((6, 6)), np.empty(6))(a, x, x) == -1
    assert x.numpy().tobytes() == before


def test_nothing_to_add_up(gpu):
    nothing = np.empty((4, 0), np.float32)
    assert (compute(gpu, "matvec", (4,), nothing, np.empty(0, np.float32)) == 0).all()
    assert (compute(gpu, "vecmat", (4,), np.empty(0, np.float32), nothing.T.copy()) == 0).all()
    assert compute(gpu, "matvec", (0,), nothing.T.copy(), np.ones(4, np.float32)).size == 0


def test_the_lanes_are_powers_of_two():
    for lanes in (ROWS, COLUMNS):
        assert lanes.across & (lanes.across - 1) == 0 and lanes.across <= 256
