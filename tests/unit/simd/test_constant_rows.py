"""Rows of equal numbers, compiled; and NaN beside numbers, which the bounds of a mean do not look for."""

import numpy as np
import pytest
import trueno
from unit import constant_rows

pytest.importorskip("numba")


@pytest.mark.parametrize("dtype, ops", [("float32", constant_rows.OPS), ("float64", ("layer_norm", "variance"))])
def test_constant_rows_are_exact(dtype, ops):
    constant_rows.check("simd", dtype, (5, 130, 4099), ((70,),), ops)


def test_one_long_row_in_pieces():
    for c in (123456.7, 1000.1):
        x = np.full(150_001, c, np.float32)
        with trueno.use("simd"):
            assert trueno.variance(x) == 0
            assert not np.any(trueno.zscore(x) == 0)  # 0/0, and no number


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("n", [1, 2, 7, 31, 64, 700, 5000])
def test_what_is_not_finite_reaches_every_result(n, bad):
    x = np.random.default_rng(n).normal(0, 1, (66, n)).astype(np.float32)
    for at in {0, n // 2, n - 1}:
        y = x.copy()
        y[:, at] = bad
        with trueno.use("simd"):
            assert np.isnan(trueno.variance(y)).all()
            assert np.isnan(trueno.variance(y[0]))
            assert np.isnan(trueno.zscore(y)).all()
