"""Merging adds nothing visible to an op's own error: hard rows, in many chunks, against exact sums."""

import math

import dask.array as da
import numpy as np
import pytest
import trueno


@pytest.fixture(autouse=True)
def reference():
    with trueno.use("reference"):
        yield


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kahan_sums_cancel_across_chunks(dtype):
    rng = np.random.default_rng(11)
    x = rng.standard_normal(1000).astype(dtype) * dtype(1e8)
    row = np.concatenate([x, [dtype(1.25)], -x[::-1]])
    assert math.fsum(map(float, row)) == 1.25
    allowed = 0 if dtype is np.float32 else 2.0**-61 * float(np.abs(row).sum())  # of a sum in twice the digits, or more
    assert abs(float(trueno.sum_kahan(da.from_array(row, chunks=77)).compute()) - 1.25) <= allowed


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_variances_far_from_zero(dtype):
    """As good as the two passes of the op itself, for means that are many deviations away from 0."""
    rng = np.random.default_rng(12)
    far = 1e4 if dtype is np.float32 else 1e8
    x = (far + rng.standard_normal((3, 4000))).astype(dtype)
    wide = x.astype(np.longdouble)
    exact = np.asarray(((wide - wide.mean(1, keepdims=True)) ** 2).mean(1), np.float64)
    whole = np.abs(trueno.variance(x) / exact - 1)
    split = np.abs(trueno.variance(da.from_array(x, chunks=(2, 130))).compute() / exact - 1)
    assert split.max() <= max(2 * whole.max(), 8 * np.finfo(dtype).eps)


def test_constant_rows_have_no_variance():
    x = da.full((3, 1000), np.float32(1.1), chunks=(2, 33))
    assert not trueno.variance(x).compute().any() and np.isnan(trueno.zscore(x).compute()).all()


def test_softmax_of_rows_with_infinities_in_one_chunk():
    inf = np.inf
    x = np.array(
        [[-inf, -inf, 1.0, 2.0], [inf, 0, 0, 0], [-inf] * 4, [0, 0, np.nan, 0], [-inf, 3, -inf, -inf]], np.float32
    )
    for chunks in ((2, 1), (5, 2), (1, 3)):
        for name in ("softmax", "log_softmax"):
            got = getattr(trueno, name)(da.from_array(x, chunks=chunks)).compute()
            assert np.allclose(got, getattr(trueno, name)(x), equal_nan=True), (name, chunks)


def test_positions_of_ties_and_of_nan():
    x = np.array([[3.0, 1, 3, 3, 0, 0], [1, np.nan, 5, np.nan, 9, 9]], np.float32)
    for size in (1, 2, 4):
        lazy = da.from_array(x, chunks=(1, size))
        assert trueno.argmax(lazy).compute().tolist() == [0, 1]
        assert trueno.argmin(lazy).compute().tolist() == [4, 1]
        assert trueno.argmax(lazy, axis=None).compute() == 7 and trueno.argmin(lazy, axis=0).compute().tolist()[:2] == [
            1,
            1,
        ]
