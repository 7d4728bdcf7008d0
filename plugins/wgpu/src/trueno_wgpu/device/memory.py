"""Device memory: blocks that are reused, and the buffers that arrays hold.

Nothing here is ever destroyed, because a command that is not submitted yet may name it, and submitting that ends the
process.  A buffer that dies gives its block back; WebGPU itself frees a block that the pool releases, once no
command needs it.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

SMALLEST = 256
STEPS = 8
"""Size classes in each power of two: at most an eighth of a block is unused."""
numbers = count(1)
"""Names of blocks and of pages; never reused, unlike `id`."""


class Device(Protocol):
    """The owner of a buffer, which copies to it and from it: `Gpu`."""

    @property
    def name(self) -> str:
        """Its name for people."""

    def write(self, buffer: "Buffer", data: Any, offset: int = 0) -> None:
        """Copy bytes to a buffer."""

    def read(self, buffer: "Buffer", nbytes: int, offset: int = 0, into: Any = None) -> memoryview:
        """Copy bytes to the host."""

    async def read_async(self, buffer: "Buffer", nbytes: int, offset: int = 0) -> memoryview:
        """The same, while the event loop stays free."""


class Memory:
    """A block on the device.  groups: keys of the cached bind groups that name it, which keep it alive."""

    __slots__ = ("groups", "handle", "size", "uid")

    def __init__(self, handle: Any, size: int) -> None:
        self.handle = handle
        self.size = size
        self.uid = next(numbers)
        self.groups: set[Any] = set()


class Buffer:
    """Device memory of `nbytes`, a multiple of 4; its block goes back to the pool with the last reference.

    `part` says what is bound: block, offset, bytes.
    """

    __slots__ = ("__weakref__", "_dropped", "gpu", "memory", "nbytes", "part")

    def __init__(self, gpu: Device, memory: Memory, nbytes: int, dropped: "deque[Memory]") -> None:
        self.gpu = gpu
        self.memory = memory
        self.nbytes = nbytes
        self.part = (memory.uid, 0, nbytes)
        self._dropped = dropped

    @property
    def buffer(self) -> "Buffer":
        """Itself, as a `View` has one."""
        return self

    @property
    def handle(self) -> Any:
        """WebGPU's own object."""
        return self.memory.handle

    def __del__(self) -> None:
        self._dropped.append(self.memory)  # atomic, and no lock: this may run anywhere

    def __repr__(self) -> str:
        return f"<{self.nbytes} bytes on {self.gpu.name}>"


@dataclass(frozen=True, slots=True)
class View:
    """A range of a buffer to be bound: offset a multiple of `Limits.alignment`, nbytes of 4."""

    buffer: Buffer
    offset: int
    nbytes: int

    @property
    def part(self) -> tuple[int, int, int]:
        return self.buffer.memory.uid, self.offset, self.nbytes


def block(nbytes: int, most: int) -> int:
    """The size of the block for so many bytes: a size class, unless the device allows none that large."""
    if nbytes <= SMALLEST:
        return SMALLEST
    octave = 1 << (nbytes - 1).bit_length() - 1  # a power of two below nbytes
    step = max(octave // STEPS, SMALLEST) if octave >= SMALLEST * STEPS else octave
    size = -(-nbytes // step) * step
    return size if size <= most else nbytes


class Pool:
    """Free blocks, newest first by size, and how much is lent.  Its user holds a lock.

    It refers to the lent blocks, too.  If a buffer were the only one that did, and part of a cycle, Python's
    collector would finalize both at once: the buffer's gives the block back, and wgpu's own releases it under us.

    most: the most bytes that are idle.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.lent = self.idle = 0
        self.dropped: deque[Memory] = deque()
        self._out: dict[int, Memory] = {}
        self._old: OrderedDict[int, Memory] = OrderedDict()
        self._sized: dict[int, OrderedDict[int, Memory]] = {}

    def lend(self, size: int) -> Memory | None:
        """An idle block of this size; its content is stale."""
        sized = self._sized.get(size)
        if not sized:
            return None
        uid, memory = sized.popitem()
        del self._old[uid]
        self.idle -= size
        return self.add(memory)

    def add(self, memory: Memory) -> Memory:
        """Count a block as lent."""
        self._out[memory.uid] = memory
        self.lent += memory.size
        return memory

    def collect(self) -> list[Memory]:
        """Take back dropped blocks; returns the blocks that are released for them, oldest first."""
        while self.dropped:
            memory = self.dropped.popleft()
            del self._out[memory.uid]
            self.lent -= memory.size
            self.idle += memory.size
            self._old[memory.uid] = memory
            self._sized.setdefault(memory.size, OrderedDict())[memory.uid] = memory
        return self.trim(self.most) if self.idle > self.most else []

    def trim(self, most: int) -> list[Memory]:
        """Release idle blocks until at most this many bytes are idle."""
        gone = []
        while self.idle > most:
            uid, memory = self._old.popitem(last=False)
            del self._sized[memory.size][uid]
            self.idle -= memory.size
            gone.append(memory)
        return gone
