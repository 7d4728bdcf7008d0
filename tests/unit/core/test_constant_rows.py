"""Rows of equal numbers on the host: the ops' bodies in every type, the reference and the scalar backend."""

import numpy as np
import pytest
import torch
import trueno
from ml_dtypes import bfloat16
from unit import constant_rows


def test_the_ops_are_found_in_the_table():
    assert set(constant_rows.OPS) >= {"layer_norm", "zscore", "variance", "stddev", "covariance", "correlation"}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, bfloat16], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("backend", ["reference", "scalar"])
def test_constant_rows_are_exact(backend, dtype):
    constant_rows.check(backend, dtype, (*constant_rows.LENGTHS, 4096))


@pytest.mark.parametrize("n, c", [(3, 123456.7), (4096, 1000.1), (4096, 33.3)])
def test_layer_norm_of_a_constant_row_is_pytorchs(n, c):
    x, w, b = (torch.full((n,), v, dtype=torch.float32) for v in (c, 3.0, 0.7))
    want = torch.nn.functional.layer_norm(x, (n,), w, b).numpy()
    with trueno.use("reference"):
        np.testing.assert_array_equal(trueno.layer_norm(x.numpy(), w.numpy(), b.numpy()), want)
