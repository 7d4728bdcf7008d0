"""Copying bytes to the host: through buffers that the host can map, which are reused.

A buffer is mapped with READ_NOSYNC, wgpu's own mode for reading a queue: the plain one submits once more and waits
there.  It goes back only when it is unmapped, because submitting a copy into a mapped buffer ends the process.
"""

from typing import Any

SMALLEST = 4096
CHUNK = 32 << 20
"""Bytes that are copied at once; while one chunk is copied on the host, the device copies the next."""
SLICE = 4 << 20
"""Bytes between which other threads get a turn."""
KEPT = 4
"""Buffers that are kept."""


def chunks(nbytes: int) -> list[tuple[int, int]]:
    """Where the pieces of a transfer begin, and their bytes."""
    return [(at, min(CHUNK, nbytes - at)) for at in range(0, nbytes, CHUNK)]


def padded(nbytes: int) -> int:
    """Bytes of a copy, which must be whole words."""
    return nbytes + 3 & ~3


class Staging:
    """Mappable buffers that are unused, smallest first.  make: one of so many bytes.  Its user holds a lock."""

    def __init__(self, make: Any) -> None:
        self._make = make
        self._idle: list[tuple[int, Any]] = []

    def take(self, nbytes: int) -> tuple[int, Any]:
        """A buffer of at least this many bytes, and its size; a new one replaces a smaller one."""
        for i, (size, _) in enumerate(self._idle):
            if size >= nbytes:
                return self._idle.pop(i)
        size = SMALLEST << max((nbytes - 1) // SMALLEST, 0).bit_length()
        if len(self._idle) >= KEPT:
            self._idle.pop(0)
        return size, self._make(size)

    def give(self, buffer: tuple[int, Any]) -> None:
        """Take back a buffer that is not mapped."""
        if len(self._idle) < KEPT:
            self._idle.append(buffer)
            self._idle.sort(key=lambda pair: pair[0])


def deliver(staged: Any, nbytes: int, into: memoryview) -> None:
    """Copy the mapped bytes to `into`, and unmap, whatever happens."""
    try:
        mapped = staged.read_mapped(0, padded(nbytes), copy=False)
        for at in range(0, nbytes, SLICE):
            into[at : min(at + SLICE, nbytes)] = mapped[at : min(at + SLICE, nbytes)]
    finally:
        staged.unmap()
