"""Tensor maps: the 128 bytes that tell a bulk copy how to select boxes of an array."""

import ctypes
from collections.abc import Sequence
from ctypes import c_uint, c_uint64
from typing import Final

from trueno.errors import KernelError

from trueno_cuda.device.hardware.driver import Driver

TYPES: Final = {
    "u8": 0, "u16": 1, "u32": 2, "s32": 3, "u64": 4, "s64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9,
    "tf32": 11,
}  # fmt: skip
"""CUtensorMapDataType by the builder's names; a map of tf32 rounds float32 to it."""
_SWIZZLES: Final = {0: 0, 32: 1, 64: 2, 128: 3}
_L2_128: Final = 2  # CUtensorMapL2promotion: by 128 bytes


def encoded(
    driver: Driver,
    address: int,
    element: str,
    shape: Sequence[int],
    pitches: Sequence[int],
    box: Sequence[int],
    swizzle: int = 0,
    nan: bool = False,
) -> bytes:
    """The 128 bytes of a tiled tensor map, over up to five axes of an array.

    element: as the builder names it.  shape, box: of the array and of a tile, in NumPy's order of axes.
    pitches: bytes from one element to the next along each axis but the last.  swizzle: 0, 32, 64 or 128 bytes.
    nan: what lies outside reads as NaN, not 0.  KernelError where the hardware takes no such map.
    """
    rank = len(shape)
    what = f"a tensor map of {tuple(shape)} {element}, pitches {tuple(pitches)}, box {tuple(box)}"
    if not 1 <= rank <= 5 or len(box) != rank or len(pitches) != rank - 1:
        raise KernelError(f"{what}: one to five axes, a box of as many, and one pitch less")
    if element not in TYPES or swizzle not in _SWIZZLES:
        raise KernelError(f"{what}: elements are {', '.join(TYPES)}, and swizzle {tuple(_SWIZZLES)}")
    room = ctypes.create_string_buffer(128 + 63)
    start = -ctypes.addressof(room) % 64
    driver.call(
        "cuTensorMapEncodeTiled", ctypes.addressof(room) + start, TYPES[element], rank, address,
        (c_uint64 * rank)(*shape[::-1]), (c_uint64 * max(rank - 1, 1))(*pitches[::-1]),
        (c_uint * rank)(*box[::-1]), (c_uint * rank)(*[1] * rank),
        0, _SWIZZLES[swizzle], _L2_128, int(nan), what=what,
    )  # fmt: skip
    return room.raw[start : start + 128]
