"""Device memory: every array in its own guarded range of one arena, and the windows of generic addresses.

An address is an int64.  Global addresses begin at GLOBAL; a generic address of shared, local or parameter memory
lies in that space's window, so that mistaking one for the other is seen.
"""

from typing import Any, NamedTuple

import numpy as np

from trueno_cuda.ptx.emulate.errors import LaunchError
from trueno_cuda.ptx.syntax.types import Array

GLOBAL = 0x7F00_0000_0000
SHARED = 0x7E00_0000_0000
LOCAL = 0x7D00_0000_0000
PARAM = 0x7C00_0000_0000
WINDOW = 40  # address >> WINDOW tells the space
SHARED_BASE = 1024  # where a block's own shared memory begins, as on sm_90; 0 is not a shared address
CLUSTER_SHIFT = 24  # (rank + 1) << CLUSTER_SHIFT | offset: another block's shared memory
ALIGN = 256  # of an allocation, as cudaMalloc's
GUARD = 4096


class Allocation(NamedTuple):
    """One array: its name, its first address, its bytes, what it holds in words, and the bytes of an element.

    low, high: addresses that may be used through it: its own, or those of a larger array that it is a part of.
    """

    name: str
    start: int
    size: int
    words: str = ""
    item: int = 1
    low: int = 0
    high: int = 0

    def place(self, address: int, size: int) -> str:
        """Where `size` bytes at an address lie, in its elements: `x[1024]`."""
        first, odd = divmod(address - self.start, self.item)
        last = -(-(address - self.start + size) // self.item) - 1
        if odd or self.item == 1:
            return f"byte {address - self.start} of {self.name}"
        return f"{self.name}[{first}]" + (f" to [{last}]" if last > first else "")

    def outside(self, address: int, size: int) -> str:
        """What is wrong with that place: `x[1024]: past the end of x, which has 1024 elements (float32[1024])`."""
        side = "before the start" if address < self.start else "past the end"
        many = f"{self.size // self.item} elements" if self.item > 1 else f"{self.size} bytes"
        words = f" ({self.words})" if self.words else ""
        first = (address - self.start) // self.item
        if 1 << 31 <= first < 1 << 32:  # what a u32 holds after a subtraction that went below 0
            words += f"; an index of u32 wraps below 0, and {first} is {first - (1 << 32)}"
        return f"{self.place(address, size)}: {side} of {self.name}, which has {many}{words}"


class Arena:
    """All global memory of a launch in one buffer, copied in before and out afterwards."""

    def __init__(self) -> None:
        self.allocations: list[Allocation] = []
        self.end = GLOBAL + GUARD
        self._arrays: list[tuple[Array, int]] = []
        self.bytes: Array = np.zeros(0, np.uint8)
        self.views: dict[np.dtype[Any], Array] = {}

    def add(self, name: str, array: Array, words: str = "") -> Allocation:
        """Reserve a range for an array.

        An array that lies inside an earlier one is the same memory; add the larger one first.  Raises LaunchError for
        two that overlap in part.
        """
        first, item = int(array.__array_interface__["data"][0]), array.itemsize
        for other, start in self._arrays:
            begin = int(other.__array_interface__["data"][0])
            if first >= begin and first + array.nbytes <= begin + other.nbytes and array.nbytes:
                return Allocation(name, start + first - begin, array.nbytes, words, item, start, start + other.nbytes)
            if max(first, begin) < min(first + array.nbytes, begin + other.nbytes):
                raise LaunchError(f"{name} overlaps another argument in part; give one array and an offset")
        start = self.end
        self._arrays.append((array, start))
        allocation = Allocation(name, start, array.nbytes, words, item, start, start + array.nbytes)
        self.allocations.append(allocation)
        self.end = -(-(start + array.nbytes + GUARD) // ALIGN) * ALIGN
        return allocation

    def close(self) -> None:
        """Copy the arrays in."""
        self.bytes = np.zeros(self.end - GLOBAL, np.uint8)
        for array, start in self._arrays:
            self.bytes[start - GLOBAL : start - GLOBAL + array.nbytes] = array.reshape(-1).view(np.uint8)
        for name in ("u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "u8", "i8", "f8"):
            self.views[np.dtype(name)] = self.bytes.view(name)
        self.starts = np.array([a.start for a in self.allocations] or [0], np.int64)
        self.ends = np.array([a.start + a.size for a in self.allocations] or [0], np.int64)

    def copy_out(self) -> None:
        for array, start in self._arrays:
            if array.flags.writeable:
                array.reshape(-1).view(np.uint8)[:] = self.bytes[start - GLOBAL : start - GLOBAL + array.nbytes]

    def protected(self, address: Array) -> Array | None:
        """Lanes that would write to an array which NumPy holds read-only; None where no lane does."""
        bad = None
        for array, start in self._arrays:
            if not array.flags.writeable:
                hit = (address >= start) & (address < start + array.nbytes)
                bad = hit if bad is None else bad | hit
        return bad if bad is not None and bad.any() else None

    def outside(self, address: Array, size: int) -> Array | None:
        """Lanes whose `size` bytes lie in no array; None where all are inside."""
        low, high = int(address.min()), int(address.max())
        at = int(np.searchsorted(self.starts, low, "right")) - 1
        if at >= 0 and high + size <= self.ends[at]:
            return None
        place = np.searchsorted(self.starts, address, "right") - 1
        bad = (place < 0) | (address + size > self.ends[np.maximum(place, 0)])
        return bad if bad.any() else None

    def nearest(self, address: int) -> Allocation | None:
        """The array that an address lies in or closest to; None for one that is not a global address."""
        if not self.allocations or not GLOBAL <= address < self.end + (1 << 36):
            return None
        return min(self.allocations, key=lambda a: max(a.start - address, address - a.start - a.size + 1, 0))

    def describe(self, address: int, size: int = 1) -> tuple[str | None, str]:
        """The array nearest to an address, and the address in words."""
        allocation = self.nearest(address)
        if allocation is None:
            space = {SHARED >> WINDOW: "a generic address of shared memory", LOCAL >> WINDOW: "of local memory",
                     PARAM >> WINDOW: "of a parameter"}.get(address >> WINDOW, "no global address")  # fmt: skip
            return None, f"{address:#x} is {space}"
        inside = allocation.start <= address and address + size <= allocation.start + allocation.size
        return allocation.name, allocation.place(address, size) if inside else allocation.outside(address, size)
