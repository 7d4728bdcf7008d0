"""Transfers to a device, inside of it, and to the host: synchronous, and for asyncio."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep
from typing import Any

from trueno.errors import KernelError

from trueno_wgpu.device.door import IN_BROWSER
from trueno_wgpu.device.limits import Counts
from trueno_wgpu.device.memory import Buffer
from trueno_wgpu.device.polling import Poller
from trueno_wgpu.device.queue import Queue
from trueno_wgpu.device.staging import Staging, chunks, deliver, padded

Staged = tuple[int, Any]
"""A staging buffer, by its size."""


class Transfers:
    """Those of one device, whose buffers they use; invalid ranges were refused before."""

    def __init__(self, counts: Counts, queue: Queue, staging: Staging, poller: Poller) -> None:
        self._counts, self._queue, self._staging, self._poller = counts, queue, staging, poller

    def write(self, buffer: Buffer, data: memoryview, offset: int) -> None:
        """After everything recorded for this buffer before; zeros pad the last word."""
        nbytes = len(data)
        with self._queue.lock:
            self._queue.check()
            self._queue.outside("an array cannot be written")  # a replay would not write it again
            self._queue.submit_users(buffer)
            for at, size in chunks(nbytes):
                whole = size & ~3
                if whole:
                    self._queue.write(buffer.handle, offset + at, data[at : at + whole])
                if whole < size:
                    rest = bytes(data[at + whole : at + size])
                    self._queue.write(buffer.handle, offset + at + whole, rest.ljust(4, b"\0"))
            self._counts.uploads += 1
            self._counts.bytes_up += nbytes

    def copy(self, source: Buffer, target: Buffer, nbytes: int) -> None:
        """From the beginning of one to that of another."""
        with self._queue.lock:
            self._queue.check()
            encoder = self._queue.encoder
            encoder.copy(source.handle, 0, target.handle, 0, padded(nbytes))
            encoder.held.update((source, target))
            encoder.made.pop(target, None)
            self._counts.copies += encoder.runs

    def read(self, buffer: Buffer, nbytes: int, offset: int, target: memoryview) -> None:
        """Wait, and copy to the host; while it copies one piece, the device copies the next."""
        waiting: tuple[Staged, int, int] | None = None
        for at, size in chunks(nbytes):
            with self._poller.alone():
                staged, promise = self._stage(buffer, offset + at, size)
            if waiting is not None:
                self._deliver(*waiting, target)
            self._settle(promise)
            waiting = staged, size, at
        if waiting is not None:
            self._deliver(*waiting, target)
        self._done(nbytes)

    async def read_async(self, buffer: Buffer, nbytes: int, offset: int, target: memoryview) -> None:
        """The same, asynchronously.  Cancelled, it abandons a staging buffer, which dies when mapped."""
        import asyncio

        for at, size in chunks(nbytes):
            staged, promise = self._stage(buffer, offset + at, size)
            with self._mapping():
                await promise
            self._deliver(staged, size, at, target)
            await asyncio.sleep(0)
        self._done(nbytes)

    def _stage(self, buffer: Buffer, offset: int, nbytes: int) -> tuple[Staged, Any]:
        """Submit a copy, with everything recorded before it, and request its mapping: a promise."""
        with self._queue.lock:
            self._queue.check()
            self._queue.outside("an array cannot be read")
            staged = self._staging.take(padded(nbytes))
            encoder = self._queue.encoder
            encoder.copy(buffer.handle, offset, staged[1], 0, padded(nbytes))
            encoder.held.add(buffer)
            self._queue.submit_here()
            try:
                return staged, staged[1].map_async("READ_NOSYNC", 0, padded(nbytes))
            except Exception as error:
                raise self._queue.told(error, "reading") from error

    def _settle(self, promise: Any) -> None:
        """Wait for a promise; wgpu's own wait never ends if the device is gone."""
        if not IN_BROWSER:
            self._poll(promise)
        with self._mapping():
            promise.sync_wait()

    def _poll(self, promise: Any) -> None:
        self._queue.poll()
        while getattr(promise, "_state", "fulfilled") == "pending":  # another thread is about to tell, or it is lost
            self._queue.alive("reading")
            sleep(1e-4)
            self._queue.poll()

    @contextmanager
    def _mapping(self) -> Iterator[None]:
        """A map that fails inside is an error of ours."""
        try:
            yield
        except RuntimeError as error:
            self._queue.alive("reading")
            raise KernelError(f"reading failed ({error})") from error

    def _deliver(self, staged: Staged, nbytes: int, at: int, target: memoryview) -> None:
        self._queue.alive("reading")  # a map may be kept, and its buffer gone with the device: looking there aborts
        deliver(staged[1], nbytes, target[at : at + nbytes])
        with self._queue.lock:
            self._staging.give(staged)

    def _done(self, nbytes: int) -> None:
        with self._queue.lock:
            self._counts.downloads += 1
            self._counts.bytes_down += nbytes
