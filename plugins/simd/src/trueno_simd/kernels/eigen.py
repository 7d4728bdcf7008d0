"""symmetric_eigen: a = V diag(w) V^T, the eigenvalues descending.

LAPACK's divide and conquer, through NumPy.  It is O(n^3) in matrix products already blocked for the BLAS; a Jacobi
sweep of our own would be a multiple of that.
"""

from collections.abc import Callable
from typing import Any

import numpy as np


def _disjoint(out: Any, x: Any) -> bool:
    return not np.may_share_memory(out, x)  # by bounds alone, which is exact for contiguous arrays


def symmetric_eigen(dtype: np.dtype, static: dict[str, Any]) -> Callable[..., int]:
    """a[n,n] -> (values[n], vectors[n,n]); column j of `vectors` belongs to values[j].

    Only the lower triangle is read: that `a` is symmetric is the core's business.  A NaN or Inf in it makes
    everything NaN, as there is no decomposition; LAPACK alone would raise, loop or return finite nonsense.
    """
    dtype = np.dtype(dtype)

    def kernel(a: Any, out: Any) -> int:
        values, vectors = out
        arrays = (a, values, vectors)
        if any(x.dtype != dtype or not x.dtype.isnative for x in arrays) or a.ndim != 2 or a.shape[0] != a.shape[1]:
            return -1
        if values.shape != a.shape[:1] or vectors.shape != a.shape:
            return -1
        if not (values.flags.writeable and vectors.flags.writeable):
            return -1
        if not (_disjoint(values, a) and _disjoint(vectors, a) and _disjoint(values, vectors)):
            return -1
        if not np.isfinite(a).all():
            values.fill(np.nan)
            vectors.fill(np.nan)
            return 0
        ascending, columns = np.linalg.eigh(a)
        values[:] = ascending[::-1]
        vectors[:] = columns[:, ::-1]
        return 0

    return kernel
