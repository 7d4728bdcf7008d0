"""Attention by fma, in every type and of every size: what tensor cores do not take, and float64.

    S = Q K^T                  4x4 scores a thread; slices of d pass through shared memory, transposed
    P = 2^(S - max)            maximum and sum of a row are those of 16 lanes
    O = O 2^(...) + P V        4 rows by 4 to 16 columns a thread; P and slices of V pass through shared memory

Half a warp has the same rows.  A slice of Q or K is stored by lanes whose rows are side by side, so that the stores of
a transposed tile are in different banks; reads of 16 bytes serve 16 lanes at once.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

from trueno_cuda.kernels.attention import form as forms
from trueno_cuda.kernels.attention.form import Form
from trueno_cuda.kernels.attention.softmax import Softmax
from trueno_cuda.kernels.source import build
from trueno_cuda.kernels.store import Finish
from trueno_cuda.ptx import Kernel, Value, u64

KEYS = 64
ACROSS = 16
"""Threads along the keys, and along the columns of the result."""
DEPTH = 16
"""Columns of a slice of Q and K."""


@dataclass(frozen=True, slots=True)
class Tile:
    """rows: 16 or 64 of a block.  columns: fours of each row of the result that a thread sums, 1 to 4."""

    rows: int
    columns: int

    @property
    def threads(self) -> int:
        return self.rows // 4 * ACROSS

    @property
    def wide(self) -> int:
        """Columns of the result that a block sums."""
        return 4 * ACROSS * self.columns


def tile_for(rows: int, e: int) -> Tile:
    """The tile for so many rows in all."""
    return Tile(16 if rows <= 48 else 64, min(max(-(-e // (4 * ACROSS)), 1), 4))


@cache
def simt(arch: str, tile: Tile, form: Form, vectors: bool) -> Kernel:
    """vectors: whether rows of d, and of e, are whole fours at addresses that allow them to be read at once.
    ptxas unrolls the loops over a slice.

    Floor: 2 (d + e) flops for each visible pair of a row and a key, at 67e12 a second in float32 and 33e12 in float64
    on an H200.  Each 16 fma of a thread need two reads of 16 bytes, three wavefronts of shared memory for a warp, so
    four warps at a time keep a multiprocessor's fma units busy at best.
    """
    kind, rows, threads = form.wide, tile.rows, tile.threads
    vec = 16 // kind.bytes
    turn = 64 // kind.bytes  # keys whose values are in shared memory at once
    unit = min(4, 16 // form.element.bytes) if vectors else 1

    def read(k: Any, line: Any, columns: list[Value], width: Value, inside: Any) -> list[Value]:
        """Four neighbours of a row, zeros where there are none, in the type that is computed in."""
        values = []
        for i in range(0, 4, unit):
            here = inside & (columns[i] < width)
            loaded = line.load(columns[i], vec=unit, where=here)
            values += [x if x.type is kind else x.to(kind) for x in loaded]
        return values

    def body(k: Any, p: Any) -> None:
        part = forms.part(k, p, form, rows, tile.wide, (unit,) * 3)
        tid = k.tid
        tx, ty = tid % ACROSS, tid // ACROSS
        q_tile, k_tile = k.shared(kind, DEPTH, rows + vec), k.shared(kind, DEPTH, KEYS + vec)
        p_tile, v_tile = k.shared(kind, KEYS, rows + vec), k.shared(kind, turn, tile.wide)
        finish = Finish(k, p, form.store)
        own = [forms.row(k, p, form, part, part.first + ty * 4 + r) for r in range(4)]
        softmax = Softmax(k, p, form, part, lambda: own, 4, ACROSS, tx)
        sums = [k.vars(kind, 4 * tile.columns, 0.0) for _ in range(4)]

        # ---- slices of Q and K: a thread reads four neighbours of a row, and stores them one below the other
        q_row, q_deep = tid % rows, tid // rows * 4
        asked = forms.row(k, p, form, part, part.first + q_row)
        q_line = part.q + k.multiple_of(k.select(asked.live, asked.at(p).to(u64) * p.d.to(u64), 0), unit)
        k_row, k_deep = tid % KEYS, tid // KEYS * 4

        def fetch(at: Value, first: Value) -> None:
            for c in range(0, DEPTH, threads // rows * 4):
                here = first + (q_deep + c)
                values = read(k, q_line, [here + i for i in range(4)], p.d, asked.live)
                for i, x in enumerate(values):
                    q_tile.store((q_deep + (c + i), q_row), x * p.before)
            key = at + k_row
            inside = key < part.high
            line = part.k + k.multiple_of((key.to(u64) * p.hk.to(u64)) * p.k_pitch.to(u64), unit)
            for c in range(0, DEPTH, max(threads // KEYS, 1) * 4):
                here = first + (k_deep + c)
                values = read(k, line, [here + i for i in range(4)], p.d, inside)
                for i, x in enumerate(values):
                    k_tile.store((k_deep + (c + i), k_row), x)

        def values_of(at: Value) -> None:
            """A slice of V: fours of columns, side by side."""
            fours = tile.wide // 4
            slots = turn * fours
            for e in range(0, slots, threads):
                slot = tid + e
                there = None if e + threads <= slots else slot < slots
                key, column = at + slot // fours, slot % fours * 4
                inside = key < part.high if there is None else there & (key < part.high)
                line = part.v + k.multiple_of((key.to(u64) * p.hk.to(u64)) * p.v_pitch.to(u64), unit)
                here = part.column + column
                values = read(k, line, [here + i for i in range(4)], p.e, inside)
                for i in range(0, 4, vec):
                    v_tile.store(slot // fours * tile.wide + column + i, values[i : i + vec], where=there)

        for at in k.range(part.low, part.high, KEYS):
            scores = [k.vars(kind, 4, 0.0) for _ in range(4)]
            for first in k.range(0, p.d, DEPTH):
                k.sync()
                fetch(at, first)
                k.sync()
                for c in k.range(DEPTH):
                    xs = [x for i in range(0, 4, vec) for x in q_tile.load((c, ty * 4 + i), vec=vec)]
                    ys = [y for i in range(0, 4, vec) for y in k_tile.load((c, tx * 4 + i), vec=vec)]
                    for line, x in zip(scores, xs, strict=True):
                        for score, y in zip(line, ys, strict=True):
                            score.fma(x, y)
            keys = [at + (tx * 4 + i) for i in range(4)]
            softmax.scale(scores, keys, own)
            with k.when(~forms.whole(k, p, part, at, KEYS)):
                softmax.unseen(scores, keys)
            olds = softmax.weights(scores)
            for line, old in zip(sums, olds, strict=True):
                for total in line:
                    total.update("mul", old)
            for i in range(4):
                for r in range(0, 4, vec):
                    p_tile.store((tx * 4 + i, ty * 4 + r), [line[i] for line in scores[r : r + vec]])
            for begin in k.range(0, k.min(part.high - at, KEYS), turn):
                values_of(at + begin)
                k.sync()
                for key in k.range(turn):
                    xs = [x for r in range(0, 4, vec) for x in p_tile.load((begin + key, ty * 4 + r), vec=vec)]
                    for j in range(tile.columns):
                        places = [(key, tx * 4 + (4 * ACROSS * j + i)) for i in range(0, 4, vec)]
                        ys = [y for place in places for y in v_tile.load(place, vec=vec)]
                        for line, x in zip(sums, xs, strict=True):
                            for total, y in zip(line[4 * j : 4 * j + 4], ys, strict=True):
                                total.fma(x, y)
                k.sync()

        # ---- the result
        for line, (own_row, done) in zip(sums, softmax.finish(), strict=True):
            number = part.out + own_row.at(p).to(u64)
            for j in range(tile.columns):
                first = part.column + (tx * 4 + 4 * ACROSS * j)
                at = k.multiple_of(number * p.e.to(u64) + first.to(u64), unit)
                for i in range(0, 4, unit):
                    inside = own_row.live & (first + i < p.e)
                    values = [done(x) for x in line[4 * j + i : 4 * j + i + unit]]
                    values = [x if x.type is form.element else x.to(form.element) for x in values]
                    stored = finish(values, at + i, number, first + i, inside)
                    p.out.store(at + i, stored, where=inside)
        finish.end()

    name = f"attention_simt_{form.word}_{rows}x{tile.wide}{'_v' * vectors}"
    return build(name, arch, form.params(), body, threads)
