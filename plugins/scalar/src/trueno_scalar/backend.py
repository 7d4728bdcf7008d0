"""The backend: NumPy's ufuncs over cache-sized tiles, on any machine with NumPy.

It uses one thread, no compiler and no temporaries, which saves the memory traffic of NumPy's own expressions.
It ranks above the reference and below every backend with its own vector code.
"""

from typing import Any, Literal

import numpy as np
from trueno.backend import Accuracy, Call, Device, Kernel, Probe, Rates, Reject

from trueno_scalar.rows.kernel import row_kernel

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))

ACCURACY = Accuracy(ulp={"rsqrt": 2.0}, default=4.0, chain=48)
"""Functions are NumPy's, whose vector code promises 4 ulp (worst seen here: float32 log 2.9, our erf 2.7).

chain: NumPy adds pairwise, 16 terms to each of 8 lanes and then a tree, so a tile of 2²² makes 16 + 3 + 15, and up
to 7 left over; tiles are combined in float64.  Rows that run across add at most 32 in sequence.
"""

UFUNC_S = 0.4e-6
"""The cost of a ufunc call; a row program makes one per node."""
ROWS = Rates(launch_s=0.4e-6, flops=12e9, bytes=8e10)
"""Of row programs in float32, beside the ufuncs' calls: from 8 (softmax) to 20 (sum) flops a nanosecond."""
MEMORY_CLASS, MEMORY_BYTES = 23, 2.5e10
"""From 4 million elements on operands come from memory, at the speed at which one core can read and write."""


class ScalarBackend:
    """Runs ops with NumPy alone."""

    name = "scalar"
    kind: Literal["cpu", "gpu"] = "cpu"
    accuracy = ACCURACY

    def probe(self, level: int) -> Probe:
        """Available wherever NumPy is; level 2 runs one kernel and checks its result."""
        devices = (Device("NumPy " + np.__version__),)
        if level < 2:
            return Probe(True, devices=devices)
        from trueno.backend import TABLE

        x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
        kernel = self.kernel(Call(TABLE["add"], x.dtype, "ee", 1, (4,)))
        if kernel(x, x, y) == 0 and (y == 2).all():
            return Probe(True, devices=devices)
        return Probe(False, "1 + 1 is not 2 under this NumPy; reinstall numpy", devices)

    def supports(self, call: Call) -> Reject | None:
        if call.dtype not in FLOATS:
            return Reject("unsupported_dtype", f"{call.dtype}: float32 or float64")
        if call.op.structured:
            from trueno_scalar.kernels import KERNELS  # here, as most programs call row ops alone

            return KERNELS.refusal(call)
        return None

    def kernel(self, call: Call) -> Kernel:
        if call.op.structured:
            from trueno_scalar.kernels import KERNELS

            return KERNELS.kernel(call)
        return row_kernel(call)

    def rates(self, call: Call) -> Rates:
        """Measured speeds of one core with AVX2 or better, NumPy 2.4 and OpenBLAS, rounded; float64 is half as fast."""
        if call.op.structured:
            from trueno_scalar.kernels import KERNELS

            in_cache = KERNELS.rates(call)
            launch = in_cache.launch_s
        else:
            in_cache = ROWS
            nodes = call.op.program(call.layout, **dict(call.static)).nodes
            launch = in_cache.launch_s + UFUNC_S * sum(bool(node.args) for node in nodes)
        far = max(call.sizes) >= MEMORY_CLASS
        memory = min(in_cache.bytes, MEMORY_BYTES) if far else in_cache.bytes
        return Rates(launch, in_cache.flops * 4 / call.dtype.itemsize, memory)

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
        """This backend holds no resources."""
