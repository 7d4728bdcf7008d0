"""The arrays behind the uploads of a batch.

On the host they are the caller's own if kernels can use them; on a device they are copies that the batch owns or arrays
of that device that the caller passed.  The caller's arrays are read and never written.
"""

from typing import Any, cast

import numpy as np

from trueno.batch.counts import Tally
from trueno.batch.live import Live
from trueno.contiguous import compact
from trueno.discovery import registry
from trueno.discovery.protocol import Backend, DeviceBackend
from trueno.discovery.registry import Entry
from trueno.dispatch import transfer
from trueno.dispatch.fallback import wrapping_errors
from trueno.dispatch.incoming import plain
from trueno.dispatch.transfer import device_of, imported, unwrap
from trueno.errors import DeviceError, ParameterError


class Uploads:
    """arrays: by value.  device: where the batch runs, None for the host; settled by the first upload at the latest."""

    __slots__ = ("_fed", "_fixed", "_live", "_own", "_tally", "arrays", "device")

    def __init__(self, device: Entry | None, fixed: bool, tally: Tally) -> None:
        self.arrays: dict[int, Any] = {}
        self.device = device
        self._fixed = fixed
        self._own: dict[int, int] = {}
        """Bytes of the arrays that belong to the batch."""
        self._live: Live | None = None
        self._fed: set[int] = set()
        """Uploads that results are written to, so none of them is the caller's."""
        self._tally = tally

    def backend(self) -> Backend | None:
        """Looked up at each use, so that a device that was lost, or is in a forked child, is an error that says so."""
        return None if self.device is None else registry.load(self.device.name)

    def take(self, what: str, x: Any) -> Any:
        """The user's object as an array of the batch's device, or one that kernels on the host can use."""
        form = getattr(x, "_blocks", None)  # of a QuantizedMatrix: its bytes are used directly
        x = form[0] if form else unwrap(x)
        there = device_of(x)
        if there is None:
            if form:
                return x
            if isinstance(x, np.ndarray) and x.dtype == np.uint8:
                return compact(imported(what, "x", x))  # bytes stay bytes; other whole numbers become int64
            return plain(what, x)
        if there is not self.device:
            if self._fixed:
                where = self.device.name if self.device else "the host"
                raise DeviceError(
                    f"{what}: x is on {there.name}, but this batch runs on {where}; move it: trueno.numpy(x)"
                )
            self.device = there  # compute follows data
        return x

    def put(self, v: int, array: Any, given: Any = None, live: bool = False) -> None:
        """Set the array of a value; `given` is the user's object, from which it was made."""
        self._fixed = True
        backend = None if device_of(array) is not None else self.backend()
        if v in self._fed and backend is None:
            self._fill(v, array)
        elif self._live is not None and self._live.holds(v):
            self._live_again(v, array, backend)
            return
        elif live and backend is not None:
            self._live = self._live or Live(self._tally)
            with wrapping_errors("upload", backend.name):
                self.arrays[v] = self._live.put(v, array, backend)
            return
        elif backend is not None:
            self._send(v, array, backend)
        else:
            fresh = (
                isinstance(array, np.ndarray)
                and array is not unwrap(getattr(given, "bytes", given))
                and array.flags.owndata
            )
            self._replace(v, array, array.nbytes if fresh else 0)
        if device_of(array) is None:
            self._tally.uploads += 1
            self._tally.bytes += array.nbytes

    def _send(self, v: int, array: np.ndarray[Any, Any], backend: Backend) -> None:
        """Copy an array to the device, into the batch's own buffer if it has one."""
        with wrapping_errors("upload", backend.name):
            if v in self._own and hasattr(backend, "write"):
                transfer.write(backend, array, self.arrays[v], "Batch")
            else:
                self._replace(v, transfer.upload(backend, array, "Batch"), array.nbytes)

    def own(self, v: int) -> None:
        """Let a value be in memory of the batch's own from now on, because results are written to it."""
        array, backend = self.arrays[v], self.backend()
        if self._live is not None and self._live.holds(v):
            raise ParameterError("feed: h is live, so the host sets it before each execution; upload it without live")
        if v not in self._own:
            if backend is None:
                self._replace(v, array.copy(), array.nbytes)
            else:
                with wrapping_errors("feed", backend.name):
                    copy = transfer.empty(backend, tuple(array.shape), array.dtype)
                    cast(DeviceBackend, backend).copy(array, copy)
                    self._replace(v, copy, array.nbytes)
        self._fed.add(v)

    def _fill(self, v: int, array: Any) -> None:
        """Copy an array that is where the batch is into the batch's own."""
        if isinstance(array, np.ndarray):
            np.copyto(self.arrays[v], array)
            return
        backend = cast(DeviceBackend, self.backend())
        with wrapping_errors("update", backend.name):
            backend.copy(array, self.arrays[v])

    def _live_again(self, v: int, array: Any, backend: Backend | None) -> None:
        """Put another array in place of a live one: of the host, and live as well, or of the device for now."""
        assert self._live is not None
        if backend is None:
            self._live.rest(v)
            self.arrays[v] = array
        else:
            self.arrays[v] = self._live.follow(v, array)

    def refresh(self) -> None:
        """Send what live arrays hold now."""
        backend = self.backend() if self._live is not None else None
        if self._live is not None and backend is not None:
            with wrapping_errors("upload", backend.name):
                self._live.refresh(backend)

    def _replace(self, v: int, array: Any, own: int) -> None:
        if own:
            self._tally.hold(own)
        self.arrays[v] = array
        self._tally.drop(self._own.pop(v, 0))
        if own:
            self._own[v] = own

    def remove(self, v: int) -> None:
        """Forget a value whose recording failed."""
        self.arrays.pop(v, None)
        if self._live is not None:
            self._live.remove(v)
        self._tally.drop(self._own.pop(v, 0))

    def clear(self) -> None:
        self.arrays.clear()
        self._own.clear()
        self._live = None
