"""The backend: row programs through the Numba printer, structured ops through kernels written by hand."""

from functools import cache, cached_property
from typing import Any, Literal

import numpy as np
from trueno.discovery.protocol import Accuracy, Call, Device, Kernel, Probe, Rates, Reject
from trueno.settings import settings

from trueno_simd import isa

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
PARALLEL_CLASS = 17  # size classes from 65 536 elements get kernels that may use the thread pool


class SimdBackend:
    """Compiled vector kernels on the CPU."""

    name = "simd"
    kind: Literal["cpu", "gpu"] = "cpu"

    def __init__(self) -> None:
        isa.cap(settings.get("TRUENO_MAX_ISA"))

    @cached_property
    def accuracy(self) -> Accuracy:
        """The measured bounds of the element functions, and 64 additions a lane plus its joins."""
        from trueno_simd import float32, float64

        names = {*float32.ULP, *float64.ULP}
        return Accuracy({n: max(float32.ULP.get(n, 0.5), float64.ULP.get(n, 0.5)) for n in names}, chain=76)

    def probe(self, level: int) -> Probe:
        reason = isa.apply()
        if reason:
            return Probe(False, reason)
        return Probe(True, devices=(Device(isa.current().cpu, isa.level()),))

    def supports(self, call: Call) -> Reject | None:
        if call.dtype not in FLOATS:
            return Reject("unsupported_dtype", f"{call.dtype}: float32 or float64")
        if call.op.structured:
            from trueno_simd.kernels import KERNELS

            if call.op.name not in KERNELS or call.guarded:
                return Reject("unsupported_op", f"no kernel for {call.op.name}")
        return None

    def kernel(self, call: Call) -> Kernel:
        self._set_threads()
        if call.op.structured:
            from trueno_simd.kernels import KERNELS

            return KERNELS[call.op.name](call.dtype, dict(call.static))
        from trueno_simd.rowprogram import compiled

        parallel = max(call.sizes) >= PARALLEL_CLASS
        return compiled(call.op, call.dtype.name, call.layout, call.rank, call.static, parallel, call.guarded)

    @cache  # noqa: B019 - one object a process, and it is to run once
    def _set_threads(self) -> None:
        if count := settings.get("TRUENO_THREADS"):
            from trueno_simd import threads

            threads.set_count(count)

    def rates(self, call: Call) -> Rates:
        return Rates(launch_s=0.3e-6, flops=2e10, bytes=2e10)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return np.empty(shape, dtype)

    def to_device(self, x: np.ndarray[Any, Any]) -> Any:
        return x

    def to_host(self, x: Any, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        if out is None:
            return np.asarray(x)
        np.copyto(out, x)
        return out

    def synchronize(self) -> None:
        pass

    def close(self) -> None:
        pass
