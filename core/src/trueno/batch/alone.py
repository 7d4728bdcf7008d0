"""One thread or task at a time works on a batch."""

from threading import Lock
from typing import Protocol

from trueno.errors import BatchError

BUSY = "this batch is being executed; await that first"


class Busy(Protocol):
    """What `Alone` needs of a batch."""

    _busy: Lock

    def _free(self) -> None: ...


class Alone:
    """A context in which no other thread or task runs the batch."""

    __slots__ = ("_batch", "_what")

    def __init__(self, batch: Busy, what: str) -> None:
        self._batch = batch
        self._what = what

    def __enter__(self) -> None:
        if not self._batch._busy.acquire(False):
            raise BatchError(f"{self._what}: {BUSY}")

    def __exit__(self, *_: object) -> None:
        self._batch._free()
