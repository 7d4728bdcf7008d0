"""Transfers between the host's memory and the GPU's, on a stream: by the fastest safe method.

Small pieces are copied directly: the driver copies pageable memory before it returns, so the caller may change it.
that is pinned already is copied from and to directly, and waited for.  What is large goes through `staging`.
"""

from collections.abc import Callable
from contextlib import suppress
from ctypes import memmove
from math import prod
from typing import Any, Final

import numpy as np
from trueno.errors import KernelError, TruenoError

from trueno_cuda.device.hardware.contexts import Context
from trueno_cuda.device.hardware.staging import LEAST, Slot, Staging

MOST_FETCHED: Final = 1 << 16
"""Bytes of a pinned slot for what is fetched while kernels go on: tokens of a step, not its logits."""

Copy = Callable[[int, tuple[int, ...], tuple[int, ...], int, int], None]
"""Copies elements of these lengths, pitches and size from one address to another, as `kernels.copy.StridedCopy`."""


class Transfers:
    """One GPU's.  least: bytes from which on pinned buffers are used."""

    def __init__(self, context: Context, least: int = LEAST) -> None:
        self._context = context
        self._driver = context.driver
        self._staging = Staging(context)
        self._slots: list[Slot] = []
        self._idle: list[Slot] = []  # whose `pop` and `append` cannot be interrupted
        self._least = least if self._staging.workers > 1 else 1 << 62

    def send(self, x: np.ndarray[Any, Any], target: int, stream: int) -> None:
        """Copy a C-contiguous array to an address of the GPU's; it may be changed when this returns."""
        nbytes, address, call = x.nbytes, x.ctypes.data, self._driver.call
        if not nbytes:
            return
        with self._context:
            if self._driver.is_pinned(address):
                call("cuMemcpyHtoDAsync_v2", target, address, nbytes, stream)
                call("cuStreamSynchronize", stream)
            elif nbytes < self._least:
                call("cuMemcpyHtoDAsync_v2", target, address, nbytes, stream)
            else:
                self._staging.to_device(address, target, nbytes, stream)

    def fetch(self, source: int, out: np.ndarray[Any, Any], stream: int) -> None:
        """Fill a C-contiguous array from an address of the GPU's, after what is on the stream; waits for it."""
        nbytes, address, call = out.nbytes, out.ctypes.data, self._driver.call
        if not nbytes:
            return
        with self._context:
            if nbytes < self._least or self._driver.is_pinned(address):
                call("cuMemcpyDtoHAsync_v2", address, source, nbytes, stream)
                call("cuStreamSynchronize", stream)
            else:
                self._staging.to_host(source, address, nbytes, stream)

    def begin(
        self, source: int, shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int, stream: int, copy: Copy
    ) -> "Fetched":
        """Begin a copy of at most `MOST_FETCHED` bytes, after what is on the stream.

        copy: a kernel, which writes to pinned memory itself.  Between two graphs it takes 2 us on an H200, where the
        copy engine takes 8.
        """
        with self._context:
            try:
                slot = self._idle.pop()
            except IndexError:
                slot = Slot(self._driver.pinned(MOST_FETCHED), self._driver.event())
                self._slots.append(slot)
            try:
                copy(source, (nbytes,), (1,), 1, slot.address)
                self._driver.call("cuEventRecord", slot.event, stream)
            except BaseException:
                with suppress(TruenoError):  # the copy may have begun, and must not write over what another one has
                    self._driver.call("cuStreamSynchronize", stream)
                    self.give(slot)
                raise
        return Fetched(self, slot, shape, dtype, nbytes)

    def ended(self, slot: Slot) -> None:
        """Wait until a slot has what was fetched."""
        with self._context:
            self._driver.call("cuEventSynchronize", slot.event, what="cuda: a kernel that was launched before failed")

    def give(self, slot: Slot) -> None:
        self._idle.append(slot)

    def close(self) -> None:
        """Free pinned memory; the context is current."""
        self._staging.close()
        for slot in self._slots:
            with suppress(TruenoError):
                self._driver.call("cuEventDestroy_v2", slot.event)
                self._driver.call("cuMemFreeHost", slot.address)
        self._slots, self._idle = [], []


class Mirror:
    """Memory of the GPU's that gets what a small pageable array of bytes holds, without waiting for anything."""

    def __init__(
        self,
        context: Context,
        stream: Callable[[], int],
        host: np.ndarray[Any, Any],
        there: Any,
        part: Callable[..., Any],
    ) -> None:
        self._context, self._stream, self._host, self._there, self._part = context, stream, host, there, part
        self._call, self._from, self._to = context.driver.call, host.ctypes.data, there.data.ptr

    def part(self, start: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """An array in it, from byte `start` on."""
        if not 0 <= start <= start + prod(shape) * np.dtype(dtype).itemsize <= self._there.nbytes:
            raise KernelError(f"cuda: {shape} {np.dtype(dtype)} from byte {start} on is not in {self._there.nbytes}")
        return self._part(self._there, start, shape, dtype)

    def send(self, nbytes: int) -> None:
        """Copy the first bytes.  The driver has read them when it returns: they are not pinned."""
        stream = self._stream()
        with self._context:
            self._call("cuMemcpyHtoDAsync_v2", self._to, self._from, nbytes, stream)


class Fetched:
    """A copy to the host that has begun.  Called, it waits and returns the array; its slot is free afterwards.

    Of several threads that call it, one gets the array.  After an error it still has its slot, and may be called again.
    """

    __slots__ = ("_dtype", "_nbytes", "_shape", "_slots", "_transfers")

    def __init__(
        self, transfers: Transfers, slot: Slot, shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int
    ) -> None:
        self._transfers, self._shape, self._dtype, self._nbytes = transfers, shape, dtype, nbytes
        self._slots = [slot]  # whose `pop` and `append` cannot be interrupted

    def __call__(self) -> np.ndarray[Any, Any]:
        try:
            slot = self._slots.pop()
        except IndexError:
            raise KernelError("cuda: this array was fetched already; what is fetched once is given once") from None
        try:
            self._transfers.ended(slot)
            array = np.empty(self._shape, self._dtype)
            memmove(array.ctypes.data, slot.address, self._nbytes)
        except BaseException:
            self._slots.append(slot)
            raise
        self._transfers.give(slot)
        return array

    def __del__(self) -> None:
        for slot in self._slots:  # it was not waited for, and the slot may still be written to
            with suppress(TruenoError):
                self._transfers.ended(slot)
                self._transfers.give(slot)
