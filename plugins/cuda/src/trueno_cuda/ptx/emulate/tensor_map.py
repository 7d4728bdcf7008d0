"""Tensor maps: how a bulk copy cuts boxes out of an array.

The driver's 128-byte encoding is opaque, so the emulator's own holds a number, and the map itself stays in Python.
"""

from collections.abc import Sequence

import numpy as np

from trueno_cuda.ptx.emulate.errors import LaunchError
from trueno_cuda.ptx.syntax.types import Array

MAGIC = b"trueno tensor map"
SWIZZLES = (0, 32, 64, 128)


def swizzle(address: Array, width: int) -> Array:
    """Where a byte of shared memory goes under a swizzle of 32, 64 or 128 bytes: address bits 7.. into bits 4..."""
    if width == 0:
        return address
    moved: Array = address ^ ((address >> 7 & (width // 16 - 1)) << 4)
    return moved


class TensorMap:
    """A tiled tensor map over a C-contiguous array of up to five axes.

    box: the tile's shape, in the array's order of axes (PTX counts coordinates from the last one).  swizzle: 0, 32,
    64 or 128 bytes.  fill: what lies outside the array, 0 or NaN.  rounds: float32 is rounded to tf32 on its way into
    shared memory.  Raises LaunchError where the hardware would.
    """

    def __init__(
        self, array: Array, box: Sequence[int], swizzle: int = 0, fill: float = 0.0, rounds: bool = False
    ) -> None:
        if not array.flags.c_contiguous or not 1 <= array.ndim <= 5 or len(box) != array.ndim:
            raise LaunchError(f"a tensor map wants a C-contiguous array of 1 to 5 axes and a box of as many, not "
                              f"{array.shape} and {tuple(box)}")  # fmt: skip
        if swizzle not in SWIZZLES:
            raise LaunchError(f"swizzle is one of {SWIZZLES}, not {swizzle}")
        if any(not 1 <= b <= 256 for b in box):
            raise LaunchError(f"each side of a box is 1 to 256, not {tuple(box)}")
        inner = box[-1] * array.itemsize
        if inner % 16 or (swizzle and inner > swizzle):
            raise LaunchError(f"a box's rows must be multiples of 16 bytes and fit the swizzle; {inner} bytes do not")
        if any(s % 16 for s in array.strides[:-1]):
            raise LaunchError(f"strides must be multiples of 16 bytes: {array.strides}")
        self.array = array
        self.box = tuple(int(b) for b in box)
        self.width = swizzle
        self.fill = fill
        self.rounds = rounds

    @property
    def size(self) -> int:
        """Bytes of one tile."""
        return int(np.prod(self.box)) * self.array.itemsize

    def encode(self, number: int) -> bytes:
        return (MAGIC + number.to_bytes(4, "little")).ljust(128, b"\0")

    def converted(self, data: Array) -> Array:
        """The bytes of a tile as they arrive in shared memory: to nearest, ties to even; what is not a number stays."""
        if not self.rounds:
            return data
        bits = data.view(np.uint32)
        near = (bits + np.uint32(0xFFF) + (bits >> 13 & 1)) & np.uint32(0xFFFFE000)
        return np.where(bits & np.uint32(0x7FFFFFFF) > 0x7F800000, bits, near).view(np.uint8)

    def elements(self, coordinates: Sequence[int]) -> tuple[Array, Array]:
        """Flat element numbers of the tile at PTX coordinates (innermost first), and which lie inside the array."""
        flat: Array = np.zeros((), np.int64)
        inside: Array = np.ones((), bool)
        for axis, (size, length) in enumerate(zip(self.array.shape, self.box, strict=True)):
            at = coordinates[self.array.ndim - 1 - axis] + np.arange(length)
            flat = flat[..., None] * size + at
            inside = inside[..., None] & ((at >= 0) & (at < size))
        return flat.reshape(-1), inside.reshape(-1)


def number_of(data: bytes) -> int | None:
    """The number in a map's 128 bytes; None where they are not a map."""
    if not data.startswith(MAGIC):
        return None
    return int.from_bytes(data[len(MAGIC) : len(MAGIC) + 4], "little")
