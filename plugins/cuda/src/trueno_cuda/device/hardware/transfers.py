"""Transfers between the host's memory and the GPU's, on a stream: by the fastest safe method.

Small pieces are copied directly: the driver copies pageable memory before it returns, so the caller may change it.
that is pinned already is copied from and to directly, and waited for.  What is large goes through `staging`.
"""

from typing import Any

import numpy as np

from trueno_cuda.device.hardware.contexts import Context
from trueno_cuda.device.hardware.staging import LEAST, Staging


class Transfers:
    """One GPU's.  least: bytes from which on pinned buffers are used."""

    def __init__(self, context: Context, least: int = LEAST) -> None:
        self._context = context
        self._driver = context.driver
        self._staging = Staging(context)
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

    def close(self) -> None:
        """Free pinned memory; the context is current."""
        self._staging.close()
