"""Arrays of the host whose contents a device gets before every execution: small ones together, in one transfer.

The next token's place in a cache, its position and its random number are a few bytes each.  Sent one by one they take
longer than the launch of the step that reads them.
"""

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from trueno.batch.counts import Tally
from trueno.discovery.protocol import Backend, DeviceBackend
from trueno.dispatch import transfer

Array = npt.NDArray[Any]
ROOM = 4096
"""Bytes of a room, in which arrays lie side by side; a larger one has a room of its own."""
ALIGN = 256


class Room:
    """Bytes of the host, and memory of a device that gets them."""

    __slots__ = ("_mirror", "_sent", "_used", "host")

    def __init__(self, backend: DeviceBackend) -> None:
        self.host = np.zeros(ROOM, np.uint8)
        self._mirror = backend.mirror(self.host)
        self._used, self._sent = 0, b""

    def part(self, x: Array) -> tuple[Array, Any] | None:
        """A place for an array: on the host, and on the device; None if the room is full."""
        start, end = self._used, self._used + x.nbytes
        if end > ROOM:
            return None
        self._used, self._sent = -(-end // ALIGN) * ALIGN, b""
        return self.host[start:end].view(x.dtype).reshape(x.shape), self._mirror.part(start, x.shape, x.dtype)

    def send(self, backend: Backend) -> int:
        """Send what has changed; the bytes that went."""
        nbytes = min(self._used, ROOM)
        now = self.host[:nbytes].tobytes()
        if now == self._sent:
            return 0
        self._sent = b""
        transfer.sent(backend, self._mirror, nbytes)
        self._sent = now
        return nbytes


class Alone:
    """The same for an array that has memory of its own: a large one, or on a device without `mirror`."""

    __slots__ = ("_sent", "host", "there")

    def __init__(self, backend: Backend, x: Array) -> None:
        self.host = x.copy()
        self.there = transfer.upload(backend, self.host, "Batch")
        self._sent = self.host.tobytes()

    def send(self, backend: Backend) -> int:
        now = self.host.tobytes()
        if now == self._sent:
            return 0
        self._sent = b""
        if hasattr(backend, "write"):
            transfer.write(backend, self.host, self.there, "Batch")
        else:
            cast(DeviceBackend, backend).copy(transfer.upload(backend, self.host, "Batch"), self.there)
        self._sent = now
        return self.host.nbytes


class Live:
    """The live uploads of a batch."""

    __slots__ = ("_alone", "_followed", "_places", "_rooms", "_tally")

    def __init__(self, tally: Tally) -> None:
        self._places: dict[int, tuple[Array, Any]] = {}
        """By value: its place on the host, in a room or alone, and the memory of the device that gets it."""
        self._followed: dict[int, Array] = {}
        """The caller's arrays of these values; of one that an array of the device replaces there is none."""
        self._rooms: list[Room] = []
        self._alone: list[Alone] = []
        self._tally = tally

    def holds(self, v: int) -> bool:
        return v in self._places

    def remove(self, v: int) -> None:
        self._places.pop(v, None)
        self._followed.pop(v, None)

    def follow(self, v: int, x: Array) -> Any:
        """Let another array be the one that counts; its array on the device."""
        self._followed[v] = x
        return self._places[v][1]

    def rest(self, v: int) -> None:
        """Follow no array of the host until `follow` gives one: an array of the device is in use."""
        self._followed.pop(v, None)

    def put(self, v: int, x: Array, backend: Backend) -> Any:
        """Follow a new upload; its array on the device."""
        if x.nbytes <= ROOM and hasattr(backend, "mirror"):
            place = self._rooms[-1].part(x) if self._rooms else None
            if place is None:
                self._rooms.append(Room(cast(DeviceBackend, backend)))
                self._tally.hold(ROOM)
                place = self._rooms[-1].part(x)
            assert place is not None
            here, there = place
        else:
            alone = Alone(backend, x)
            self._alone.append(alone)
            self._tally.hold(x.nbytes)
            self._tally.uploads += 1
            self._tally.bytes += x.nbytes
            here, there = alone.host, alone.there
        self._places[v] = here, there
        self._followed[v] = x
        return there

    def refresh(self, backend: Backend) -> None:
        """Send what the arrays hold now."""
        for v, x in self._followed.items():
            self._places[v][0][...] = x
        rooms: tuple[Room | Alone, ...] = (*self._rooms, *self._alone)
        for room in rooms:
            if nbytes := room.send(backend):
                self._tally.uploads += 1
                self._tally.bytes += nbytes
