"""The content of frames.  Independent blocks of up to 64 KiB go to the op, all others to the package lz4.

Nothing is allocated on the word of a frame: a block of s bytes decodes to 255 s at most, and calls are cut so that
their results have about `AT_ONCE` bytes.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from trueno.dispatch.function import function
from trueno.errors import LZ4Error
from trueno.formats.lz4 import library
from trueno.lz4.header import MOST, Array, Frame, frames, hashing
from trueno.lz4.incoming import octets, on, whole

AT_ONCE = 1 << 25
"""Bytes of pages that one call decodes to."""
PAGE = 1 << 16
"""The largest page of the op, and of a window that linked blocks refer to."""


def decompress(frame: Any, *, limit: int | None = None, backend: str | None = None) -> bytes:
    """The content of a standard LZ4 frame, or of several that follow each other; checksums are compared.

    limit: the most bytes of content; a frame with more is an LZ4Error, without that memory being taken.  Without it,
    content has at most 255 times the bytes of the frame, by the format.  backend: where to compute; the best one by
    default.  LZ4Error for bytes that are damaged, cut off or not LZ4, naming frame, page and byte; also for frames with
    a dictionary.  DtypeError, ParameterError.
    """
    return b"".join(contents(octets("lz4.decompress", "frame", frame), limit, backend))


def contents(data: Array, limit: int | None, backend: str | None, read: list[int] | None = None) -> Iterator[bytes]:
    """The content in parts; every header is read before the first.  read[0] is how far `data` has been decompressed."""
    most = len(data) * MOST if limit is None else whole("lz4.decompress", "limit", limit, 0)
    found, done = frames(data.data), 0
    said = sum(frame.content or 0 for frame in found)
    if said > most:
        raise _over(found[0], said, most)
    for frame in found:
        summed, before = hashing()() if frame.summed is not None else None, done
        parts = _linked(frame, data) if frame.linked or frame.most > PAGE else _paged(frame, data, backend)
        for last, part in parts:
            done += len(part)
            if done > most:
                raise _over(frame, done, most)
            if summed is not None:
                summed.update(part)
            if read is not None:
                read[0] = int(frame.offsets[last] + abs(frame.sizes[last]))
            yield part
        if frame.content not in (None, done - before):
            raise frame.error(f"its content has {done - before} bytes, and its header says {frame.content}")
        if summed is not None and summed.intdigest() != frame.summed:
            wrong = f"is {summed.intdigest():#010x}, and the frame says {frame.summed:#010x}"
            raise frame.error(f"the checksum of its content {wrong}")


def _over(frame: Frame, count: int, most: int) -> LZ4Error:
    return frame.error(f"the content has {count} bytes or more, and {most} are allowed; pass a larger limit")


def _linked(frame: Frame, data: Array) -> Iterator[tuple[int, bytes]]:
    """The pages of a frame by the package lz4, with their numbers: each with the 64 KiB before it, if linked."""
    before = bytearray()
    for i in range(len(frame.sizes)):
        page = block(frame, i, data, before)
        if frame.linked:
            before += page
            if len(before) > 2 * PAGE:  # not each time: many small blocks would move the window as often
                del before[:-PAGE]
        yield i, page


def block(frame: Frame, i: int, data: Array, before: bytes | bytearray = b"") -> bytes:
    """One page by the package lz4; before: what a linked one may refer to."""
    start, size = int(frame.offsets[i]), int(frame.sizes[i])
    stored = data[start : start + abs(size)].tobytes()
    if size < 0:
        return stored
    try:
        room = min(size * MOST, frame.most)
        return library().decompress(stored, uncompressed_size=room, dict=before)  # type: ignore[no-any-return]
    except library().LZ4BlockError as error:
        raise frame.error(f"the block is malformed ({error})", i) from None


def _paged(frame: Frame, data: Array, backend: str | None) -> Iterator[tuple[int, bytes]]:
    """The pages of a frame of independent blocks by the op, several at once, with the number of the last.

    First the first one, then with room for such pages all others.
    """
    count = len(frame.sizes)
    if not count:
        return
    (first,) = pages(frame, np.zeros(1, np.int64), int(frame.holds(0)), data, backend)
    yield 0, bytes(first)
    room = max(len(first), 1)
    step = max(AT_ONCE // room, 1)
    for start in range(1, count, step):
        which = np.arange(start, min(start + step, count))
        yield int(which[-1]), b"".join(pages(frame, which, room, data, backend))


def pages(frame: Frame, which: Array, room: int, data: Array, backend: str | None) -> list[Any]:
    """The bytes of some pages of a frame, each a buffer; those with more than `room` bytes are decoded once more."""
    first, last = int(which[0]), int(which[-1])
    low = int(frame.offsets[first])
    high = int(frame.offsets[last] + abs(frame.sizes[last]))
    packed, offsets, sizes = data[low:high], frame.offsets[which] - low, frame.sizes[which]
    with on(backend):
        y, lengths = function("lz4_decompress")(packed, offsets, sizes, page=room)
    flat, used = y.reshape(-1).data, lengths.tolist()
    found: list[Any] = [flat[i * room : i * room + max(n, 0)] for i, n in enumerate(used)]
    failed, most = np.flatnonzero(lengths < 0), frame.holds(which)
    if len(wrong := failed[most[failed] <= room]):
        i = int(wrong[0])
        raise frame.error("the block is malformed", int(which[i]), -1 - used[i])
    more = int(most[failed].max(initial=1))
    step = max(AT_ONCE // more, 1)
    for k in range(0, len(failed), step):
        some = failed[k : k + step]
        for i, page in zip(some.tolist(), pages(frame, which[some], more, data, backend), strict=True):
            found[i] = page
    return found
