"""LZ4's frame format: headers, the index of a frame's blocks, and checksums.

A frame is a magic number, two bytes of flags, the size of the content if the flags say so, a byte of checksum, then
blocks, each behind its size in four bytes, an end mark of zeros, and a checksum of the content if there is one.  A
legacy frame, as `lz4 -l` and Linux kernels have it, is another magic number and blocks of 8 MiB behind their sizes; the
end of the stream or the next magic number ends it.
Source: lz4_Frame_format.md of the LZ4 project, 1.6.x.
"""

import struct
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.errors import BackendUnavailable, LZ4Error
from trueno.remedies import install

Buffer = memoryview
Array = npt.NDArray[Any]

MAGIC = 0x184D2204
SKIPPABLE = range(0x184D2A50, 0x184D2A60)
LEGACY, LEGACY_MOST = 0x184C2102, 8 << 20
"""The magic number of a legacy frame, and the most bytes that one of its blocks decodes to."""
VERSION = 1
LINKED_AT, BLOCK_SUM, CONTENT_SIZE, CONTENT_SUM, RESERVED, DICTIONARY = 5, 4, 3, 2, 1, 0
"""Bits of the first byte of flags; that of LINKED_AT is set if blocks are not linked."""
SIZES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
"""The most bytes that a block decodes to, by the code in the second byte of flags."""
RAW = 1 << 31
"""Set in the size of a block that is stored as it is."""
MOST = 255
"""The most bytes that a byte of a block decodes to: a byte of a length adds as many."""
WORD = struct.Struct("<I")
LONG = struct.Struct("<Q")


@cache
def hashing() -> Any:
    """The function `xxh32` of the package xxhash; BackendUnavailable if it is not installed."""
    try:
        from xxhash import xxh32
    except ImportError as error:
        problem = f"lz4: the package xxhash is not installed ({error})"
        raise BackendUnavailable(f"{problem}. Install: {install('lz4')}") from None
    return xxh32


def checksum(data: Any) -> int:
    """The checksum of bytes, as frames have them."""
    return int(hashing()(data).intdigest())


def head(content: int, checked: bool) -> bytes:
    """The header of a frame of independent blocks of up to 64 KiB; checked: blocks and content have checksums."""
    flags = VERSION << 6 | 1 << LINKED_AT | checked << BLOCK_SUM | 1 << CONTENT_SIZE | checked << CONTENT_SUM
    described = bytes([flags, 4 << 4]) + LONG.pack(content)
    return WORD.pack(MAGIC) + described + bytes([checksum(described) >> 8 & 255])


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a stream, whose blocks are known and not decoded.

    number: of the frame, from 0; start, end: its first byte, and the first behind it; most: what a block may decode to;
    content: the bytes that it says it holds, or None; offsets and sizes: of the blocks in the stream, as
    `lz4_decompress` takes them; summed: the checksum of the content, or None; checked: whether blocks have checksums.
    """

    number: int
    start: int
    end: int
    linked: bool
    most: int
    content: int | None
    offsets: Array
    sizes: Array
    summed: int | None
    checked: bool

    @property
    def bound(self) -> int:
        """The most bytes that its blocks can decode to."""
        return int(self.holds(slice(None)).sum())

    def holds(self, which: Any) -> Array:
        """The most bytes that each of some blocks can decode to."""
        sizes = self.sizes[which]
        held: Array = np.where(sizes < 0, -sizes, np.minimum(sizes * MOST, self.most))
        return held

    def error(self, problem: str, page: int | None = None, at: int = 0) -> LZ4Error:
        """What is wrong with it, or with one of its pages; at: the index in the page's block."""
        where = f"frame {self.number} at byte {self.start}"
        if page is not None:
            where += f", page {page} at byte {int(self.offsets[page]) + at}"
        return LZ4Error(f"lz4: {where}: {problem}")


class Scanner:
    """Reads headers, one frame after the other."""

    def __init__(self, data: Buffer) -> None:
        self.data, self.at, self.number, self.start = data, 0, 0, 0

    def error(self, problem: str) -> LZ4Error:
        return LZ4Error(f"lz4: frame {self.number} at byte {self.start}: {problem}")

    def take(self, count: int, what: str) -> Buffer:
        """The next bytes; LZ4Error if there are fewer."""
        if self.at + count > len(self.data):
            left = len(self.data) - self.at
            raise self.error(f"{what} at byte {self.at} has {count} bytes, and {left} are left; it is cut off")
        self.at += count
        return self.data[self.at - count : self.at]

    def word(self, what: str) -> int:
        return int(WORD.unpack(self.take(4, what))[0])

    def frames(self) -> list[Frame]:
        """Every frame with content; LZ4Error for anything else than frames, and for nothing at all."""
        found = []
        while self.at < len(self.data):
            self.start = self.at
            magic = self.word("the magic number")
            if magic in SKIPPABLE:
                self.take(self.word("the size of a skippable frame"), "a skippable frame")
                continue
            if magic not in (MAGIC, LEGACY):
                raise self.error(f"it begins with {magic:#010x}, and frames of LZ4 with {MAGIC:#010x}")
            found.append(self.frame() if magic == MAGIC else self.legacy())
            self.number += 1
        if not self.data:
            raise LZ4Error("lz4: there are no bytes; a frame has 11 at least")
        return found

    def frame(self) -> Frame:
        """The frame behind a magic number that was read."""
        begin = self.at
        flags, limits = self.take(2, "the header")
        on = {bit: bool(flags >> bit & 1) for bit in range(6)}
        if flags >> 6 != VERSION:
            raise self.error(f"its version is {flags >> 6}; version {VERSION} is known")
        if on[RESERVED] or limits & 0x8F or limits >> 4 not in SIZES:
            raise self.error(f"its header has the flags {flags:#04x} {limits:#04x}, which the format does not define")
        content = LONG.unpack(self.take(8, "the size of the content"))[0] if on[CONTENT_SIZE] else None
        if on[DICTIONARY]:
            known = self.word("the number of the dictionary")
            raise self.error(f"it needs dictionary {known}; frames with a dictionary are not read, use the package lz4")
        described = self.data[begin : self.at]
        (right,) = self.take(1, "the header's checksum")
        if (own := checksum(described) >> 8 & 255) != right:
            raise self.error(f"the header's checksum is {right:#04x}, and that of its bytes is {own:#04x}")
        offsets: list[int] = []
        sizes: list[int] = []
        most = SIZES[limits >> 4]
        while size := self.word(f"the size of page {len(sizes)}"):
            count = size & ~RAW
            if count > most:
                raise self.error(f"page {len(sizes)} at byte {self.at} has {count} bytes, and {most} is the most here")
            if not count:
                raise self.error(f"page {len(sizes)} at byte {self.at} is raw and has no bytes")
            block = self.take(count, f"page {len(sizes)}")
            if on[BLOCK_SUM] and checksum(block) != (right := self.word(f"the checksum of page {len(sizes)}")):
                wrong = f"is {checksum(block):#010x}, and the frame says {right:#010x}"
                raise self.error(f"the checksum of page {len(sizes)} at byte {self.at - 4 - count} {wrong}")
            offsets.append(self.at - count - 4 * on[BLOCK_SUM])
            sizes.append(-count if size & RAW else count)
        summed = self.word("the checksum of the content") if on[CONTENT_SUM] else None
        frame = Frame(
            self.number, self.start, self.at, not on[LINKED_AT], most, content,
            np.array(offsets, np.int64), np.array(sizes, np.int64), summed, on[BLOCK_SUM],
        )  # fmt: skip
        if content is not None and content > frame.bound:
            most_held = f"its {len(sizes)} blocks hold {frame.bound} bytes at most"
            raise self.error(f"it says that it has {content} bytes of content, and {most_held}")
        return frame

    def legacy(self) -> Frame:
        """The legacy frame behind a magic number that was read."""
        offsets: list[int] = []
        sizes: list[int] = []
        while self.at < len(self.data):
            size = self.word(f"the size of page {len(sizes)}")
            if size in (MAGIC, LEGACY) or size in SKIPPABLE:
                self.at -= WORD.size
                break
            if not 0 < size <= LEGACY_MOST + LEGACY_MOST // 255 + 16:  # what a block of incompressible bytes takes
                raise self.error(f"page {len(sizes)} at byte {self.at} of a legacy frame has {size} bytes")
            self.take(size, f"page {len(sizes)}")
            offsets.append(self.at - size)
            sizes.append(size)
        places = np.array(offsets, np.int64), np.array(sizes, np.int64)
        return Frame(self.number, self.start, self.at, False, LEGACY_MOST, None, *places, None, False)


def frames(data: Buffer) -> list[Frame]:
    """The frames of a stream; LZ4Error for one that is damaged, cut off, or of another kind."""
    return Scanner(data).frames()
