"""The commands of a batch with all that they name, instead of WebGPU's own objects."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from trueno_wgpu.device.gpu import Gpu, Groups
from trueno_wgpu.device.memory import Buffer, View
from trueno_wgpu.device.recordings import Tape
from trueno_wgpu.device.shader import Shader


@dataclass
class Place:
    """A buffer of the script.  bytes: as far as commands use it.  first: whether it is read before it is written."""

    handle: Any
    bytes: int = 0
    first: bool = False


@dataclass(frozen=True)
class Launch:
    """One dispatch.  bound: (place, offset, bytes) of each storage binding."""

    shader: Shader
    bound: tuple[tuple[int, int, int], ...]
    uniforms: bytes
    groups: Groups


@dataclass(frozen=True)
class Copy:
    """Bytes from the beginning or middle of one place to another."""

    source: int
    at: int
    target: int
    to: int
    bytes: int


@dataclass(frozen=True)
class Clear:
    """Zeros at the beginning of a place."""

    target: int
    bytes: int


@dataclass
class Commands:
    """What a recording does, in order."""

    places: list[Place] = field(default_factory=list)
    steps: list[Launch | Copy | Clear] = field(default_factory=list)


class Script(Tape):
    """A tape that also writes down its commands; the device never runs them."""

    __slots__ = ("_known", "commands", "gpu")
    detailed = True

    def __init__(self, gpu: Gpu) -> None:
        super().__init__(gpu.device)
        self.gpu, self.commands = gpu, Commands()
        self._known: dict[int, int] = {}

    def detail(self, shader: Shader, buffers: Sequence[Buffer | View], uniforms: bytes, groups: Groups) -> None:
        bound = []
        for one, written in zip(buffers, shader.writes, strict=True):
            _, offset, nbytes = one.part
            bound.append((self.place(one.buffer.handle, offset + nbytes, not written), offset, nbytes))
        self.commands.steps.append(Launch(shader, tuple(bound), uniforms, groups))

    def copy(self, source: Any, at: int, target: Any, to: int, nbytes: int) -> None:
        super().copy(source, at, target, to, nbytes)
        places = self.place(source, at + nbytes, True), self.place(target, to + nbytes, False)
        self.commands.steps.append(Copy(places[0], at, places[1], to, nbytes))

    def clear(self, target: Any, nbytes: int) -> None:
        super().clear(target, nbytes)
        self.commands.steps.append(Clear(self.place(target, nbytes, False), nbytes))

    def place(self, handle: Any, end: int, read: bool) -> int:
        """The number of WebGPU's buffer, which is used up to `end`."""
        number = self._known.get(id(handle))  # a tape keeps its buffers, so no other object gets the number
        if number is None:
            number = self._known[id(handle)] = len(self.commands.places)
            self.commands.places.append(Place(handle, first=read))
        place = self.commands.places[number]
        place.bytes = max(place.bytes, end)
        return number

    def port(self, buffer: Buffer, read: bool) -> int:
        """The number of an array's buffer, whether a command uses it or not."""
        self.held.add(buffer)
        return self.place(buffer.handle, buffer.nbytes, read)

    def used(self, buffers: Iterable[Buffer]) -> set[int]:
        """The numbers of those buffers that commands use."""
        return {self._known[id(one.handle)] for one in buffers if id(one.handle) in self._known}

    def contents(self, kept: Collection[int]) -> dict[int, memoryview]:
        """What places hold at the start, by number: those that are `kept`, and those that are read before written.

        Places that hold zeros are left out, since WebGPU's new buffers hold zeros.
        """
        buffers = {id(buffer.handle): buffer for buffer in self.held}
        found = {}
        for number, place in enumerate(self.commands.places):
            if number in kept or place.first:
                buffer = buffers[id(place.handle)]
                held = self.gpu.read(buffer, min(place.bytes, buffer.nbytes))
                if any(held):
                    found[number] = held
        return found
