"""LZ4 blocks for tests: pages of many kinds, a decoder that is written from the format alone, and broken blocks."""

import ctypes
import json
import mmap
from pathlib import Path
from typing import Any

import lz4.block
import numpy as np

Array = np.ndarray[Any, Any]
KINDS = ("zeros", "random", "text", "json", "rounded", "weights", "blocks", "runs", "letters", "pieces")
SOURCE = Path(__file__).read_bytes()
LIES = (0, 1, 2, 7, 8, 14, 15, 16, 31, 0x0F, 0x1F, 0xF0, 0xF1, 0x4F, 0xFE, 0xFF)
"""Bytes that mean something as a token, a length or half an offset."""


def data(rng: np.random.Generator, kind: str, size: int) -> bytes:
    """`size` bytes as users have them ("text" … "blocks"), and as they are hard to decode ("runs" … "pieces")."""
    if kind == "zeros":
        return bytes(size)
    if kind == "random":
        return rng.bytes(size)
    if kind == "text":
        start = int(rng.integers(len(SOURCE)))
        return (SOURCE * (2 + size // len(SOURCE)))[start : start + size]
    if kind == "json":
        rows = [
            {"id": int(i), "name": f"user {i % 97}", "score": float(i) / 7}
            for i in rng.integers(0, 1000, size // 30 + 1)
        ]
        return json.dumps(rows).encode()[:size].ljust(size, b" ")
    if kind == "rounded":
        return np.round(rng.standard_normal(size // 4 + 1), 3).astype(np.float32).tobytes()[:size]
    if kind == "weights":
        return (0.02 * rng.standard_normal(size // 2 + 1)).astype(np.float16).tobytes()[:size]
    if kind == "blocks":  # 16 bytes of scales, which repeat in part, then codes
        codes = rng.integers(0, 256, (size // 144 + 1, 144), np.uint8)
        codes[:, :4] = (0x1D, 0x0B, 0x2C, 0x12)
        return codes.tobytes()[:size]
    if kind == "runs":  # periods of 1 to 40 bytes, each repeated for a while
        out = b""
        while len(out) < size:
            out += rng.bytes(int(rng.integers(1, 41))) * int(rng.integers(1, 40))
        return out[:size]
    if kind == "letters":
        return bytes(rng.choice(np.frombuffer(b"abcd", np.uint8), size))
    out = b""
    while len(out) < size:  # new bytes, then some that were there before
        out += rng.bytes(int(rng.choice([1, 5, 14, 15, 16, 30, 300])))
        start, length = int(rng.integers(len(out))), int(rng.choice([4, 5, 18, 19, 20, 100, 300]))
        out += (out[start:] * length)[:length]
    return out[:size]


def encoded(rng: np.random.Generator, page: bytes) -> bytes:
    """A right block of a page, from one of the library's three encoders."""
    mode = str(rng.choice(["default", "fast", "high_compression"]))
    more = {"acceleration": int(rng.integers(1, 20))} if mode == "fast" else {}
    return lz4.block.compress(page, mode=mode, store_size=False, **more)


def sequences(block: bytes) -> list[tuple[int, int, int]]:
    """Literals, offset and match of each sequence of a right block; 0, 0 of the last."""
    listed, at = [], 0
    while True:
        token, at = block[at], at + 1
        counts = []
        for count in (token >> 4, token & 15):
            if count == 15:
                more = 255
                while more == 255:
                    more, at = block[at], at + 1
                    count += more
            counts.append(count)
            if len(counts) == 1:
                at += count
                if at == len(block):
                    return [*listed, (count, 0, 0)]
                offset, at = int.from_bytes(block[at : at + 2], "little"), at + 2
        listed.append((counts[0], offset, counts[1] + 4))


def decoded(block: bytes, page: int) -> bytes | int:
    """The bytes of a block, or −1 − where the sequence begins that breaks a rule; the rules are the op's."""
    out, at = bytearray(), 0
    try:
        while True:
            start, token = at, block[at]
            literals, at = _more(block, token >> 4, at + 1)
            text, at = block[at : at + literals], at + literals
            out += text
            if len(text) < literals or len(out) > page:
                return -1 - start
            if at == len(block):
                return bytes(out)
            if len(block) - at < 8 or page - len(out) < 12:
                return -1 - start
            offset = block[at] + 256 * block[at + 1]
            match, at = _more(block, token & 15, at + 2)
            match += 4
            if at > len(block) - 4 or not 1 <= offset <= len(out) or len(out) + match > page - 5:
                return -1 - start
            period = bytes(out[-offset:])
            out += (period * (match // offset + 1))[:match]
    except IndexError:
        return -1 - start


def _more(block: bytes, count: int, at: int) -> tuple[int, int]:
    while count >= 15:
        count += block[at]
        at += 1
        if block[at - 1] < 255:
            break
    return count, at


def library(block: bytes, page: int) -> bytes | None:
    """What LZ4_decompress_safe makes of a block; None if it refuses it."""
    try:
        return lz4.block.decompress(block, uncompressed_size=page)
    except lz4.block.LZ4BlockError:
        return None


def expected(block: bytes, page: int) -> bytes | int:
    """`decoded`, which the library must not contradict: it accepts, with the same bytes, all that we accept."""
    want = decoded(block, page)
    if isinstance(want, bytes):
        theirs = library(block, page)
        assert theirs == want, f"the library gives other bytes for {block.hex()}, page {page}"
    return want


# ---- broken blocks


def mutated(rng: np.random.Generator, block: bytes, others: list[bytes]) -> bytes:
    """A block after some damage; never empty."""
    for _ in range(int(rng.choice([1, 1, 1, 2, 4]))):
        block = MUTATIONS[int(rng.integers(len(MUTATIONS)))](rng, block, others) or b"\0"
    return block


def _flip(rng: np.random.Generator, block: bytes, _: list[bytes]) -> bytes:
    changed = bytearray(block)
    changed[int(rng.integers(len(block)))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def _lie(rng: np.random.Generator, block: bytes, _: list[bytes]) -> bytes:
    changed = bytearray(block)
    place = (
        len(block) - 1 - int(rng.integers(min(len(block), 24))) if rng.random() < 0.4 else int(rng.integers(len(block)))
    )
    changed[place] = LIES[int(rng.integers(len(LIES)))]
    return bytes(changed)


def _long(rng: np.random.Generator, block: bytes, _: list[bytes]) -> bytes:
    """Many bytes of 255, which add to a length."""
    at = int(rng.integers(len(block)))
    return block[:at] + b"\xff" * int(rng.choice([1, 2, 20, 300])) + block[at:]


def _cut(rng: np.random.Generator, block: bytes, _: list[bytes]) -> bytes:
    return block[: int(rng.integers(len(block)))]


def _head(rng: np.random.Generator, block: bytes, _: list[bytes]) -> bytes:
    return block[int(rng.integers(len(block))) :]


def _piece(rng: np.random.Generator, block: bytes, _: list[bytes]) -> bytes:
    """A piece doubled, or gone."""
    a = int(rng.integers(len(block)))
    b = a + int(rng.choice([1, 2, 3, 8, 20]))
    return block[:b] + block[a:] if rng.random() < 0.5 else block[:a] + block[b:]


def _splice(rng: np.random.Generator, block: bytes, others: list[bytes]) -> bytes:
    other = others[int(rng.integers(len(others)))]
    return block[: int(rng.integers(len(block) + 1))] + other[int(rng.integers(len(other))) :]


def _noise(rng: np.random.Generator, block: bytes, _: list[bytes]) -> bytes:
    return rng.bytes(int(rng.integers(1, 40)))


MUTATIONS = (_flip, _flip, _flip, _lie, _lie, _lie, _long, _cut, _head, _piece, _splice, _noise)


# ---- memory

FILL = 0xA5


class Fenced:
    """Bytes between two pages of memory that end the process when they are read or written (Linux).

    `array` has `size` bytes, and begins or ends at one of them.
    """

    def __init__(self, size: int, *, at_end: bool) -> None:
        whole = max(1, -(-size // mmap.PAGESIZE)) * mmap.PAGESIZE
        self._memory = mmap.mmap(-1, whole + 2 * mmap.PAGESIZE)
        every = np.frombuffer(self._memory, np.uint8)
        for fence in (0, mmap.PAGESIZE + whole):
            address = ctypes.c_void_p(every.ctypes.data + fence)
            if ctypes.CDLL(None, use_errno=True).mprotect(address, ctypes.c_size_t(mmap.PAGESIZE), 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        self.room = every[mmap.PAGESIZE : mmap.PAGESIZE + whole]
        self.room[:] = FILL
        start = whole - size if at_end else 0
        self.array = self.room[start : start + size]
        self._beside = self.room[:start], self.room[start + size :]

    def untouched(self) -> bool:
        """Whether the bytes beside the array are what they were."""
        return all((part == FILL).all() for part in self._beside)


def packed(rng: np.random.Generator, blocks: list[bytes]) -> tuple[Array, Array, Array]:
    """Blocks in any order with gaps between fences, the first or the last at one; their offsets and sizes."""
    order, gaps = rng.permutation(len(blocks)), rng.integers(0, 3, len(blocks) + 1)
    at_end = bool(rng.random() < 0.5)
    gaps[-1 if at_end else 0] = 0
    offsets, at = np.zeros(len(blocks), np.int64), int(gaps[0])
    for i, gap in zip(order, gaps[1:], strict=True):
        offsets[i] = at
        at += len(blocks[i]) + int(gap)
    array = Fenced(at, at_end=at_end).array
    array[:] = np.frombuffer(rng.bytes(at), np.uint8)
    for offset, block in zip(offsets, blocks, strict=True):
        array[offset : offset + len(block)] = np.frombuffer(block, np.uint8)
    return array, offsets, np.array([len(block) for block in blocks], np.int64)
