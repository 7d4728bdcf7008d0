"""Rows of equal numbers in printed PTX, emulated: rows that are held, and in every type."""

import numpy as np
import pytest
from ml_dtypes import bfloat16

pytest.importorskip("trueno_cuda")
from unit import constant_rows


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, bfloat16], ids=lambda d: np.dtype(d).name)
def test_constant_rows_are_exact(dtype):
    constant_rows.check("cuda_emulated", dtype, (3, 1000), ((2,),))
