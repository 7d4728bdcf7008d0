"""Kernels of structured ops without a plan around them, for tests of what a kernel itself does."""

from typing import Any

import numpy as np
from trueno.backend import TABLE, Call, Kernel
from trueno_simd.kernels import KERNELS


def structured_kernel(op: str, dtype: Any = np.float32, **static: Any) -> Kernel:
    """The kernel of `op` with these static parameters, as simd's table makes it."""
    return KERNELS.kernel(Call(TABLE[op], np.dtype(dtype), "", 2, (0,), tuple(static.items())))
