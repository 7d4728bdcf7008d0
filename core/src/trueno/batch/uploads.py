"""The arrays behind the uploads of a batch.

On the host they are the caller's own if kernels can use them; on a device they are copies that the batch owns or arrays
of that device that the caller passed.  The caller's arrays are read and never written.
"""

from typing import Any

import numpy as np

from trueno.batch.counts import Tally
from trueno.discovery import registry
from trueno.discovery.protocol import Backend
from trueno.discovery.registry import Entry
from trueno.dispatch import transfer
from trueno.dispatch.fallback import wrapping_errors
from trueno.dispatch.incoming import plain
from trueno.dispatch.transfer import device_of, unwrap
from trueno.errors import DeviceError


class Uploads:
    """arrays: by value.  device: where the batch runs, None for the host; settled by the first upload at the latest."""

    __slots__ = ("_fixed", "_own", "_tally", "arrays", "device")

    def __init__(self, device: Entry | None, fixed: bool, tally: Tally) -> None:
        self.arrays: dict[int, Any] = {}
        self.device = device
        self._fixed = fixed
        self._own: dict[int, int] = {}
        """Bytes of the arrays that belong to the batch."""
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
            return x if form else plain(what, x)
        if there is not self.device:
            if self._fixed:
                where = self.device.name if self.device else "the host"
                raise DeviceError(
                    f"{what}: x is on {there.name}, but this batch runs on {where}; move it: trueno.numpy(x)"
                )
            self.device = there  # compute follows data
        return x

    def put(self, v: int, array: Any, given: Any = None) -> None:
        """Set the array of a value; `given` is the user's object, from which it was made."""
        self._fixed = True
        backend = None if device_of(array) is not None else self.backend()
        if backend is not None:
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
        self._tally.drop(self._own.pop(v, 0))

    def clear(self) -> None:
        self.arrays.clear()
        self._own.clear()
