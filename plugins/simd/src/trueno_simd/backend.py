"""The backend: row programs through the Numba printer, structured ops through kernels written by hand."""

import os
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np
from trueno.discovery.protocol import Accuracy, Call, Device, Kernel, Probe, Rates, Reject
from trueno.settings import settings

from trueno_simd import isa

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
PARALLEL_CLASS = 17  # size classes from 65 536 elements get kernels that may use the thread pool

ROWS = Rates(launch_s=0.15e-6, flops=3e10, bytes=1.2e11)
"""Of row programs in float32 on one core: from 15 (argmax) to 60 (exp) flops a nanosecond."""
REGION_S = 2e-6
"""Of a parallel region: waking the threads and waiting for the last."""
MEMORY_CLASS, MEMORY_BYTES = 23, 2.5e10
"""From 4 million elements on operands come from memory, at what a core can read and write."""
MEMORY_CORES = 4
"""Cores that a desktop's memory keeps busy."""


def _cpus() -> int:
    """As many as `cpus.usable_cpus` at most, known without loading Numba."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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

            if call.op.head is not None:
                from trueno_simd.epilogue import refusal

                if reason := refusal(call):
                    return Reject("unsupported_op", reason)
            elif call.op.name not in KERNELS:
                return Reject("unsupported_op", f"no kernel for {call.op.name}")
            if call.op.quantized and call.dtype != FLOATS[0]:
                return Reject("unsupported_dtype", f"{call.dtype}: blocks go with float32")
            if call.guarded:
                return Reject("unguarded", f"{call.op.name} has no guarded kernel")
        return None

    def kernel(self, call: Call) -> Kernel:
        self._set_threads()
        if call.op.structured:
            from trueno_simd.kernels import KERNELS

            if call.op.head is not None:
                from trueno_simd.epilogue import with_epilogue

                return with_epilogue(call)
            return KERNELS[call.op.name](call.dtype, dict(call.static))
        from trueno_simd.rowprogram import compiled

        parallel = max(call.sizes) >= PARALLEL_CLASS
        return compiled(call.op, call.dtype.name, call.layout, call.rank, call.static, parallel, call.guarded)

    def own_environment(self, call: Call) -> bool:
        """Compiled kernels see to it; LAPACK, which NumPy calls in the caller's thread, does not."""
        from trueno_simd import environment

        return environment.known() and call.op.name != "symmetric_eigen"

    @cache  # noqa: B019 - one object a process, and it is to run once
    def _set_threads(self) -> None:
        if count := settings.get("TRUENO_THREADS"):
            from trueno_simd import threads

            threads.set_count(count)

    def rates(self, call: Call) -> Rates:
        """What cores with AVX2 or better make of a call, from measurements, rounded; float64 computes half as fast.

        A rough figure for a machine that nobody has measured: elementary functions differ twofold among themselves.
        """
        found = ROWS
        if call.op.structured:
            from trueno_simd.kernels import RATES

            found = RATES[(call.op.head or call.op).name]
        size = max(call.sizes)
        cores = (settings.get("TRUENO_THREADS") or _cpus()) if size >= PARALLEL_CLASS else 1
        flops = found.flops * 4 / call.dtype.itemsize
        if size >= MEMORY_CLASS:
            return Rates(REGION_S, flops * cores, MEMORY_BYTES * min(cores, MEMORY_CORES))
        launch = REGION_S if cores > 1 and found.launch_s < REGION_S else found.launch_s
        return Rates(launch, flops * cores, found.bytes * cores)

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
