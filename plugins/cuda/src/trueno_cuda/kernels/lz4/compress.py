# mypy: disable-error-code="valid-type"
"""lz4_compress: a warp writes the LZ4 block of a page.

32 positions at a time: each lane hashes the four bytes from its own on, and looks up the last position with that hash,
in the warp's table or among the lanes before it (match.any); the first lane whose bytes agree is the match.  Then lanes
compare 128 bytes at a time to find its end, and 32 to find its begin, and write the sequence together, a byte each.
The table gets the positions up to a match: with those inside of it, too, blocks of JSON are 4 % longer.

With LAZY each lane first measures its own match, and leaves it to one of the next two lanes if that has a longer one;
the table then gets all positions.  The block is written while it stays smaller than the page; otherwise the page is.

Floor: p bytes read and p written for each page, as what is behind the block is zeros.  That is not what takes the time:
a warp runs through its page's sequences one after the other, each with some eight dependent accesses to shared memory
and four operations over the warp, and a page of text has some 300.  Many warps hide it: 16 in a multiprocessor with
tables of 4096 entries.  On an H200, pages of 4 KiB of mixed data: 45 GB/s, LAZY 32.
"""

from functools import cache
from typing import Any

import numpy as np
from trueno.backend import Call, Kernel, Rates

from trueno_cuda.catalogue.entry import CatalogueEntry, Constant, Result, Trial, Want, compare
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
    own,
    room,
    vector,
    written,
)
from trueno_cuda.kernels.lz4.samples import decoded, pages
from trueno_cuda.kernels.operands import REACH, Shape, prepared, typed
from trueno_cuda.kernels.table import KERNELS
from trueno_cuda.ptx import Kernel as Built
from trueno_cuda.ptx import Pointer, Source, Value, ptr, u8, u16, u32, u64

RATES = Rates(launch_s=5e-6, flops=4e13, bytes=9e10, link_s=2e-5, link_bytes=8e9)
"""Of an H200: pages read and blocks written at 9e10 bytes a second."""
GOLDEN = 2654435761
"""2³² divided by the golden ratio: multiplied by it, numbers that differ in few bits differ in the upper ones."""
NONE = 0xFFFFFFFF
MEASURED = 68
"""Bytes up to which lanes measure matches that they compare."""
BITS = 12
"""Of the hash; two less for small pages."""


class Page:
    """A page with the table of its positions.  data: its bytes; size: how many."""

    def __init__(self, k: Any, data: Bytes, size: Value, table: Pointer, bits: int) -> None:
        self.k, self.data, self.size, self.table, self.bits = k, data, size, table, bits

    def hashed(self, at: Any) -> tuple[Any, Any, Any, Any]:
        """Whether a match may start at each lane's position, its bytes, their hash, and the lanes with the same one."""
        k = self.k
        valid = at + MARGIN <= self.size
        word = self.data.word(at, valid)
        code = (word * GOLDEN) >> (32 - self.bits)
        return valid, word, code, k.match(k.select(valid, code, NONE))

    def enter(self, at: Any, end: Any, valid: Any, code: Any, same: Any) -> None:
        """Note lanes' positions before `end`; of several with one hash the last, so that it is always the same."""
        k = self.k
        later = same & k.lanemask_gt
        covered = (later != 0) & (at - k.lane + k.clz(k.brev(later)) < end)
        self.table.store(code, at.to(u16), where=valid & (at < end) & ~covered)

    def equal(self, a: Any, b: Any, where: Any = None) -> Any:
        """How many of four bytes are the same from a and from b on, where `where`; at most to where literals begin."""
        k = self.k
        stop = self.size - ENDS
        inside = a < stop if where is None else where & (a < stop)
        different = self.data.word(a, inside) ^ self.data.word(b, inside)
        count = k.min(k.clz(k.brev(different)) >> 3, stop - a)
        return k.select(inside, count, 0)

    def end(self, start: Any, other: Any) -> Any:
        """Where the match of `start` with `other`, of four bytes at least, ends."""
        k = self.k
        length = k.var(u32, 4)
        with k.loop() as longer:
            ahead = length + (k.lane << 2)
            count = self.equal(start + ahead, other + ahead)
            total = k.warp_min(k.select(count < 4, (k.lane << 2) + count, 128))
            length += total
            longer.leave_if(total < 128)
        return start + length

    def begin(self, start: Any, other: Any, least: Any) -> Any:
        """How many of the 32 bytes before a match, from `least` on, belong to it, too."""
        k = self.k
        back = k.lane + 1
        inside = (back <= start - least) & (back <= other)
        a, b = (self.data.load(at - back, where=inside) for at in (start, other))
        return k.clz(k.brev(k.vote("ballot", ~inside | (a != b))))

    def chosen(self, at: Any, other: Any, hit: Any) -> Any:
        """Which of the hits stay: those that no longer match of the next two lanes makes up for."""
        k = self.k
        length, going = k.var(u32, 4), k.var(hit)
        with k.loop() as longer:
            count = self.equal(at + length, other + length, going)
            length += count
            going.set(going & (count == 4) & (length < MEASURED))
            longer.leave_if(~k.vote("any", going))
        mine = k.select(hit, length, 0)
        one, two = k.shuffle(mine, "down", 1), k.shuffle(mine, "down", 2)
        return hit & ~((one > mine) | (two > mine + 1))


def extra(k: Any, count: Any) -> Any:
    """Bytes that a length takes behind its four bits."""
    return k.select(count >= 15, (count - 15) // 255 + 1, 0)


def sequence(k: Any, data: Bytes, first: Any, literals: Any, block: Pointer, match: tuple[Any, Any] | None) -> None:
    """Write a sequence: so many literals from byte `first` on, and a match of (offset, bytes beyond 4), if any.

    Each lane writes every 32nd byte: token, more of the literals' number, literals, offset, more of the match's length.
    """
    longer = extra(k, literals)
    begin = 1 + longer
    end = begin + literals
    nibble = k.min(literals, 15) << 4
    total = end
    if match is not None:
        offset, length = match
        nibble = nibble | k.min(length, 15)
        total = end + 2 + extra(k, length)
    for at in k.range(k.lane, total, 32):
        within = (at >= begin) & (at < end)
        literal = data.load(first + (at - begin), where=within)
        value = k.select(at == longer, literals - 15 - (longer - 1) * 255, 255)  # before the literals
        value = k.select(within, literal, value)
        if match is not None:
            behind = at - end
            rest = k.select(at == total - 1, length - 15 - (total - end - 3) * 255, 255)
            tail = k.select(behind == 0, offset & 255, k.select(behind == 1, offset >> 8, rest))
            value = k.select(at >= end, tail, value)
        block.store(at, k.select(at == 0, nibble, value))


def _compress(
    k: Any, x: Pointer, blocks: Pointer, sizes: Pointer, n: Value, p: Value,
    *, V: int, ROOM: int, BITS: int, LAZY: bool,
) -> None:  # fmt: skip
    """Pages of p bytes.  V: bytes of an access to a row; ROOM: bytes of a page in shared memory, 0 where it is not."""
    table = own(k, u16, 1 << BITS)
    held = own(k, u8, ROOM) if ROOM else None
    row = k.ctaid * WARPS + k.warp
    with k.when(row < n):
        begin = k.multiple_of(row.to(u64) * p.to(u64), V)
        source, block = x + begin, blocks + begin
        entries = table.cast(u32)
        for at in k.range(k.lane * 4, 1 << (BITS - 1), 128):
            entries.store(at, [0, 0, 0, 0])
        if held is not None:
            copied(k, source, held, p, V)
            data = Bytes(k, held, held.cast(u32))
        else:
            data = Bytes(k, source, source.cast(u32) if V > 1 else None)
        k.sync_warp()
        page = Page(k, data, p, table, BITS)
        at, anchor, size = k.var(u32, 0), k.var(u32, 0), k.var(u32, 0)
        with k.loop() as search:
            search.leave_if(at + MARGIN > p)
            place = at + k.lane
            valid, word, code, same = page.hashed(place)
            before = same & k.lanemask_lt
            last = table.load(code, where=valid).to(u32)
            other = k.select(before != 0, at + (31 - k.clz(before)), last)
            hit = valid & (other < place)
            hit = hit & (data.word(other, hit) == word)
            kept = page.chosen(place, other, hit) if LAZY else hit
            best = k.warp_min(k.select(kept, (k.lane << 16) | other, NONE))
            ahead, noted = k.var(at + 32), k.var(at + 32)
            with k.when(best != NONE):
                start, match = at + (best >> 16), best & 0xFFFF
                end = page.end(start, match)
                back = page.begin(start, match, anchor)
                start, match = start - back, match - back
                literals, length = start - anchor, end - start - 4
                total = 3 + extra(k, literals) + literals + extra(k, length)
                smaller = size + total < p
                with k.when(smaller):
                    sequence(k, data, anchor, literals, block + size, (start - match, length))
                size += total
                noted.set(end if LAZY else start + 1)
                anchor.set(end)
                ahead.set(k.select(smaller, end, p))
            k.sync_warp()
            page.enter(place, noted, valid, code, same)
            if LAZY:
                for inner in k.range(at + 32, k.min(noted, p), 32):
                    place = inner + k.lane
                    valid, _, code, same = page.hashed(place)
                    k.sync_warp()
                    page.enter(place, noted, valid, code, same)
            k.sync_warp()
            at.set(ahead)
        literals = p - anchor
        total = 1 + extra(k, literals) + literals
        smaller = size + total < p
        with k.when(smaller):
            sequence(k, data, anchor, literals, block + size, None)
            cleared(k, block, size + total, p, V)
        with k.otherwise():
            k.sync_warp()  # parts of the block were written here
            written(k, source if held is None else held, block, p, V)
        used = (size + total).to(u64)
        sizes.store(row, k.select(smaller, used, k.sub(0, p.to(u64))), where=k.lane == 0)


@cache
def source() -> Source:
    pointers = {"x": ptr(u8), "blocks": ptr(u8), "sizes": ptr(u64)}
    return typed(_compress, "lz4_compress", THREADS, pointers | dict.fromkeys(("n", "p"), u32))


def constants(page: int, level: int, aligned: bool) -> dict[str, Any]:
    """Those of the build for pages of so many bytes."""
    bits = BITS - 2 if room(page) == SMALL else BITS
    return {"V": vector(page, aligned), "ROOM": room(page), "BITS": bits, "LAZY": level > 1}


@KERNELS.add("lz4_compress", rates=RATES, dtypes=("float32",))
def lz4_compress(device: Device, call: Call) -> Kernel:
    """x[n,p] -> blocks[n,p] sizes[n].  A guarded kernel has nothing to report: all is bytes."""
    level = dict(call.static)["level"]

    def plan(x: Shape, blocks: Shape, sizes: Shape, aligned: bool) -> Any:
        if len(x) != 2 or blocks != x or sizes != x[:1] or not 1 <= x[1] <= MOST or x[0] >= REACH:
            return None
        if not x[0]:
            return []
        grid = -(-x[0] // WARPS)
        return [prepared(device, source(), constants(x[1], level, aligned), grid, x)]

    return called(device, plan, 1)


# ------------------------------------------------------------------------------------- catalogue


def _build(arch: str, *, V: int, ROOM: int, BITS: int, LAZY: bool) -> Built:
    return source().build(arch, V=V, ROOM=ROOM, BITS=BITS, LAZY=LAZY)


def _trial(rng: np.random.Generator, *, V: int, ROOM: int, BITS: int, LAZY: bool) -> Trial:
    """Five pages, which a decoder in Python reads again."""
    n, p = 5, 400 if V > 1 else 397
    x = pages(rng, n, p)

    def run(device: Device) -> list[Result]:
        kernel = _build(device.arch, V=V, ROOM=ROOM, BITS=BITS, LAZY=LAZY)
        arrays = [device.to_device(a) for a in (x, np.full((n, p), 7, np.uint8), np.zeros(n, np.int64))]
        device.prepare(kernel, (-(-n // WARPS), 1, 1), (n, p))([a.data.ptr for a in arrays])
        blocks, sizes = (device.to_host(a) for a in arrays[1:])
        got = np.zeros_like(x)
        for row, block, size in zip(got, blocks, sizes, strict=True):
            page = decoded(block[:size]) if size > 0 else block[:-size]
            row[: len(page)] = page[:p]
        behind = blocks * (np.arange(p) >= np.abs(sizes)[:, None])
        return [
            compare("pages", got, Want(x)),
            compare("behind", behind, Want(np.zeros_like(x))),
            compare("raw", np.flatnonzero(sizes == -p), Want(np.zeros(1, np.int64))),
        ]

    return Trial(run)


CATALOGUE = [
    CatalogueEntry(
        "lz4_compress",
        "compression",
        "pages of bytes to LZ4 blocks, a warp each",
        _build,
        _trial,
        (
            Constant("V", 16, "bytes of an access to a row", (1, 4, 16)),
            Constant("ROOM", STAGED, "bytes of a page in shared memory; 0: it is not there", (0, SMALL, STAGED)),
            Constant("BITS", BITS, "bits of the hash, of a table in shared memory"),
            Constant("LAZY", False, "leave a match to a longer one that follows", (False, True)),
        ),
        variants=(
            {},
            {"LAZY": True, "V": 4},
            {"ROOM": SMALL, "BITS": BITS - 2, "V": 1},
            {"ROOM": 0, "V": 4},
            {"ROOM": 0, "V": 1, "LAZY": True},
        ),
    )
]
