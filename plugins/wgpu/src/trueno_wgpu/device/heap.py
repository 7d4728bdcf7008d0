"""Memory of one device, within a budget: idle blocks are released first, then those held by pending work or garbage."""

import gc
from collections.abc import Callable
from typing import Any

from trueno.errors import OutOfMemory

from trueno_wgpu.device.bindings import Bindings
from trueno_wgpu.device.limits import Counts, Limits
from trueno_wgpu.device.memory import Buffer, Device, Memory, Pool, block
from trueno_wgpu.device.queue import Queue
from trueno_wgpu.device.staging import padded

SETTING = "TRUENO_WGPU_MEMORY"
IDLE = 256 << 20
"""Bytes of memory that are kept for the next buffer."""
STORAGE = 0x0080 | 0x0004 | 0x0008
"""WebGPU's flags: storage, and source and target of copies."""


class Heap:
    """Blocks of one device.  budget: bytes of all lent or idle blocks, or None for as many as the driver gives."""

    def __init__(
        self, device: Any, limits: Limits, counts: Counts, queue: Queue, bindings: Bindings, budget: int | None
    ) -> None:
        self._device, self._limits, self._counts, self._queue, self._bindings = device, limits, counts, queue, bindings
        self.budget = budget
        self.pool = Pool(IDLE if budget is None else min(IDLE, budget // 4))

    def alloc(self, gpu: Device, nbytes: int) -> Buffer:
        """A buffer of `gpu`; OutOfMemory if there is no room, or not in one piece."""
        needed = max(padded(nbytes), 4)
        if needed > self._limits.buffer:
            raise OutOfMemory(
                f"{nbytes} bytes were requested, and one array on {gpu.name} has {self._limits.buffer} at most; "
                "split it, or compute on the CPU"
            )
        size = block(needed, self._limits.buffer)
        with self._queue.lock:
            self._queue.check()
            self._bindings.forget(self.pool.collect())
            memory = self.pool.lend(size)
            if memory is None:
                self._make_room(size, gpu.name)
                memory = self.pool.add(Memory(self.create(size, STORAGE), size))
                self._counts.allocations += 1
            return Buffer(gpu, memory, needed, self.pool.dropped)

    def _make_room(self, size: int, name: str) -> None:
        pool, budget = self.pool, self.budget
        if budget is None:
            return
        efforts: tuple[Callable[[], Any], ...] = (lambda: None, self._queue.submit_held, gc.collect)
        for effort in efforts:
            if pool.lent + pool.idle + size <= budget:
                return
            effort()
            self._bindings.forget(pool.collect())
            self._bindings.forget(pool.trim(max(budget - pool.lent - size, 0)))
        if pool.lent + pool.idle + size > budget:
            free = max(budget - pool.lent, 0)
            raise OutOfMemory(
                f"{size} bytes are needed, and of {budget} on {name} {free} are free ({SETTING}); drop some arrays"
            )

    def create(self, size: int, usage: int) -> Any:
        """One of WebGPU's buffers; if the driver has no room, after releasing idle blocks."""
        try:
            return self._device.create_buffer(size=size, usage=usage)
        except Exception as error:
            translated = self._queue.told(error, f"a buffer of {size} bytes")
            if not isinstance(translated, OutOfMemory):
                raise translated from error
        self._queue.submit_held()
        gc.collect()
        self.empty()
        self._queue.poll()
        try:
            return self._device.create_buffer(size=size, usage=usage)
        except Exception as error:
            raise self._queue.told(error, f"a buffer of {size} bytes") from error

    def empty(self) -> None:
        """Release every idle block."""
        self._bindings.forget([*self.pool.collect(), *self.pool.trim(0)])
