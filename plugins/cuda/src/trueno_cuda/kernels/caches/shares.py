"""Which keys a block takes, where they lie in the cache, and which queries see them.

A block takes one share of the keys of one sequence, for a tile of queries that one head of keys serves: rows of the
t · group that there are, ordered by query, then by head.  A share is cut from the sequence's own length, which only the
device knows: shares of a short sequence are short, and the last of them empty.

Grid: tiles of all sequences; heads of keys, times what a kernel adds; splits.
"""

from collections.abc import Mapping
from math import inf, nan
from typing import Any

from trueno_cuda.kernels.caches.cells import Rows
from trueno_cuda.ptx import Builder, Pointer, Value, Var, f32, ptr, s32, u32, u64
from trueno_cuda.rows.elementary32 import tanh

WARPS = 4
"""Warps of a block, unless a kernel says otherwise."""
NOWHERE = 0xFFFFFFFF
"""The slot of a key that is not there: behind the share, or on a page that does not exist."""
FAR = 1 << 30
"""A window that sees all: positions are below it."""
SIZES = ("t", "hq", "blocks", "pages", "window", "rows")
DIVISORS = ("group", "page", "tiles", "splits")
"""Numbers that others are divided by: each has a factor and a shift behind it, which are faster than a division."""
NUMBERS = dict.fromkeys((*SIZES, *(f"{name}{part}" for name in DIVISORS for part in ("", "_factor", "_shift"))), u32)
SCALES = dict.fromkeys(("scale", "cap", "after"), f32)
"""What queries are multiplied by, and scores are: after · tanh(score / cap), where there is a cap."""


PARTS = {"parts": ptr(f32), "stats": ptr(f32)}
"""What a share comes to, where another kernel joins shares."""


def operands(keys: Rows, values: Rows, results: Mapping[str, Any] = PARTS) -> dict[str, Any]:
    """The parameters of kernels of attention.  results: what they write, and what only some read."""
    cache = {"keys": ptr(keys.element), "values": ptr(values.element), "table": ptr(u64), "lengths": ptr(u64)}
    return {"q": ptr(f32), **cache, **results, **NUMBERS, **SCALES}


def divisor(n: int) -> tuple[int, int, int]:
    """n, and the factor and shift by which `divided` divides numbers below 2^31 by it."""
    shift = (n - 1).bit_length()
    return n, -(-(1 << (31 + shift)) // n), shift


def divided(k: Builder, p: Any, x: Value, name: str) -> Value:
    """x over the divisor of that name, rounded down, for x below 2^31."""
    quotient: Value = k.mul_hi(x << 1, getattr(p, f"{name}_factor")) >> getattr(p, f"{name}_shift")
    return quotient


class Share:
    """A block's keys, from `low` to `high`, and its queries; positions are s32, and so are keys.

    rows: of queries in a tile.  step: keys that shares are multiples of.  one: whether there is one query for each
    sequence, and one tile, so that all queries see all of a share.  whole: whether each sequence has one page.
    """

    warps = WARPS

    def __init__(self, k: Builder, p: Any, head: Value, rows: int, step: int, one: bool, whole: bool) -> None:
        self.k, self.p, self.head, self.size, self.one = k, p, head, rows, one
        self.sequence = k.ctaid if one else divided(k, p, k.ctaid, "tiles")
        self.tile = k.const(u32, 0) if one else p.tiles - 1 - (k.ctaid - self.sequence * p.tiles)  # long shares first
        self.split = k.ctaid_z
        word = p.lengths.load(self.sequence)
        self.entry = p.table.load(self.sequence) if whole else None
        self.broken = word > k.mul_wide(p.blocks, p.page)  # as an unsigned number, which a negative one exceeds
        length = k.select(self.broken, 0, word.to(u32)).bits(s32)
        t, window, splits = p.t.bits(s32), p.window.bits(s32), p.splits
        self.offset = length - t
        nearest, farthest = self.offset, self.offset
        if not one:
            last = k.min(self.tile * rows + (rows - 1), p.t * p.group - 1)
            nearest = nearest + divided(k, p, self.tile * rows, "group").bits(s32)
            farthest = farthest + divided(k, p, last, "group").bits(s32)
        begin = k.max(nearest - window + 1, 0)
        end = k.max(farthest + 1, 0)
        need = k.max(end - begin, 0).bits(u32)
        each = (divided(k, p, need + (splits - 1), "splits") + (step - 1)) // step * step
        self.low = begin + (self.split * each).bits(s32)
        self.high = k.min(self.low + each.bits(s32), end)

    def page(self, key: Value) -> tuple[Value, Value]:
        """The number of a key's page, not checked yet, and its place there; of one behind the share, the last one's."""
        k, p = self.k, self.p
        at = k.min(key, self.high - 1).bits(u32)
        if self.entry is not None:
            return self.entry, at
        block = divided(k, p, at, "page")
        return p.table.load(k.mul_wide(self.sequence, p.blocks) + block.to(u64)), at - block * p.page

    def slot(self, key: Value, page: tuple[Any, Any] | None = None) -> Value:
        """The slot of a key, on its `page`; NOWHERE for one that is not there."""
        k, p = self.k, self.p
        entry, token = page or self.page(key)
        there = (entry < p.pages.to(u64)) & (key < self.high)
        return k.select(there, entry.to(u32) * p.page + token, NOWHERE)

    def line(self, cache: Any, slot: Value, rows: Rows, heads: Value) -> Any:
        """Where this head's row of a slot begins; of NOWHERE, that of slot 0, which exists."""
        k = self.k
        row = k.mul_wide(k.select(slot == NOWHERE, 0, slot), heads) + self.head.to(u64)
        return cache + row * rows.units

    def place(self, n: Value) -> tuple[Value, Value]:
        """Of row n of the tile: its position, and its index among those of q; the last's of one that is not there."""
        k, p = self.k, self.p
        if self.one:
            m = k.min(n, p.group - 1)
            return self.offset, self.sequence * p.hq + (self.head * p.group + m)
        m = k.min(self.tile * self.size + n, p.t * p.group - 1)
        query = divided(k, p, m, "group")
        row = (self.sequence * p.t + query) * p.hq + (self.head * p.group + (m - query * p.group))
        return self.offset + query.bits(s32), row

    def exists(self, n: Value) -> Value:
        """Whether there is a row n of the tile."""
        p = self.p
        there: Value = n < p.group if self.one else self.tile * self.size + n < p.t * p.group
        return there

    def score(self, dot: Value, key: Value, slot: Value, position: Value, capped: bool) -> Value:
        """What the exponential takes, in powers of two: -Inf for a key that the query does not see."""
        k, p = self.k, self.p
        if capped:
            dot = tanh(k, dot / p.cap) * p.after
        seen = key < self.high
        if not self.one:
            seen = seen & (key <= position) & (position - key < p.window.bits(s32))
        return k.select(seen, k.select(slot == NOWHERE, k.const(f32, nan), dot), -inf)

    def empty(self, where: Value | None = None) -> None:
        """Write the stats of a share without keys: no weight at all, or NaN for a length beyond the table."""
        k, p = self.k, self.p
        with k.when(k.tid < self.size):
            _, row = self.place(k.tid)
            exists = self.exists(k.tid)
            at = (k.mul_wide(self.split, p.rows) + row.to(u64)) * 2
            total = k.select(self.broken, k.const(f32, nan), 0.0)
            p.stats.store(at, [k.const(f32, -inf), total], where=exists if where is None else exists & where)

    def keep(self, r: Value, row: Value, column: Value, e: int, pair: Any, where: Value | None) -> None:
        """Write two neighbours of the sums of row r of the tile, which is `row` of q; e: columns of a row."""
        k, p = self.k, self.p
        place = (k.mul_wide(self.split, p.rows) + row.to(u64)) * e + column.to(u64)
        exists = self.exists(r)
        p.parts.store(k.multiple_of(place, 2), pair, where=exists if where is None else exists & where)

    def settled(self, state: Pointer) -> None:
        """Write the stats of all rows of the tile, of which what warps came to is in `state`."""
        with self.k.when(self.k.tid < self.size):
            self.settle(state, self.k.tid)

    def settle(self, state: Pointer, r: Value) -> None:
        """Write the stats of row r."""
        k, p = self.k, self.p
        _, row = self.place(r)
        top, total = self.stats_of(state, r)
        p.stats.store((k.mul_wide(self.split, p.rows) + row.to(u64)) * 2, [top, total.value], where=self.exists(r))

    def stats_of(self, state: Pointer, r: Value) -> tuple[Value, Var]:
        """The largest maximum of the warps, and their sums of weights relative to it."""
        k = self.k
        top = largest(k, state, r, self.warps)
        total = k.var(f32, 0.0)
        for w in range(self.warps):
            total.fma(k.exp2(state.load((w, r, 0)) - finite(k, top), ftz=True), state.load((w, r, 1)))
        return top, total


def largest(k: Builder, state: Pointer, r: Value | int, warps: int = WARPS) -> Value:
    """The largest maximum of row r over the warps.  state: of each warp and row, its maximum and its sum of weights."""
    top = state.load((0, r, 0))
    for w in range(1, warps):
        top = k.max(top, state.load((w, r, 0)))
    return top


def finite(k: Builder, x: Value) -> Value:
    """A maximum that may be subtracted: 0 where no score was seen."""
    return k.select(x == -inf, 0.0, x)


def across(k: Builder, x: Value, how: str, distances: tuple[int, ...] = (4, 8, 16)) -> Value:
    """Combine the lanes that are so far apart."""
    for distance in distances:
        x = k.apply(how, x, k.shuffle(x, "xor", distance))
    return x
