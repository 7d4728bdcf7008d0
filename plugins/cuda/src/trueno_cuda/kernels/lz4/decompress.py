# mypy: disable-error-code="valid-type"
"""lz4_decompress: a warp decodes a page, one sequence after the other.

All lanes read the token, the lengths and the offset, each the same bytes, and then copy literals and match together, a
byte each.  A match that overlaps itself repeats its last `offset` bytes: a lane reads byte lane mod offset once, and
writes it every so many bytes as 32 have whole repetitions.  Pages up to `STAGED` bytes and what they are decoded from
are kept in shared memory, and move to and from it in accesses of 16 bytes; runs of literals, as raw pages are, move
inside of it in words.  Larger pages are decoded in global memory.

Whatever the bytes are, nothing outside is accessed.  Bytes are read before the block's end alone; a sequence writes
after it was checked.  A sequence that is right takes at most one byte more than it gives, for each 255 of those, so
shared memory holds all of a block that can be read until a page is full (`REST`), however long the block claims to be.

Floor: the compressed bytes are read and the page's are written, once.  What takes the time is a warp's chain of
sequences: each has two to three dependent reads of shared memory ahead of the copies, whose writes the next one reads,
and a page of text has some 300.  Many warps hide it: 24 in a multiprocessor for 4 KiB pages.  On an H200, pages of
4 KiB of mixed data: 201 GB/s of what they decode to.
"""

from functools import cache
from typing import Any

import numpy as np
from trueno.backend import Call, Kernel, Rates

from trueno_cuda.catalogue.entry import CatalogueEntry, Constant, Sample, Want
from trueno_cuda.device.protocol import Device
from trueno_cuda.kernels.lz4.pages import (
    ENDS,
    MARGIN,
    MOST,
    SMALL,
    STAGED,
    THREADS,
    WARPS,
    Bytes,
    called,
    cleared,
    copied,
    moved,
    own,
    room,
    unwatched,
    vector,
    written,
)
from trueno_cuda.kernels.lz4.samples import block, last
from trueno_cuda.kernels.operands import REACH, Shape, prepared, typed
from trueno_cuda.kernels.table import KERNELS
from trueno_cuda.ptx import Builder, Pointer, Source, Value, ptr, u8, u32, u64
from trueno_cuda.ptx import Kernel as Built

RATES = Rates(launch_s=5e-6, flops=4e13, bytes=4e11, link_s=2e-5, link_bytes=8e9)
"""Of an H200: packed read and pages written at 4e11 bytes a second."""
AFTER = 8
"""Bytes of a block behind the literals of a sequence with a match: an offset, a token, five literals."""
LENGTHS = 5
"""Bytes of a block from the last of a match's length on, at least."""
LONG = 64
"""Literals from which words are copied."""
FAR = 1 << 20
"""More than a page, and more than is read of a block: larger sizes are all the same."""


def rest(page: int) -> int:
    """Bytes of a block that may be read until a page is full, or a length is found to be more than the page."""
    return page + 2 * (page // 255 + 2) + 16


def held(page: int) -> int:
    """Bytes of shared memory for them, from an aligned address before the first to one behind the last."""
    return (rest(page) + 2 * 16 + 15) // 16 * 16


class Decoder:
    """Decodes the block of a warp.  target: the bytes of a page, at an aligned address.

    done: bytes decoded.  wrong: 0, or 1 + the index of the first sequence that is wrong.
    """

    def __init__(self, k: Any, target: Pointer, page: Value) -> None:
        self.k, self.target, self.page = k, target, page
        self.done, self.wrong = k.var(u32, 0), k.var(u32, 0)
        self.part = 65536 // k.max(k.lane, 1) + 1  # of a lane's number: (i * part) >> 16 is i // lane for i <= 32

    def run(self, source: Bytes, at: Any, count: Any) -> None:
        """Copy many literals, from byte `at` of the block on."""
        if source.words is None:
            written(self.k, source.single + at, self.target + self.done, count, 1)
        else:
            moved(self.k, source, at, self.target, self.done, count)

    def decode(self, source: Bytes, size: Any) -> None:
        """Decode a block of `size` bytes, at most `FAR`."""
        k, page, done = self.k, self.page, self.done
        at = k.var(u32, 0)
        with k.loop() as sequences:
            start = k.copy(at)
            token = source.load(at)
            at += 1
            literals = k.var(token >> 4)
            with k.when(literals == 15), k.loop() as longer:
                longer.leave_if(at >= size)
                more = source.load(at)
                at += 1
                literals += more
                longer.leave_if((more != 255) | (literals > page))
            end, there = at + literals, done + literals
            last = (there + MARGIN > page) | (end + AFTER > size)
            bad = last & ((end != size) | (there > page))
            with k.when(bad):
                self.wrong.set(start + 1)
            sequences.leave_if(bad)
            with k.when(literals > LONG):
                self.run(source, at, literals)
            with k.otherwise():
                for i in k.range(k.lane, literals, 32):
                    self.target.store(done + i, source.load(at + i))
            done.set(there)
            sequences.leave_if(last)
            at.set(end)
            offset = source.load(at) | (source.load(at + 1) << 8)
            at += 2
            length = k.var((token & 15) + 4)
            with k.when(length == 19), k.loop() as longer:
                short = at + LENGTHS > size
                length.set(k.select(short, FAR, length))
                longer.leave_if(short)
                more = source.load(at)
                at += 1
                length += more
                longer.leave_if((more != 255) | (length > page))
            bad = (offset == 0) | (offset > done) | (done + length + ENDS > page)
            with k.when(bad):
                self.wrong.set(start + 1)
            sequences.leave_if(bad)
            k.sync_warp()
            self.match(offset, length)
            done += length

    def match(self, offset: Any, length: Any) -> None:
        """Copy a match behind the bytes decoded so far."""
        k = self.k
        back, front = unwatched(self.target) + (self.done - offset), self.target + self.done
        with k.when(offset < k.min(length, 32)):
            part = k.shuffle(self.part, "idx", offset)
            turn = k.lane - ((k.lane * part) >> 16) * offset
            width = ((32 * part) >> 16) * offset
            value = back.load(turn)
            with k.when(k.lane < width):
                for i in k.range(k.lane, length, width):
                    front.store(i, value)
        with k.otherwise():
            front.store(k.lane, back.load(k.lane, where=k.lane < length), where=k.lane < length)
            for begin in k.range(32, length, 32):
                i = begin + k.lane
                k.sync_warp()  # its source may be what was written just now
                front.store(i, back.load(i, where=i < length), where=i < length)


def fetched(k: Any, packed: Pointer, m: Value, place: Value, count: Any, target: Pointer, wide: bool) -> Any:
    """Copy `count` bytes of packed[m] from `place` on, all of which exist, to shared memory; gives where the first is.

    wide: packed is aligned to 16 bytes, and all of the vectors that have one of the bytes are copied.
    """
    if not wide:
        copied(k, packed + place, target, count, 1)
        return 0
    skip, first = (place & 15).to(u32), place >> 4
    vectors = (skip + count + 15) >> 4
    whole = k.min(vectors.to(u64), (m >> 4) - first).to(u32)  # the last may have bytes behind the end
    words = packed.cast(u32) + (first << 2)
    copied(k, words.cast(u8), target, whole << 4, 16)
    with k.when(whole < vectors):
        at = (whole << 4) + k.lane
        inside = ((first << 4) + at.to(u64) < m) & (k.lane < 16)
        target.store(at, words.cast(u8).load(at, where=inside), where=k.lane < 16)
    return skip


def _decompress(
    k: Builder, packed: Pointer, offsets: Pointer, sizes: Pointer, y: Pointer, lengths: Pointer, m: Value, n: Value,
    page: Value, *, V: int, ROOM: int, WIDE: bool,
) -> None:  # fmt: skip
    """V: bytes of an access to a row of y; ROOM: bytes of a page in shared memory, 0 where it is not."""
    given, made = (own(k, u8, held(ROOM)), own(k, u8, ROOM)) if ROOM else (None, None)
    row = k.ctaid * WARPS + k.warp
    with k.when(row < n):
        place, size = offsets.load(row), sizes.load(row)
        raw = (size >> 63) != 0
        count = k.select(raw, k.sub(0, size), size)
        inside = (count <= m) & (place <= m - count)  # as unsigned numbers, which negative ones exceed
        right = inside & ~(raw & (count > page.to(u64)))
        used = k.min(count, FAR).to(u32)
        out = y + k.multiple_of(row.to(u64) * page.to(u64), V)
        target = out if made is None else made
        decoder = Decoder(k, target, page)
        with k.when(right & (count != 0)):
            if given is None:
                data = Bytes(k, packed + place, None)
            else:
                skip = fetched(k, packed, m, place, k.min(used, rest(ROOM)), given, WIDE)
                data = Bytes(k, given + skip, given.cast(u32), skip)
                k.sync_warp()
            with k.when(raw):
                decoder.run(data, 0, used)
                decoder.done.set(used)
            with k.otherwise():
                decoder.decode(data, used)
        decoder.wrong.set(k.select(right | (count == 0), decoder.wrong, 1))
        wrong = decoder.wrong != 0
        kept = k.select(wrong, 0, decoder.done)
        k.sync_warp()
        cleared(k, target, kept, page, V)
        if made is not None:
            k.sync_warp()
            written(k, made, out, page, V)
        length = k.select(wrong, k.sub(0, decoder.wrong.to(u64)), decoder.done.to(u64))
        lengths.store(row, length, where=k.lane == 0)


@cache
def source() -> Source:
    pointers = {"packed": ptr(u8), "offsets": ptr(u64), "sizes": ptr(u64), "y": ptr(u8), "lengths": ptr(u64)}
    return typed(_decompress, "lz4_decompress", THREADS, pointers | {"m": u64, "n": u32, "page": u32})


def constants(page: int, aligned: bool) -> dict[str, Any]:
    """Those of the build for pages of so many bytes.  aligned: packed and y begin at 16 bytes."""
    return {"V": vector(page, aligned), "ROOM": room(page), "WIDE": aligned}


@KERNELS.add("lz4_decompress", rates=RATES, dtypes=("float32",))
def lz4_decompress(device: Device, call: Call) -> Kernel:
    """packed[m] offsets[n] sizes[n] -> y[n,page] lengths[n].  A guarded kernel has nothing to report: all is bytes."""
    page = dict(call.static)["page"]

    def plan(packed: Shape, offsets: Shape, sizes: Shape, y: Shape, lengths: Shape, aligned: bool) -> Any:
        n = offsets[0] if len(offsets) == 1 else -1
        if not offsets == sizes == lengths == (n,) or y != (n, page) or len(packed) != 1 or not 1 <= page <= MOST:
            return None
        if not 0 < n < REACH:
            return [] if n == 0 else None
        numbers = (*packed, n, page)
        return [prepared(device, source(), constants(page, aligned), -(-n // WARPS), numbers)]

    return called(device, plan, 3)


# ------------------------------------------------------------------------------------- catalogue


def _build(arch: str, *, V: int, ROOM: int, WIDE: bool) -> Built:
    return source().build(arch, V=V, ROOM=ROOM, WIDE=WIDE)


def _sample(rng: np.random.Generator, *, V: int, ROOM: int, WIDE: bool) -> Sample:
    """Blocks, a raw page, nothing, a block that is cut off, and a slice outside."""
    p = 800 if V > 1 else 797
    blocks = [block(rng, p - i) for i in range(4)]
    parts = [*(b for b, _ in blocks), rng.bytes(p), b"", blocks[0][0][:-1], b""]
    ends = np.cumsum([len(part) for part in parts])
    sizes = np.array([len(part) for part in parts])
    sizes[4], sizes[7] = -p, 1
    y, lengths = np.zeros((len(parts), p), np.uint8), np.zeros(len(parts), np.int64)
    for i, page in enumerate([*(page for _, page in blocks), parts[4]]):
        y[i, : len(page)], lengths[i] = np.frombuffer(page, np.uint8), len(page)
    lengths[6], lengths[7] = -1 - last(parts[6]), -1
    operands: dict[str, Any] = {"packed": np.frombuffer(b"".join(parts), np.uint8), "offsets": ends - np.abs(sizes)}
    operands |= {"sizes": sizes, "y": np.full_like(y, 7), "lengths": np.zeros_like(lengths)}
    operands |= {"m": len(operands["packed"]), "n": len(parts), "page": p}
    operands["offsets"][7] = ends[-1]
    return Sample((-(-len(parts) // WARPS), 1, 1), operands, {"y": Want(y), "lengths": Want(lengths)})


CATALOGUE = [
    CatalogueEntry(
        "lz4_decompress",
        "compression",
        "LZ4 blocks to pages of bytes, a warp each",
        _build,
        _sample,
        (
            Constant("V", 16, "bytes of an access to a row of y", (1, 4, 16)),
            Constant("ROOM", STAGED, "bytes of a page in shared memory; 0: it is not there", (0, SMALL, STAGED)),
            Constant("WIDE", True, "packed begins at a multiple of 16 bytes", (False, True)),
        ),
        variants=(
            {},
            {"V": 4, "ROOM": SMALL},
            {"V": 1, "WIDE": False},
            {"V": 16, "ROOM": 0},
            {"V": 1, "ROOM": 0, "WIDE": False},
        ),
    )
]
