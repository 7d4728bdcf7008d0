"""symmetric_eigen: a = V diag(w) V^T, the eigenvalues descending.

LAPACK's divide and conquer, as the op's own body calls it through NumPy.  It is O(n^3) in matrix products already
blocked for the BLAS; our own Jacobi sweep would be a multiple of that.
"""

from typing import Any

import numpy as np
from trueno.backend import TABLE, Call, Kernel, Rates
from trueno.errors import KernelError

from trueno_simd.kernels.table import KERNELS, in_callers_environment


@KERNELS.add("symmetric_eigen", rates=Rates(2e-5, 1.5e10, 2e10))
@in_callers_environment
def symmetric_eigen(device: None, call: Call) -> Kernel:
    """a[n,n] -> values[n], vectors[n,n]; column j of `vectors` belongs to values[j]."""
    dtype = call.dtype
    body = TABLE["symmetric_eigen"].body

    def kernel(a: Any, values: Any, vectors: Any) -> int:
        arrays = (a, values, vectors)
        if any(x.dtype != dtype or not x.dtype.isnative for x in arrays) or a.ndim != 2 or a.shape[0] != a.shape[1]:
            return -1
        if values.shape != a.shape[:1] or vectors.shape != a.shape:
            return -1
        if not (values.flags.writeable and vectors.flags.writeable):
            return -1
        if any(np.may_share_memory(x, y) for x, y in ((values, a), (vectors, a), (values, vectors))):
            return -1
        try:
            with np.errstate(all="ignore"):
                values[:], vectors[:] = body(a)
        except np.linalg.LinAlgError as error:
            raise KernelError(
                f"symmetric_eigen: a has no eigenvalues that LAPACK finds ({error}); where its numbers are near the "
                "largest that its dtype holds, divide it by a power of two and multiply the values again"
            ) from error
        return 0

    return kernel
