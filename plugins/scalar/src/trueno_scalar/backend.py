"""The backend: NumPy's ufuncs over cache-sized tiles, on whatever machine NumPy runs.

One thread, no compiler, no temporaries: what NumPy's own expressions lose to memory traffic, and nothing
else.  It ranks above the reference and below everything that has vector code of its own.
"""

from typing import Any, Literal

import numpy as np
from trueno.discovery.protocol import Accuracy, Call, Device, Kernel, Probe, Rates, Reject

from trueno_scalar.kernel import row_kernel

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))

ACCURACY = Accuracy(ulp={"rsqrt": 2.0, "fma": 1.0}, default=4.0, chain=48)
"""Functions are NumPy's, whose vector code promises 4 ulp (worst seen here: float32 log 2.9, our erf 2.7).

chain: NumPy adds pairwise, 16 terms to each of 8 lanes and then a tree, so a tile of 2²² makes 16 + 3 + 15, and up
to 7 left over; tiles join in float64.  Rows that run across add at most 32 one after the other.
"""

RATES: dict[tuple[bool, int], Rates] = {
    (False, 4): Rates(launch_s=2e-6, flops=8e9, bytes=3e10),
    (False, 8): Rates(launch_s=2e-6, flops=4e9, bytes=3e10),
    (True, 4): Rates(launch_s=4e-6, flops=8e10, bytes=2e10),
    (True, 8): Rates(launch_s=4e-6, flops=4e10, bytes=2e10),
}
"""(structured, bytes of the float) → speed of one core; products of matrices are BLAS', the rest a ufunc a step."""


class ScalarBackend:
    """NumPy alone."""

    name = "scalar"
    kind: Literal["cpu", "gpu"] = "cpu"
    accuracy = ACCURACY

    def probe(self, level: int) -> Probe:
        """Present wherever NumPy is; level 2 runs one kernel and looks at its result."""
        devices = (Device("NumPy " + np.__version__),)
        if level < 2:
            return Probe(True, devices=devices)
        from trueno.ops import TABLE

        x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
        kernel = self.kernel(Call(TABLE["add"], x.dtype, "ee", 1, (4,)))
        if kernel(x, x, y) == 0 and (y == 2).all():
            return Probe(True, devices=devices)
        return Probe(False, "1 + 1 is not 2 under this NumPy; reinstall numpy", devices)

    def supports(self, call: Call) -> Reject | None:
        if call.dtype not in FLOATS:
            return Reject("unsupported_dtype", f"{call.dtype}: float32 or float64")
        if call.op.structured:
            from trueno_scalar.structured import KERNELS

            if call.op.name not in KERNELS:
                return Reject("unsupported_op", f"{call.op.name} has no kernel here")
        return None

    def kernel(self, call: Call) -> Kernel:
        if call.op.structured:
            from trueno_scalar.structured import structured_kernel

            return structured_kernel(call)
        return row_kernel(call)

    def rates(self, call: Call) -> Rates:
        return RATES[call.op.structured, call.dtype.itemsize]

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        return np.empty(shape, dtype)

    def to_device(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return x

    def to_host(self, x: np.ndarray[Any, Any], out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        if out is None:
            return x
        np.copyto(out, x)
        return out

    def synchronize(self) -> None:
        """Every call has finished when it returns."""

    def close(self) -> None:
        """Nothing is held."""
