"""attention_decode in the table of kernels: shares of the keys, launches, and the call.

Keys are cut into as many shares as fill the GPU, by what the table can hold at most; the device cuts each sequence's
own keys into so many, and one recording serves every length.  Where it is quicker (`meeting`), blocks of a cluster
join their shares themselves (`meet`), and a call is one launch; else a second kernel joins them.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
from trueno.backend import Call, Kernel
from trueno.errors import KernelError

from trueno_cuda.device.protocol import Device, Launch
from trueno_cuda.kernels.caches import decode, join, meet, mma
from trueno_cuda.kernels.caches.cells import Rows
from trueno_cuda.kernels.caches.join import LOG2_E, MOST_PARTS
from trueno_cuda.kernels.caches.shares import FAR, WARPS, divisor
from trueno_cuda.kernels.caches.warp import EACH, WIDTH, rows_of, step_of
from trueno_cuda.kernels.operands import SHAPES, VECTOR, Shape, build
from trueno_cuda.kernels.product import overlaps
from trueno_cuda.kernels.table import KERNELS, RATES
from trueno_cuda.ptx import TARGETS

MOST_HEADS = 65535
"""Of keys, and shares with them: what the second axis of a grid holds."""
MOST_SLOTS = (1 << 32) - 2
LARGEST, SMALLEST = float(np.finfo(np.float32).max), float(np.finfo(np.float32).tiny)
NO_CAP = 1e30
"""A cap from which scores below 10²⁷ keep every digit, and their quotient by it may be lost as a subnormal."""
FLOATS = np.dtype(np.float32)
FILLING = 3
"""Blocks that a multiprocessor holds."""
RESIDENT = {("q8_0", 1): 2, ("q8_0", 2): 2, ("f16", 2): 2, ("bf16", 2): 2}
"""The same of `mma`, by format and tiles of queries of a warp, where its registers allow fewer."""
MOST_WAVES = 4
WORTH = 512
"""Keys that a share has at least, where blocks are so many that some wait for others."""
PORTABLE, LARGE = 8, 16
"""Blocks of a cluster on every such GPU; on those of `WIDE`, whose groups of multiprocessors have as many."""
WIDE = (90, 100)
SOME, TURNS = 16, 2
"""Sequences times heads of keys from which on shares may take so many turns along the keys, and not one."""


class Tuning(NamedTuple):
    """Of calls that `meet` takes.  blocks: of a cluster, -1: none, and a second launch.  warps: of a block.  0: as
    planned, and both or none."""

    blocks: int = 0
    warps: int = 0


PLANNED, TWICE = Tuning(), Tuning(-1)


class Plan(NamedTuple):
    """Launches of a call: shares of `shares` parts of `rows` rows, none where no key can be seen, and their join, none
    where blocks join shares themselves."""

    share: Launch | None
    join: Launch | None
    shares: int
    rows: int
    e: int


class Sizes(NamedTuple):
    """Of a call whose shapes agree; none is 0."""

    b: int
    t: int
    hq: int
    hk: int
    pages: int
    page: int
    blocks: int
    keys: Rows
    values: Rows
    window: int
    capped: bool

    @property
    def longest(self) -> int:
        """Keys that a sequence's queries may see."""
        room = self.blocks * self.page
        return min(room, self.window + self.t) if self.window else room


def splits_of(device: Device, each: int, longest: int, step: int, filling: int) -> int:
    """Shares of the keys, where each share takes so many blocks: as many as the GPU holds at once.

    Where one share takes more than half of that, so many that the last blocks leave few multiprocessors idle.
    """
    room = device.sms * filling
    if 2 * each <= room:
        return max(min(room // each, -(-longest // step), MOST_PARTS), 1)

    def busy(splits: int) -> float:
        blocks = each * splits
        return blocks / (-(-blocks // room) * room) - splits / 32  # parts cost, too

    return max(range(1, max(min(MOST_WAVES, longest // WORTH), 1) + 1), key=busy)


def numbers(s: Sizes, tiles: int, splits: int) -> tuple[int, ...]:
    """The kernels' whole numbers (`shares.NUMBERS`)."""
    rows = s.b * s.t * s.hq
    sizes = s.t, s.hq, s.blocks, s.pages, s.window or FAR, rows
    return sizes + sum(map(divisor, (s.hq // s.hk, s.page, tiles, splits)), ())


def by_sums(device: Device, s: Sizes, wide: bool) -> tuple[Launch, int]:
    """The launch of `decode`, and its number of shares."""
    height = s.t * (s.hq // s.hk)
    rows = decode.most_rows(height, s.keys.n)
    if not rows:
        raise KernelError(f"attention_decode: heads of {s.keys.n} numbers do not fit into shared memory; use the host")
    tiles, sides = -(-height // rows), -(-s.values.n // decode.COLUMNS)
    one = s.t == 1 and tiles == 1
    splits = splits_of(device, s.b * s.hk * tiles * sides, s.longest, decode.STEP, FILLING)
    constants = {"F": s.keys.form, "D": s.keys.n, "E": s.values.n, "R": rows, "V": wide, "CAP": s.capped, "ONE": one,
                 "WHOLE": s.blocks == 1}  # fmt: skip
    kernel = build(decode.source(s.keys.form), device.arch, tuple(constants.items()))
    return device.prepare(kernel, (s.b * tiles, s.hk * sides, splits), numbers(s, tiles, splits)), splits


class Tiles(NamedTuple):
    """How `mma` takes rows of queries.  wide: tiles of a warp.  along: whether warps take turns along the keys.
    tiles: of blocks.  filling: blocks that a multiprocessor holds."""

    wide: int
    along: bool
    tiles: int
    filling: int
    one: bool


def tiles_of(s: Sizes) -> Tiles:
    height = s.t * (s.hq // s.hk)
    along = height <= 2 * WIDTH
    wide = 2 if height > (WIDTH if along else rows_of(1, False)) else 1
    tiles = -(-height // rows_of(wide, along))
    return Tiles(wide, along, tiles, RESIDENT.get((s.keys.form, wide), FILLING), s.t == 1 and tiles == 1 and along)


def by_products(device: Device, s: Sizes) -> tuple[Launch, int]:
    """The launch of `mma`, and its number of shares."""
    wide, along, tiles, filling, one = tiles_of(s)
    splits = splits_of(device, s.b * s.hk * tiles, s.longest, step_of(along), filling)
    constants = {"F": s.keys.form, "D": s.keys.n, "E": s.values.n, "TILES": wide, "ALONG": along, "CAP": s.capped,
                 "ONE": one, "WHOLE": s.blocks == 1}  # fmt: skip
    kernel = build(mma.source(s.keys.form, filling), device.arch, tuple(constants.items()))
    return device.prepare(kernel, (s.b * tiles, s.hk, splits), numbers(s, tiles, splits)), splits


def meeting(device: Device, s: Sizes, tuning: Tuning = PLANNED) -> Tuning | None:
    """Blocks of a cluster and warps of a block with which `meet` is quicker than two launches, if there are any.

    Measured on an H200, 28 query heads on 4 of 128, room for 768 tokens in float16, two launches against one: 5.7 and
    5.2 us for 1 sequence (16 blocks), 6.0 and 6.1 for 2, 7.5 and 7.1 for 4 (6 blocks), 9.5 and 8.8 for 8 (6 blocks).
    More warps of a block, shares of more turns, and clusters that fill the GPU lose: 4 sequences take up to 11 us.
    """
    wide, along, tiles, filling, _ = tiles_of(s)
    if tuning.blocks or not along:
        return tuning if along and tuning.blocks > 0 else None
    each, turns = s.b * s.hk * tiles, -(-s.longest // (EACH * WARPS))
    if splits_of(device, each, s.longest, step_of(True), filling) == 1:
        return Tuning(1, WARPS)
    target = TARGETS[device.arch]
    if not target.clusters or wide > 1:
        return None
    if turns <= LARGE and 2 * each * LARGE <= device.sms and target.number in WIDE:
        return Tuning(LARGE, WARPS)
    blocks = -(-turns // TURNS)
    if each >= SOME and blocks <= PORTABLE and 2 * each * blocks <= device.sms * filling:
        return Tuning(blocks, WARPS)
    return None


def resident(filling: int, warps: int) -> int:
    """Blocks of so many warps that a multiprocessor holds, where it holds `filling` of `WARPS`."""
    return max(filling * WARPS // warps, 1)


def by_meeting(device: Device, s: Sizes, tuning: Tuning, sinks: bool, guarded: bool) -> Launch:
    """The launch of `meet`."""
    wide, _, tiles, filling, one = tiles_of(s)
    blocks, warps = tuning
    constants = {"F": s.keys.form, "D": s.keys.n, "E": s.values.n, "TILES": wide, "CAP": s.capped, "ONE": one,
                 "WHOLE": s.blocks == 1, "BLOCKS": blocks, "WARPS": warps}  # fmt: skip
    source = meet.source(s.keys.form, resident(filling, warps), blocks, warps, sinks, guarded)
    kernel = build(source, device.arch, tuple(constants.items()))
    return device.prepare(kernel, (s.b * tiles, s.hk, blocks), numbers(s, tiles, blocks))


def plan(
    device: Device, s: Sizes | None, rows: int, hq: int, e: int, wide: bool, sinks: bool, guarded: bool,
    tuning: Tuning = PLANNED,
) -> Plan:  # fmt: skip
    """The launches of a call whose result has so many rows.  s: None where no key can be seen, and all is 0."""
    share, count = None, 0
    if s is not None:
        products = wide and mma.takes(s.keys, s.values)
        chosen = meeting(device, s, tuning) if products else None
        if chosen is not None:
            return Plan(by_meeting(device, s, chosen, sinks, guarded), None, chosen.blocks, rows, e)
        share, count = by_products(device, s) if products else by_sums(device, s, wide)
    return Plan(share, join.launch(device, rows, e, count, hq, sinks, guarded), count, rows, e)


def scales(scale: float, softcap: float, d: int) -> tuple[float, float, float]:
    """Scale, cap and after: what queries, and capped scores, are multiplied by.  Weights are powers of two."""
    scale = scale or max(d, 1) ** -0.5
    values = (scale, max(softcap, SMALLEST), softcap * LOG2_E) if softcap else (scale * LOG2_E, 1.0, 1.0)
    return tuple(min(value, LARGEST) for value in values)  # type: ignore[return-value]


def sizes(form: str, window: int, sinks: bool, capped: bool, shapes: Sequence[Shape]) -> Sizes | bool | None:
    """The sizes of a call: None where no key can be seen, False for shapes that do not agree."""
    q, k, v, table, lengths, *more = shapes
    out = more[-1]
    if (len(q), len(k), len(v), len(table), len(lengths), len(out)) != (4, 4, 4, 2, 1, 4):
        return False
    keys, values = Rows(form, q[3]), Rows(form, out[3])
    (pages, page, hk, row), (b, t, hq, _) = k, q
    if row != keys.nbytes or v != (pages, page, hk, values.nbytes) or out[:3] != q[:3] or hq % max(hk, 1):
        return False
    if table[0] != b or lengths != (b,) or more[:-1] != [(hq,)] * sinks:
        return False
    if 0 in (*q, *k, *v, *table):
        return None
    if pages * page > MOST_SLOTS or table[1] * page + t >= FAR or hk > MOST_HEADS // 64 or b * t * hq >= 1 << 31:
        return False
    return Sizes(b, t, hq, hk, pages, page, table[1], keys, values, window, capped)


@KERNELS.add("attention_decode", "attention_decode_sinks", rates=RATES, dtypes=("float32",))
def attention_decode(device: Device, call: Call) -> Kernel:
    """q[b,t,hq,d] k, v [pages,page,hk,bytes] table[b,blocks] lengths[b], sinks[hq] -> out[b,t,hq,e]."""
    static, guarded = dict(call.static), call.guarded
    form, window = static["format"], min(static["window"], FAR)
    has_sinks = call.op.name == "attention_decode_sinks"

    @lru_cache(SHAPES)
    def planned(capped: bool, wide: bool, *shapes: Shape) -> Plan | bool:
        found = sizes(form, window, has_sinks, capped, shapes)
        if isinstance(found, bool):
            return False
        out = shapes[-1]
        if not prod(out):
            return True
        return plan(device, found, prod(out[:3]), out[2], out[3], wide, has_sinks, guarded, PLANNED)

    def kernel(*arguments: Any) -> int:
        *given, scale, softcap, out = arguments
        if device.contiguous(out) is not out:
            return -1
        arrays = [device.contiguous(x) for x in given]
        pointers = [x.data.ptr for x in arrays]
        softcap = softcap if softcap < NO_CAP else 0.0
        wide = not (pointers[0] | pointers[1] | pointers[2]) % VECTOR
        ready = planned(bool(softcap), wide, *(x.shape for x in arrays), out.shape)
        element = Rows(form, 32).element.bytes
        if ready is False or (pointers[1] | pointers[2]) % element or any(overlaps(out, x) for x in arrays):
            return -1
        if isinstance(ready, Plan):
            run(device, ready, pointers, scales(scale, softcap, arrays[0].shape[-1]), out.data.ptr, guarded)
        return 0

    return kernel


def run(
    device: Device, ready: Plan, pointers: list[int], scaled: tuple[float, float, float], out: int, guarded: bool
) -> None:
    """Launch a plan.  pointers: of q, k, v, table, lengths, and sinks or not."""
    results = [*pointers[5:], out, *([device.status()] if guarded else [])]
    if ready.join is None:
        assert ready.share is not None
        ready.share([*pointers[:5], *results], scaled)
        return
    count = max(ready.shares, 1) * ready.rows
    parts, stats = (device.empty((count * width,), FLOATS) for width in (ready.e, 2))
    ends = [parts.data.ptr, stats.data.ptr]
    if ready.share is not None:
        ready.share([*pointers[:5], *ends], scaled)
    ready.join([*ends, *results])
