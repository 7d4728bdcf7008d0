# mypy: disable-error-code="valid-type"
"""attention_decode in one launch: `mma`, whose shares of one sequence and head of keys are the blocks of a cluster.

A block that is done with its share sends what it came to to the others: its stats to all, and of its sums a slice to
each, into its shared memory.  Behind one barrier of the cluster, each block joins its slice as `join` would, and writes
results.  Nothing passes through global memory, and a share without keys sends stats alone.

A block may not write to another one before that has begun, so all of them say so at first, and wait for each other
while lengths are on their way.  None ends too soon: behind the last barrier, each reads its own shared memory alone.

A share is a multiple of 16 keys, which is a turn of one warp, and not of a turn of all warps: where a cache has room
for many keys and holds few, more multiprocessors read them.

Floor: the keys and values of each sequence read once, 4.28 TB/s on an H200; below 4096 keys latency decides, and a
second launch would take as long as the first.
"""

from functools import cache
from math import inf, nan
from types import SimpleNamespace
from typing import Any

from trueno_cuda.kernels.caches.blocks import Blocks
from trueno_cuda.kernels.caches.cells import Rows
from trueno_cuda.kernels.caches.join import LOG2_E
from trueno_cuda.kernels.caches.shares import Share, finite, operands
from trueno_cuda.kernels.caches.warp import EACH, Warp, rows_of
from trueno_cuda.kernels.operands import look, status_parameter, tell, typed
from trueno_cuda.ptx import Builder, Pointer, Source, Value, f32, ptr, u32, u64


class Meeting(Share):
    """A share whose block joins a slice of the results.  blocks: of the cluster, each with one share of the keys."""

    def __init__(
        self, k: Builder, p: Any, rows: int, one: bool, whole: bool, e: int, blocks: int, warps: int
    ) -> None:  # fmt: skip
        super().__init__(k, p, k.ctaid_y, rows, EACH, one, whole)
        self.e, self.blocks, self.warps, self.threads = e, blocks, warps, 32 * warps
        self.slice = -(-rows * e // (2 * blocks)) * 2
        self.stats = k.shared(f32, blocks, rows, 2)
        self.sums = k.shared(f32, blocks, self.slice)

    def _at(self, array: Pointer, block: Value) -> Pointer:
        return self.k.in_block(array, block) if self.blocks > 1 else array

    def keep(self, r: Value, row: Value, column: Value, e: int, pair: Any, where: Value | None) -> None:
        """Send two neighbours of the sums of row r to the block whose slice has them."""
        exists = self.exists(r)
        number = self.k.multiple_of(r * e + column, 2)
        block = number // self.slice
        place = self.k.multiple_of(number - block * self.slice, 2)
        there = exists if where is None else exists & where
        self._at(self.sums, block).store((self.split, place), pair, where=there)

    def _tell(self, stats: Any) -> None:
        """Send the stats of each row to each block.  stats: gives those of a row."""
        k, count = self.k, self.size * self.blocks
        for first in range(0, count, self.threads):
            n = k.tid + first
            there = n < count if count - first < self.threads else None
            r, block = n % self.size, k.min(n // self.size, self.blocks - 1)
            self._at(self.stats, block).store((self.split, r, 0), stats(r), where=there)

    def empty(self, where: Value | None = None) -> None:
        """Send the stats of a share without keys: no weight at all, or NaN for a length beyond the table."""
        total = self.k.select(self.broken, self.k.const(f32, nan), 0.0)
        self._tell(lambda r: [self.k.const(f32, -inf), total])

    def settled(self, state: Pointer) -> None:
        """Send the stats of all rows of the tile."""

        def stats(r: Value) -> list[Value]:
            top, total = self.stats_of(state, r)
            return [top, total.value]

        self._tell(stats)

    def finish(self, sinks: Pointer | None, status: Pointer | None) -> None:
        """Wait for all shares, and write this block's slice of the results."""
        k = self.k
        if self.blocks > 1:
            k.sync_cluster()
        else:
            k.sync()
        bits = k.var(u32, 0)
        for first in range(0, self.slice, self.threads):
            at = k.tid + first
            live = at < self.slice if self.slice - first < self.threads else None
            result = self._result(at, live, sinks)
            if status is not None:
                look(k, bits, result)
        if status is not None:
            tell(k, bits, status)

    def _result(self, at: Value, live: Value | None, sinks: Pointer | None) -> Value:
        """Write a number of the slice; 0 where there is none."""
        k, p, e = self.k, self.p, self.e
        number = self.split * self.slice + at
        r = k.min(number // e, self.size - 1)
        there = self.exists(number // e)
        if self.slice * self.blocks > self.size * e:
            there = there & (number < self.size * e)
        live = there if live is None else there & live
        _, row = self.place(r)
        stats = [self.stats.load((block, r, 0), vec=2) for block in range(self.blocks)]
        largest = stats[0][0]
        for top, _ in stats[1:]:
            largest = k.max(largest, top)
        sink = sinks.load(row % p.hq) * LOG2_E if sinks is not None else None
        if sink is not None:
            largest = k.select(largest == -inf, largest, k.max(largest, sink))  # no key seen: 0, whatever the sink
        reference = finite(k, largest)
        whole, sum_ = k.var(f32, 0.0), k.var(f32, 0.0)
        for block, (top, total) in enumerate(stats):
            weight = k.exp2(top - reference, ftz=True)
            whole += k.select(total == 0.0, 0.0, total * weight)
            sum_.fma(weight, self.sums.load((block, at), where=live & (total > 0.0)))
        some = whole != 0.0
        if sink is not None:
            whole += k.exp2(sink - reference, ftz=True)
        result = k.select(live & some, sum_ / whole.value, 0.0)  # a NaN differs from 0, and stays
        p.out.store(row.to(u64) * e + (number % e).to(u64), result, where=live)
        return result


def _meet(
    k: Builder, sinks: Pointer | None = None, status: Pointer | None = None, *, F: str, D: int, E: int, TILES: int,
    CAP: bool, ONE: bool, WHOLE: bool, BLOCKS: int, WARPS: int, **given: Any,
) -> None:  # fmt: skip
    """BLOCKS: of a cluster.  WARPS: of a block; they take turns along the keys.  TILES: of rows of queries."""
    p = SimpleNamespace(**given)
    if BLOCKS > 1:
        k.arrive_cluster()
    share = Meeting(k, p, rows_of(TILES, True), ONE, WHOLE, E, BLOCKS, WARPS)
    if BLOCKS > 1:
        k.wait_cluster()
    with k.when(share.low >= share.high):
        share.empty()
    with k.otherwise():
        work = Blocks if F == "q8_0" else Warp
        work(k, p, share, F, D, E, TILES, True, CAP).run()
    share.finish(sinks, status)


@cache
def source(form: str, resident: int, blocks: int, warps: int, sinks: bool, guarded: bool) -> Source:
    """resident: blocks that a multiprocessor must hold.  BLOCKS and WARPS are constants of the kernel, too."""
    rows = Rows(form, 32)
    results = {**({"sinks": ptr(f32)} if sinks else {}), "out": ptr(f32), **status_parameter(guarded)}
    name = f"attention_decode_meet_{form}{'_sinks' * sinks}{'_guarded' * guarded}"
    cluster = (1, 1, blocks) if blocks > 1 else None
    return typed(_meet, name, 32 * warps, operands(rows, rows, results), resident, cluster)
