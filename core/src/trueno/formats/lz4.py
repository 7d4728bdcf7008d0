"""LZ4's block format: what a block is, byte by byte, and the meaning of the ops on pages of bytes.

A block is a row of sequences.  A sequence is a token, 16 · literals + match − 4, then more bytes of the number of
literals if that is 15 or more, the literals, the offset of the match in two bytes, and more bytes of its length if that
is 19 or more.  The last sequence ends with its literals.  Bytes are decoded and encoded by the package `lz4`, which is
the format's own library; `fault` says which blocks it may be given.
Source: lz4_Block_format.md and lz4.c of the LZ4 project.
"""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.errors import BackendUnavailable, KernelError
from trueno.remedies import install

Array = npt.NDArray[Any]
LONG = 15
"""The largest number in half a token; more follows in further bytes."""
LEAST = 4
"""The length of the shortest match."""
LITERALS = 5
"""The bytes at the end of a page that no match covers."""
MARGIN = 12
"""The bytes at the end of a page in which no match starts."""
AFTER = 8
"""The bytes of a block behind the literals of a sequence with a match: an offset, a token, and five literals."""
LENGTHS = 4
"""The bytes of a block behind the last byte of a match's length."""


@cache
def library() -> Any:
    """The module `lz4.block`; BackendUnavailable if it is not installed."""
    try:
        import lz4.block
    except ImportError as error:
        problem = f"lz4: the package is not installed ({error})"
        raise BackendUnavailable(f"{problem}. Install: {install('lz4')}") from None
    return lz4.block


def missing() -> str:
    """Why there is no reference for these ops, as a sentence; empty if the package is installed."""
    try:
        library()
    except BackendUnavailable as error:
        return str(error)
    return ""


def fault(block: bytes, page: int) -> int:
    """Where the first wrong sequence of a block begins, by the rules of `lz4_decompress`; −1 if all are right."""
    end, at, done = len(block), 0, 0
    while at < end:
        start, token = at, block[at]
        literals, at = _length(block, token >> 4, at + 1, end)
        if at < 0:
            return start
        at, done = at + literals, done + literals
        if done > page - MARGIN or at > end - AFTER:
            return -1 if at == end and done <= page else start
        offset = block[at] | block[at + 1] << 8
        match, at = _length(block, token & LONG, at + 2, end - LENGTHS)
        done += match + LEAST
        if at < 0 or not 0 < offset <= done - match - LEAST or done > page - LITERALS:
            return start
    return at  # only of an empty block: after a match, some of the block is left


def _length(block: bytes, number: int, at: int, end: int) -> tuple[int, int]:
    """A length that half a token begins, and where its bytes end; that is −1 if one of them is not before `end`."""
    if number < LONG:
        return number, at
    while at < end:
        number, at = number + block[at], at + 1
        if block[at - 1] < 255:
            return number, at
    return 0, -1


def decoded(block: bytes, page: int) -> bytes:
    """The bytes of a block without a fault."""
    try:
        return library().decompress(block, uncompressed_size=page)  # type: ignore[no-any-return]
    except library().LZ4BlockError as error:
        raise KernelError(f"lz4_decompress: the package lz4 refused a block that keeps all rules: {error}") from error


def encoded(page: bytes, level: int = 1) -> bytes:
    """The library's block for a page, which may be longer than the page; level 2 is its first with lazy matching."""
    more = {"mode": "high_compression", "compression": 3} if level > 1 else {}
    return library().compress(page, store_size=False, **more)  # type: ignore[no-any-return]


def compressed(x: Array, level: int) -> tuple[Array, Array]:
    """`lz4_compress`."""
    blocks, sizes = np.zeros(x.shape, np.uint8), np.empty(len(x), np.int64)
    for i, row in enumerate(x):
        block = encoded(row.tobytes(), level)
        stored = len(block) >= len(row)
        sizes[i] = -len(row) if stored else len(block)
        blocks[i, : abs(sizes[i])] = row if stored else np.frombuffer(block, np.uint8)
    return blocks, sizes


def decompressed(packed: Array, offsets: Array, sizes: Array, page: int) -> tuple[Array, Array]:
    """`lz4_decompress`."""
    y, lengths = np.zeros((len(offsets), page), np.uint8), np.empty(len(offsets), np.int64)
    for i, (start, size) in enumerate(zip(offsets.tolist(), sizes.tolist(), strict=True)):
        inside = size == 0 or (start >= 0 and start + abs(size) <= len(packed))
        part = packed[start : start + abs(size)].tobytes() if inside and size else b""
        if not inside or -size > page:
            lengths[i] = -1
        elif size > 0 and (wrong := fault(part, page)) >= 0:
            lengths[i] = -1 - wrong
        else:
            page_bytes = decoded(part, page) if size > 0 else part
            lengths[i] = len(page_bytes)
            y[i, : len(page_bytes)] = np.frombuffer(page_bytes, np.uint8)
    return y, lengths


def joined(blocks: Array, sizes: Array) -> tuple[Array, Array]:
    """`lz4_pack`."""
    used = np.abs(sizes)
    ends = np.cumsum(used)
    packed = np.zeros(blocks.size, np.uint8)
    packed[: used.sum()] = blocks[np.arange(blocks.shape[1]) < used[:, None]]
    return packed, ends - used
