"""Frames of pages: each page is a block of its own, so that it can be read alone."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from trueno.dispatch.function import function
from trueno.lz4.header import RAW, WORD, Array, checksum, hashing, head
from trueno.lz4.incoming import octets, on, whole
from trueno.ops.compression import MOST

AT_ONCE = 1 << 25
"""Bytes that one call compresses."""


def compress(
    data: Any, *, page: int = 4096, checksum: bool = False, level: int = 1, backend: str | None = None
) -> bytes:
    """A standard LZ4 frame of `data`, which any program reads that reads LZ4.

    data: bytes, a buffer, or an array of any dtype, whose bytes count in C order; those of a device are copied to the
    host.  page: bytes of a block, 1 to 65 536; blocks do not refer to each other.  checksum: add checksums of the
    blocks and of the content, which readers compare.  level: 1 is fast, 2 smaller (`trueno.lz4_compress`).  backend:
    where to compute; the best one by default.  Pages that do not become smaller are stored as they are, so a frame is
    never longer than `data` by more than 4 bytes per page (8 with checksums) and 23.  DtypeError, ParameterError.
    """
    return b"".join(parts(octets("lz4.compress", "data", data), page, checksum, level, backend))


def parts(
    data: Array, page: int, checked: bool, level: int, backend: str | None, read: list[int] | None = None
) -> Iterator[bytes]:
    """The frame of bytes, in parts of about `AT_ONCE` bytes of data; read[0] counts those that are compressed."""
    page, checked = whole("lz4.compress", "page", page, 1, MOST), bool(checked)
    level = whole("lz4.compress", "level", level, 1, 2)
    yield head(len(data), checked)
    step = max(AT_ONCE // page, 1) * page
    for start in range(0, len(data), step):
        chunk = data[start : start + step]
        full = len(chunk) // page * page
        for rows in (chunk[:full].reshape(-1, page), chunk[full:].reshape(1, -1)):
            if rows.size:
                with on(backend):
                    blocks, sizes = function("lz4_compress")(rows, level=level)
                if read is not None:
                    read[0] += rows.size
                yield _framed(blocks, sizes, checked)
    yield WORD.pack(0) + (WORD.pack(_summed(data)) if checked else b"")


def _framed(blocks: Array, sizes: Array, checked: bool) -> bytes:
    """Blocks behind their sizes, and before their checksums."""
    used = np.abs(sizes)
    words = np.where(sizes < 0, used | RAW, used).astype("<u4").view(np.uint8).data
    flat, p = np.ascontiguousarray(blocks).reshape(-1).data, blocks.shape[1]
    pieces: list[Any] = []
    for i, count in enumerate(used.tolist()):
        block = flat[i * p : i * p + count]
        pieces += (words[4 * i : 4 * i + 4], block)
        if checked:
            pieces.append(WORD.pack(checksum(block)))
    return b"".join(pieces)


def _summed(data: Array) -> int:
    whole_sum = hashing()()
    for start in range(0, len(data), AT_ONCE):
        whole_sum.update(data[start : start + AT_ONCE].data)
    return int(whole_sum.intdigest())
