"""Arrays of the host as kernels can take them: C-contiguous, aligned, in native byte order."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
LARGE, STRIPE = 1 << 16, 16
"""From so many elements on a transposed matrix is copied in stripes of so many rows, which fill a cache line of each
result row: NumPy's own copy visits every line of the result once an element, and takes eight times as long."""


def is_plain(a: Array) -> bool:
    """Whether kernels can take an array as it is: C-contiguous, aligned, native."""
    flags = a.flags
    return flags.c_contiguous and flags.aligned and a.dtype.isnative


def compact(a: Array) -> Array:
    """C-contiguous, aligned and native, copying only if it is not so already."""
    if is_plain(a):
        return a
    if a.ndim == 2 and a.T.flags.c_contiguous and a.size >= LARGE:  # w.T of a linear layer
        rows, made = a.T, np.empty(a.shape, a.dtype.newbyteorder("="))
        for i in range(0, len(rows), STRIPE):
            made[:, i : i + STRIPE] = rows[i : i + STRIPE].T
        return made
    return np.array(a, a.dtype.newbyteorder("="), order="C")
