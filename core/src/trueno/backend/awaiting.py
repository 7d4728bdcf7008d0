"""What a backend has beside the protocol where a page's one thread may not wait for a device (Pyodide)."""

from collections.abc import Awaitable
from typing import Any, Protocol

import numpy as np

from trueno.discovery.protocol import Device


class AwaitedBackend(Protocol):
    """The optional methods of a backend whose device answers only when the event loop is idle.

    `trueno.aio` and `Batch.read_async` look for each by its name, and only where `trueno.sync_available()` is False.
    """

    def open_async(self) -> Awaitable[tuple[Device, ...]]:
        """Open the device, once; the devices that there are.  BackendUnavailable where there is none."""

    def to_host_async(self, x: Any) -> Awaitable[np.ndarray[Any, Any]]:
        """A copy of one of its arrays, after what was submitted before."""
