"""Host arrays in the layout that kernels accept: C-contiguous, aligned, in native byte order."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
LARGE, STRIPE = 1 << 16, 16
"""A transposed matrix of LARGE or more elements is copied in stripes of STRIPE rows, which fill a cache line of each
result row: NumPy's own copy visits every line of the result once per element, and takes eight times as long."""


def is_plain(a: Array) -> bool:
    """Whether kernels accept an array without a copy: C-contiguous, aligned, native."""
    flags = a.flags
    return flags.c_contiguous and flags.aligned and a.dtype.isnative


def compact(a: Array) -> Array:
    """`a` as a C-contiguous, aligned array in native byte order; `a` itself if it is one already."""
    if is_plain(a):
        return a
    if a.ndim == 2 and a.T.flags.c_contiguous and a.size >= LARGE:  # w.T of a linear layer
        rows, copy = a.T, np.empty(a.shape, a.dtype.newbyteorder("="))
        for i in range(0, len(rows), STRIPE):
            copy[:, i : i + STRIPE] = rows[i : i + STRIPE].T
        return copy
    return np.array(a, a.dtype.newbyteorder("="), order="C")
