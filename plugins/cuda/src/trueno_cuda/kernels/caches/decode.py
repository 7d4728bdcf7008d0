# mypy: disable-error-code="valid-type"
"""attention_decode by fused multiply-adds: caches of every format, heads of every size.

Four warps take 32 keys at a time, eight each, for up to eight rows of queries:

    scores     four lanes along a key, the queries from shared memory, and a sum over the four
    weights    2^(score − the largest so far); the sums so far shrink where that grows
    values     lanes along a row, four columns each; the weights of eight keys from shared memory

At the end the warps are joined, and what a share came to is left for `join`.

Floor: the keys and values of each sequence, read once for every eight rows of queries that one head of keys serves.
"""

from functools import cache
from types import SimpleNamespace
from typing import Any

from trueno_cuda.kernels.caches.cells import Rows, piece
from trueno_cuda.kernels.caches.shares import NOWHERE, WARPS, Share, across, finite, largest, operands
from trueno_cuda.kernels.operands import typed
from trueno_cuda.ptx import Builder, Source, f32, s32, u32, u64

THREADS = 128
EACH = 8
"""Keys of a warp at a time."""
STEP = EACH * WARPS
COLUMNS = 256
"""Columns of values of a block, at most."""
UNROLLED = 16
"""Turns along a key that are written out."""
MOST_ROWS = 8
ROOM = 40 << 10
"""Bytes of shared memory that queries, or what warps leave for each other, may take."""


def padded(d: int) -> int:
    """Numbers of a query in shared memory: whole turns of four lanes with four numbers."""
    return -(-d // 16) * 16


def columns(e: int) -> int:
    """Columns of values of a block."""
    return min(-(-e // 128) * 128, COLUMNS)


def most_rows(rows: int, d: int) -> int:
    """Rows of queries of a block; 0 where not even one fits into shared memory."""
    most = min(1 << (rows - 1).bit_length(), MOST_ROWS)
    while most and most * padded(d) * 4 > ROOM:
        most //= 2
    return most


def _decode(
    k: Builder, *, F: str, D: int, E: int, R: int, V: bool, CAP: bool, ONE: bool, WHOLE: bool, **given: Any
) -> None:  # fmt: skip
    """The parts and stats of one share.  R: rows of queries.  V: whether caches are aligned to 16 bytes."""
    p = SimpleNamespace(**given)
    keys, values, wide = Rows(F, D), Rows(F, E), -(-E // COLUMNS)
    across_e = columns(E)
    sweeps = across_e // 128
    depth = padded(D)
    heads = k.nctaid_y // wide
    head, side = (k.ctaid_y, k.const(u32, 0)) if wide == 1 else (k.ctaid_y // wide, k.ctaid_y % wide)
    share = Share(k, p, head, R, STEP, ONE, WHOLE)
    queries, weights = k.shared(f32, R, depth), k.shared(f32, WARPS, EACH, R, per="warp")
    held, state = k.shared(f32, WARPS, R, across_e), k.shared(f32, WARPS, R, 2)
    with k.when(share.low >= share.high):
        share.empty(None if wide == 1 else side == 0)
    with k.otherwise():
        for u in k.range(k.tid, R * depth, THREADS):
            _, row = share.place(u // depth)
            x = p.q.load(row.to(u64) * D + (u % depth).to(u64), where=u % depth < D)
            queries.store((u // depth, u % depth), x * p.scale)
        k.sync()
        places = [share.place(k.const(u32, r)) for r in range(R)]
        tops, totals = [k.var(f32, -float("inf")) for _ in range(R)], k.vars(f32, R, 0.0)
        sums = [[k.vars(f32, 4, 0.0) for _ in range(R)] for _ in range(sweeps)]
        group, lane = k.lane // 4, k.lane % 4

        for base in k.range(share.low, share.high, STEP):
            key = base + (k.warp * EACH + group).bits(s32)
            slot = share.slot(key)
            line = share.line(p.keys, slot, keys, heads)
            dots = k.vars(f32, R, 0.0)

            def turn(at: Any, line: Any = line, dots: Any = dots) -> None:
                xs = piece(k, line, at, keys, V, None if D % 16 == 0 else at < D)
                for r, dot in enumerate(dots):
                    for x, y in zip(xs, queries.load((r, at), vec=4), strict=True):
                        dot.fma(x, y)

            if depth <= 16 * UNROLLED:
                for i in range(0, depth, 16):
                    turn(lane * 4 + i)
            else:
                for step in k.range(0, depth, 16):
                    turn(lane * 4 + step)
            mine = []
            for r in range(R):
                dot = across(k, dots[r], "add", (1, 2))
                score = share.score(dot, key, slot, places[r][0], CAP)
                top = k.max(tops[r], across(k, score, "max"))
                reference = finite(k, top)
                shrunk, weight = k.exp2(tops[r] - reference, ftz=True), k.exp2(score - reference, ftz=True)
                tops[r].set(top)
                totals[r].set(k.fma(totals[r], shrunk, weight))
                for s in range(sweeps):
                    for x in sums[s][r]:
                        x *= shrunk
                mine.append(weight)
            with k.when(lane == 0):
                for r in range(R):
                    weights.store((k.warp, group, r), mine[r])
            k.sync_warp()
            for first in range(0, EACH, 4):
                read = []
                for j in range(first, first + 4):
                    there = k.shuffle(slot, "idx", 4 * j)
                    source = share.line(p.values, there, values, heads)
                    for s in range(sweeps):
                        column = side * COLUMNS + (k.lane * 4 + 128 * s)
                        where = there != NOWHERE
                        if E % 128:
                            where = where & (column < E)
                        read.append((j, s, piece(k, source, column, values, V, where)))
                for j, s, vs in read:
                    for r in range(R):
                        weight = weights.load((k.warp, j, r))
                        for x, v in zip(sums[s][r], vs, strict=True):
                            x.fma(weight, v)
            k.sync_warp()

        for r in range(R):
            total = across(k, totals[r], "add")
            with k.when(k.lane == 0):
                state.store((k.warp, r, 0), [tops[r].value, total])
        k.sync()
        for r in range(R):
            factor = k.exp2(tops[r] - finite(k, largest(k, state, r)), ftz=True)
            for s in range(sweeps):
                held.store((k.warp, r, k.lane * 4 + 128 * s), [x * factor for x in sums[s][r]])
        k.sync()
        for u in k.range(k.tid, R * across_e, THREADS):
            line, column = u // across_e, u % across_e
            _, row = share.place(line)
            total = held.load((0, line, column))
            for w in range(1, WARPS):
                total = total + held.load((w, line, column))
            column = side * COLUMNS + column
            at = (k.mul_wide(share.split, p.rows) + row.to(u64)) * E + column.to(u64)
            p.parts.store(at, total, where=share.exists(line) & (column < E))
        with k.when((k.tid < R) & (side == 0)):
            share.settle(state, k.tid)


@cache
def source(form: str) -> Source:
    return typed(_decode, f"attention_decode_{form}", THREADS, operands(Rows(form, 32), Rows(form, 32)))
