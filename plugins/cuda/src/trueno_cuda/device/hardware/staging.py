"""Pinned buffers through which large transfers go, several threads at once.

The driver copies pageable memory through a buffer of its own with one thread: 8 GB/s to the device and 16.5 GB/s back
on an H200's host, where the link does 52 GB/s from pinned memory.  Here each piece of a transfer is a task of a small
pool: copy into a pinned slot, send that off; on the way home, receive into a slot, wait, copy out.  Slots are few and
kept, so pinned memory does not grow with the transfers.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from ctypes import memmove
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Lock
from typing import Final

from trueno.errors import TruenoError

from trueno_cuda.device.hardware.contexts import Context

SLOT: Final = 2 << 20
"""Bytes of a slot, and so of a piece."""
WORKERS: Final = 8
"""Threads, and slots; no more than the CPUs.  On an H200's host, 256 MiB up: 13 GB/s by 2, 24 by 4, 29 by 8."""
LEAST: Final = 4 << 20
"""Bytes from which on this wins over the driver's own way."""


@dataclass(frozen=True)
class Slot:
    """A pinned buffer, and the event after which it may be used again."""

    address: int
    event: int


class Staging:
    """The slots of one GPU."""

    def __init__(self, context: Context, workers: int = 0, slot: int = SLOT) -> None:
        self._driver = context.driver
        self._context = context
        self._slot = slot
        self._lock = Lock()
        self._slots: list[Slot] = []
        self._free: SimpleQueue[Slot] = SimpleQueue()
        self._threads: ThreadPoolExecutor | None = None
        self.workers = workers or min(WORKERS, _cpus())

    def to_device(self, source: int, target: int, nbytes: int, stream: int) -> None:
        """Copy host memory to the device's, in order with the stream; the source may change when this returns."""

        def send(start: int) -> None:
            size = min(self._slot, nbytes - start)
            slot = self._free.get()
            try:
                with self._context:
                    self._driver.call("cuEventSynchronize", slot.event)  # what was sent from it before
                    memmove(slot.address, source + start, size)
                    self._driver.call("cuMemcpyHtoDAsync_v2", target + start, slot.address, size, stream)
                    self._driver.call("cuEventRecord", slot.event, stream)
            finally:
                self._free.put(slot)

        self._each(send, nbytes)

    def to_host(self, source: int, target: int, nbytes: int, stream: int) -> None:
        """Copy device memory to the host's, after what is on the stream; done when this returns."""

        def receive(start: int) -> None:
            size = min(self._slot, nbytes - start)
            slot = self._free.get()
            try:
                with self._context:
                    self._driver.call("cuMemcpyDtoHAsync_v2", slot.address, source + start, size, stream)
                    self._driver.call("cuEventRecord", slot.event, stream)
                    self._driver.call("cuEventSynchronize", slot.event)
                    memmove(target + start, slot.address, size)
            finally:
                self._free.put(slot)

        self._each(receive, nbytes)

    def _each(self, task: Callable[[int], None], nbytes: int) -> None:
        """Run a task for the start of each piece; the first error, when all are done."""
        threads, pieces = self._threads or self._opened(), range(0, nbytes, self._slot)
        try:
            running = [threads.submit(task, start) for start in pieces]
        except RuntimeError:  # the interpreter is ending, and starts no threads any more
            for start in pieces:
                task(start)
            return
        errors = [error for r in running if (error := r.exception()) is not None]
        if errors:
            raise errors[0]

    def _opened(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._threads is None:
                with self._context:
                    while len(self._slots) < self.workers:
                        slot = Slot(self._driver.pinned(self._slot), self._driver.event())
                        self._slots.append(slot)
                        self._free.put(slot)
                self._threads = ThreadPoolExecutor(self.workers, "trueno-cuda-transfer")
            return self._threads

    def close(self) -> None:
        """Free the slots; the context is current."""
        with self._lock:
            if self._threads is not None:
                self._threads.shutdown()
            self._threads, self._free = None, SimpleQueue()
            for slot in self._slots:
                with suppress(TruenoError):
                    self._driver.call("cuEventDestroy_v2", slot.event)
                    self._driver.call("cuMemFreeHost", slot.address)
            self._slots = []


def _cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
