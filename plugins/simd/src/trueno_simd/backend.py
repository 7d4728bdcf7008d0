"""The backend: row programs through the Numba printer, structured ops through hand-written kernels.

What needs Numba is imported and compiled in a thread of its own (`trueno_simd.llvm.elsewhere`).
"""

import os
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from trueno.backend import Accuracy, Call, Device, Kernel, Probe, Rates, Reject, settings

from trueno_simd.llvm import elsewhere, isa
from trueno_simd.llvm.caches import last_cache
from trueno_simd.rows import work

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trueno.backend import EntryLayout, EntrySpec

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
PARALLEL_CLASS = 17  # size classes from 65 536 elements on: where structured kernels start to use the thread pool
REGION_S = 2e-6
"""The cost of a parallel region: waking the threads and waiting for the last."""
MEMORY_CLASS, MEMORY_BYTES = 23, 2.5e10
"""From 4 million elements on operands come from memory, at the speed at which a core can read and write."""
MEMORY_CORES = 4
"""Cores that saturate a desktop's memory."""


def _cpus() -> int:
    """At most `cpus.usable_cpus`, known without loading Numba."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _module(name: str) -> Any:
    """A module of this plugin that imports Numba, or may."""
    return elsewhere.run(partial(elsewhere.module, f"trueno_simd.{name}"))


def _kernels() -> Any:
    """The table of structured kernels."""
    return _module("kernels").KERNELS


def _parallel(call: Call) -> bool:
    """Whether calls of this key may use the thread pool: the smallest of a row program's is worth a piece."""
    if call.op.structured:
        return max(call.sizes) >= PARALLEL_CLASS
    program = call.op.program(call.layout, **dict(call.static))
    return 1 << (max(call.sizes) - 1) >= work.piece(program, call.dtype.itemsize, call.rank)


class SimdBackend:
    """Compiled vector kernels on the CPU."""

    name = "simd"
    kind: Literal["cpu", "gpu"] = "cpu"

    def __init__(self) -> None:
        isa.cap(settings.get("TRUENO_MAX_ISA"))
        self._threads: int | None = None

    @cached_property
    def accuracy(self) -> Accuracy:
        """The measured bounds of the element functions, and the additions that the printer's sums make."""
        single, double = _module("rows.float32").ULP, _module("rows.float64").ULP
        worst = {n: max(single.get(n, 0.5), double.get(n, 0.5)) for n in {*single, *double}}
        return Accuracy(worst, chain=isa.chain())

    def probe(self, level: int) -> Probe:
        return elsewhere.run(self._probe)

    def _probe(self) -> Probe:
        reason = isa.apply()
        if reason:
            return Probe(False, reason)
        return Probe(True, devices=(Device(isa.current().cpu, isa.level()),))

    def supports(self, call: Call) -> Reject | None:
        half = call.op.structured and call.dtype.itemsize == 2  # the table has such kernels
        if call.dtype not in FLOATS and not half:  # before the table, which takes Numba to load
            return Reject("unsupported_dtype", f"{call.dtype}: float32 or float64")
        if call.op.structured:
            return _kernels().refusal(call)
        return None

    def kernel(self, call: Call) -> Kernel:
        return elsewhere.run(partial(self._kernel, call))

    def columns(self, call: Call) -> Kernel | None:
        return elsewhere.run(partial(self._columns, call))

    def _columns(self, call: Call) -> Kernel:
        parallel = _parallel(call)
        if parallel:
            self._set_threads()
        compiled = _module("rows.rowprogram").compiled
        return compiled(call.op, call.dtype.name, call.layout, 3, call.static, parallel, call.guarded)

    def _kernel(self, call: Call) -> Kernel:
        parallel = _parallel(call)
        if parallel or call.op.structured:  # others have no use for threads, and may have none for Numba
            self._set_threads()
        if call.op.structured:
            if call.op is call.op.table_op:
                return _kernels().kernel(call)
            if call.op.table_op.quantized:
                return _module("rows.products").products(call)
            return _module("rows.epilogue").with_epilogue(call)
        program = call.op.program(call.layout, **dict(call.static))
        stream = work.stream(program, call.dtype.itemsize, last_cache())
        if not parallel or 1 << max(call.sizes) <= stream:
            stream = 0  # no call of this key is so large
        compiled = _module("rows.rowprogram").compiled
        return compiled(call.op, call.dtype.name, call.layout, call.rank, call.static, parallel, call.guarded, stream)

    def entries(self, specs: "tuple[EntrySpec, ...]", layout: "EntryLayout") -> dict[str, int]:
        return elsewhere.run(lambda: self._entries(specs, layout))

    def _entries(self, specs: "tuple[EntrySpec, ...]", layout: "EntryLayout") -> dict[str, int]:
        return _module("door.build").entries(specs, layout)  # needed once a kernel has been compiled

    def sequence(self, calls: "Sequence[tuple[Kernel, tuple[Any, ...]] | None]") -> "Callable[[int, int], int] | None":
        return elsewhere.run(lambda: _module("door.sequence").sequence(calls))

    def webassembly(self, steps: "Sequence[tuple[Call, Sequence[Any]]]", memory: Any) -> tuple[bytes, int]:
        """A module of kernels with their arguments, whose arrays are in `memory`, and where that is in the module."""
        return _module("wasm.request").module(steps, memory)  # type: ignore[no-any-return]

    def own_environment(self, call: Call) -> bool:
        """Compiled kernels set it themselves; what NumPy runs in the caller's thread, LAPACK and casts, does not."""
        from trueno_simd.llvm import environment

        return (
            call.dtype in FLOATS
            and environment.known()
            and (not call.op.structured or _module("kernels").own_environment(call))
        )

    def _set_threads(self) -> None:
        """Follow the setting: whenever it changes, plans are discarded, and kernels are requested again."""
        count = settings.get("TRUENO_THREADS")
        if count != self._threads:
            pool, cpus = _module("threads.pool"), _module("threads.cpus")
            pool.set_count(count or cpus.usable_cpus())
            self._threads = count

    def rates(self, call: Call) -> Rates:
        """Measured speeds of a call on cores with AVX2 or better, rounded; float64 computes half as fast.

        A rough figure for a machine that was not measured: elementary functions differ by a factor of two.
        """
        one_core = _kernels().rates(call) if call.op.structured else work.ROWS
        size = max(call.sizes)
        cores = (settings.get("TRUENO_THREADS") or _cpus()) if _parallel(call) else 1
        flops = one_core.flops * 4 / call.dtype.itemsize
        if size >= MEMORY_CLASS:
            return Rates(REGION_S, flops * cores, MEMORY_BYTES * min(cores, MEMORY_CORES))
        launch = REGION_S if cores > 1 and one_core.launch_s < REGION_S else one_core.launch_s
        return Rates(launch, flops * cores, one_core.bytes * cores)

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
