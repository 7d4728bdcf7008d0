# mypy: disable-error-code="valid-type"
"""lz4_pack: the used bytes of rows one after the other, by a prefix sum on the device.

    tiles    a block sums `TILE` sizes: where each row begins in its tile, and how many bytes the tile has
    bases    one block turns the tiles' bytes into where each tile begins, and all of them
    rows     a warp copies a row's bytes to their place, and clears its share of what is behind all of them

A size beyond a row counts as the row's length, so nothing is written outside; the op refuses it where the host knows.

Floor: the used bytes are read once, and all of the result is written once.  The sizes are 8 bytes a row, which the
first two launches read.
"""

from functools import cache
from typing import Any

import numpy as np
from trueno.backend import Call, Kernel

from trueno_cuda.catalogue.entry import CatalogueEntry, Constant, Result, Trial, Want, compare
from trueno_cuda.device.protocol import Device
from trueno_cuda.kernels.lz4.pages import MOST, THREADS, WARPS, Bytes, called, cleared, moved, vector, written
from trueno_cuda.kernels.operands import REACH, Shape, prepared, typed
from trueno_cuda.kernels.table import KERNELS, RATES
from trueno_cuda.ptx import Builder, Pointer, Source, Value, ptr, u8, u32, u64
from trueno_cuda.ptx import Kernel as Built

SUMMED = 256
"""Threads of a block that sums."""
EACH = 4
"""Neighbouring sizes of a thread."""
TILE = SUMMED * EACH


def scanned(k: Any, value: Any) -> tuple[Any, Any]:
    """The sum of a number over the threads of a block before each, and over all."""
    sums = k.shared(value.type, k.warps)
    running = value
    for distance in (1, 2, 4, 8, 16):
        other = k.shuffle(running, "up", distance)
        running = running + k.select(k.lane >= distance, other, 0)
    k.sync()  # the sums of the round before were read
    sums.store(k.warp, running, where=k.lane == 31)
    k.sync()
    before, total = running - value, k.const(value.type, 0)
    for warp in range(k.warps):
        part = sums.load(warp)
        before = before + k.select(k.warp > warp, part, 0)
        total = total + part
    return before, total


def _tiles(k: Builder, sizes: Pointer, offsets: Pointer, sums: Pointer, n: Value, p: Value) -> None:
    """offsets[i] = the bytes of the tile's rows before row i; sums[tile] = those of all of them."""
    first = k.ctaid * TILE + k.tid * EACH
    used, total = [], k.var(u32, 0)
    for i in range(EACH):
        size = sizes.load(first + i, where=first + i < n)
        length = k.select((size >> 63) != 0, k.sub(0, size), size)
        used.append(k.min(length, p.to(u64)).to(u32))
        total += used[-1]
    before, whole = scanned(k, k.copy(total))
    for i, length in enumerate(used):
        offsets.store(first + i, before.to(u64), where=first + i < n)
        before = before + length
    sums.store(k.ctaid, whole.to(u64), where=k.tid == 0)


def _bases(k: Builder, sums: Pointer, tiles: Value) -> None:
    """sums[i] = the sum of those before, i up to `tiles`."""
    total = k.var(u64, 0)
    for begin in k.range(0, tiles, SUMMED):
        at = begin + k.tid
        before, whole = scanned(k, sums.load(at, where=at < tiles))
        sums.store(at, total + before, where=at < tiles)
        total += whole
    sums.store(tiles, total, where=k.tid == 0)


def _rows(
    k: Builder, blocks: Pointer, sizes: Pointer, packed: Pointer, offsets: Pointer, sums: Pointer, n: Value, p: Value,
    tiles: Value, *, V: int,
) -> None:  # fmt: skip
    """packed[offsets[i] : …] = the used bytes of row i, where offsets[i] begins as the bytes of its tile before it."""
    row = k.ctaid * WARPS + k.warp
    with k.when(row < n):
        size, total = sizes.load(row), sums.load(tiles)
        place = sums.load(row // TILE) + offsets.load(row)
        used = k.min(k.select((size >> 63) != 0, k.sub(0, size), size), p.to(u64)).to(u32)
        begin = k.multiple_of(row.to(u64) * p.to(u64), V)
        source, share = blocks + begin, packed + begin
        if V > 1:
            data, skip = Bytes(k, source, source.cast(u32)), (place & 15).to(u32)
            moved(k, data, 0, packed + k.multiple_of(place - skip.to(u64), 16), skip, used)
        else:
            written(k, source, packed + place, used, 1)
        behind = k.min(k.max(total, begin) - begin, p.to(u64)).to(u32)
        cleared(k, share, behind, p, V)
        k.sync_warp()  # all lanes have read where the tile's rows begin
        offsets.store(row, place, where=k.lane == 0)


@cache
def source(name: str) -> Source:
    numbers, whole = ptr(u64), {"n": u32, "p": u32}
    if name == "tiles":
        pointers: dict[str, Any] = {"sizes": numbers, "offsets": numbers, "sums": numbers}
        return typed(_tiles, "lz4_pack_tiles", SUMMED, pointers | whole)
    if name == "bases":
        return typed(_bases, "lz4_pack_bases", SUMMED, {"sums": numbers, "tiles": u32})
    pointers = {"blocks": ptr(u8), "sizes": numbers, "packed": ptr(u8), "offsets": numbers, "sums": numbers}
    return typed(_rows, "lz4_pack_rows", THREADS, pointers | whole | {"tiles": u32})


@KERNELS.add("lz4_pack", rates=RATES, dtypes=("float32",))
def lz4_pack(device: Device, call: Call) -> Kernel:
    """blocks[n,p] sizes[n] -> packed[n * p] offsets[n].  A guarded kernel has nothing to report: all is bytes."""

    def plan(blocks: Shape, sizes: Shape, packed: Shape, offsets: Shape, aligned: bool) -> Any:
        if len(blocks) != 2 or not sizes == offsets == blocks[:1] or packed != (blocks[0] * blocks[1],):
            return None
        n, p = blocks
        if not 1 <= p <= MOST or n >= REACH:
            return None
        if not n:
            return []
        tiles = -(-n // TILE)
        first = prepared(device, source("tiles"), {}, tiles, (n, p))
        second = prepared(device, source("bases"), {}, 1, (tiles,))
        last = prepared(device, source("rows"), {"V": vector(p, aligned)}, -(-n // WARPS), (n, p, tiles))
        return [
            lambda given: first([given[1], given[3], given[4]]),
            lambda given: second([given[4]]),
            last,
        ]

    def scratch(blocks: Shape, *_: Shape) -> Any:
        return device.empty((-(-blocks[0] // TILE) + 1,), np.dtype(np.uint64))

    return called(device, plan, 2, scratch)


# ------------------------------------------------------------------------------------- catalogue


def _build(arch: str, *, V: int) -> tuple[Built, ...]:
    constants: dict[str, dict[str, int]] = {"tiles": {}, "bases": {}, "rows": {"V": V}}
    return tuple(source(name).build(arch, **given) for name, given in constants.items())


def _trial(rng: np.random.Generator, *, V: int) -> Trial:
    """Rows of two tiles, of any used length."""
    n, p = TILE + 30, 16 if V == 16 else 12 if V == 4 else 7
    blocks, sizes = rng.integers(1, 256, (n, p), np.uint8), rng.integers(-p, p + 1, n)
    used = np.abs(sizes)
    packed = np.zeros(n * p, np.uint8)
    packed[: used.sum()] = blocks[np.arange(p) < used[:, None]]

    def run(device: Device) -> list[Result]:
        first, second, last = _build(device.arch, V=V)
        tiles = -(-n // TILE)
        given = [device.to_device(a) for a in (blocks, sizes, np.full(n * p, 7, np.uint8), np.zeros(n, np.int64))]
        given.append(device.to_device(np.zeros(tiles + 1, np.uint64)))
        places = [a.data.ptr for a in given]
        device.prepare(first, (tiles, 1, 1), (n, p))([places[1], places[3], places[4]])
        device.prepare(second, (1, 1, 1), (tiles,))([places[4]])
        device.prepare(last, (-(-n // WARPS), 1, 1), (n, p, tiles))(places)
        wants = {"packed": packed, "offsets": np.cumsum(used) - used}
        results = zip(wants.items(), given[2:], strict=False)
        return [compare(name, device.to_host(a), Want(want)) for (name, want), a in results]

    return Trial(run)


CATALOGUE = [
    CatalogueEntry(
        "lz4_pack",
        "compression",
        "the used bytes of rows one after the other",
        _build,
        _trial,
        (Constant("V", 16, "bytes of an access to a row", (1, 4, 16)),),
        variants=({}, {"V": 4}, {"V": 1}),
    )
]
