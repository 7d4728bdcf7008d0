"""Attention by tensor cores, mma.sync from sm_80 on: 16-bit operands, and float32 in bfloat16 parts; sums in float32.

A warp has 16 or 32 rows, all of the keys of a tile, and its sums in registers.  While scores are multiplied, cp.async
brings the values of these keys; while values are, the next keys.  Rows in shared memory are 16 bytes longer than they
need be, so that eight rows which ldmatrix reads at once are in different banks.  A warp's scores lie as the left
operand of the second product wants its weights, so they never leave its registers.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

from trueno_cuda.kernels.attention import form as forms
from trueno_cuda.kernels.attention.form import Form
from trueno_cuda.kernels.attention.fragments import TOP, Parts, products, split, weights
from trueno_cuda.kernels.attention.planes import UNIT
from trueno_cuda.kernels.attention.softmax import Softmax
from trueno_cuda.kernels.source import build
from trueno_cuda.kernels.store import Finish
from trueno_cuda.ptx import Kernel, Value, f16, f32, u32, u64


@dataclass(frozen=True, slots=True)
class Tile:
    """warps of a block; down: sixteens of rows of a warp, 1 or 2; keys at a time; d, e: multiples of 16, with zeros."""

    warps: int
    down: int
    keys: int
    d: int
    e: int
    blocks_per_sm: int = 1

    @property
    def rows(self) -> int:
        return 16 * self.down * self.warps

    @property
    def threads(self) -> int:
        return 32 * self.warps

    def __str__(self) -> str:
        return f"{self.rows}x{self.keys}_w{self.warps}_d{self.d}_e{self.e}"

    def shared_bytes(self, parts: Parts) -> int:
        """Of a block."""
        halves = parts.keys * (self.rows + self.keys) * (self.d + UNIT) + parts.values * self.keys * (self.e + UNIT)
        return 2 * halves


@cache
def mma(arch: str, tile: Tile, form: Form, parts: Parts, vectors: bool, unit: int) -> Kernel:
    """vectors: q is read 8 elements at a time.  unit: elements of a result that are stored at once, 1 or 2.

    k and v have rows of whole 16 bytes, at multiples of 16 bytes; `planes` makes such of others.

    Floor: 2 (d + e) flops for each visible pair of a row and a key and each product of parts, at the rate of mma.sync,
    some 0.6 of wgmma's 989e12 a second on an H200; and 2^x for each pair, at 16 a clock and multiprocessor.
    """
    d, e, keys, down = tile.d, tile.e, tile.keys, tile.down
    half = form.keys
    pitch, v_pitch = d + UNIT, e + UNIT
    top = TOP if half is f16 else 0
    of_scores, of_values = products(parts.keys, parts.keys), products(parts.weights, parts.values)
    held = down == 1 and parts.keys == 1 and d <= 128  # Q stays in registers

    def body(k: Any, p: Any) -> None:
        part = forms.part(k, p, form, tile.rows, e, (UNIT if vectors else 1, UNIT, UNIT))
        tid, warp, lane = k.tid, k.warp, k.lane
        q_tile = k.shared(half, tile.rows, pitch, stages=parts.keys)
        k_tile = k.shared(half, keys, pitch, stages=parts.keys)
        v_tile = k.shared(half, keys, v_pitch, stages=parts.values)
        finish = Finish(k, p, form.store)

        def copy(ring: Any, source: Any, plane: Value, row_pitch: Value, many: int, width: Value, wide: int,
                 at: Value) -> None:  # fmt: skip
            """The rows of a tile's keys; zeros behind the last key, and in columns behind the last."""
            line = k.multiple_of(k.mul_wide(p.hk, row_pitch), UNIT)
            fours = wide // UNIT
            for begin in range(0, keys * fours, tile.threads):
                slot = tid + begin
                row, column = slot // fours, slot % fours * UNIT
                key, to = at + row, row * (wide + UNIT) + column
                here = source + (line * key.to(u64) + column.to(u64))
                inside = (key < part.high) & (column < width)
                with k.when(slot < keys * fours) if begin + tile.threads > keys * fours else nullcontext():
                    for i in range(many):
                        k.copy_async(ring[i], to, here + k.multiple_of(plane, UNIT) * i, 0, UNIT, where=inside)

        def copy_keys(at: Value) -> None:
            copy(k_tile, part.k, p.k_plane, p.k_pitch, parts.keys, p.d, d, at)
            k.async_commit()

        def copy_values(at: Value) -> None:
            copy(v_tile, part.v, p.v_plane, p.v_pitch, parts.values, p.e, e, at)
            k.async_commit()

        def copy_queries() -> None:
            """Scaled, and split, in shared memory."""
            fours = d // UNIT
            for begin in range(0, tile.rows * fours, tile.threads):
                slot = tid + begin
                row, column = slot // fours, slot % fours * UNIT
                asked = forms.row(k, p, form, part, part.first + row)
                pairs = forms.queries(
                    k, p, form, part, asked, column, vectors, lambda a, b: split(k, half, a, b, parts.keys)
                )
                to = row * (pitch // 2) + k.multiple_of(column // 2, 4)
                for i in range(parts.keys):
                    q_tile[i].cast(u32).store(to, [pair[i].bits(u32) for pair in pairs])

        copy_keys(part.low)
        copy_queries()

        def rows() -> list[Any]:
            first = part.first + (warp * (16 * down) + lane // 4)
            return [forms.row(k, p, form, part, first + (16 * m + 8 * h)) for m in range(down) for h in range(2)]

        own = rows() if form.extra == "mask" else []
        softmax = Softmax(k, p, form, part, rows, 2 * down, 4, lane % 4, top)
        sums = [[k.vars(f32, 4, 0.0) for _ in range(e // 8)] for _ in range(down)]
        a_lane = (warp * (16 * down) + lane % 16) * pitch + lane // 16 * UNIT
        k_lane = (lane // 16 * 8 + lane % 8) * pitch + lane // 8 % 2 * UNIT
        v_lane = lane % 16 * v_pitch + lane // 16 * UNIT

        def queries(c: int) -> list[list[Any]]:
            """Fragments of Q, columns c to c + 15: of each part, of each sixteen of rows."""
            return [
                [k.ldmatrix(q_tile[i] + a_lane, 16 * pitch * m + c) for m in range(down)] for i in range(parts.keys)
            ]

        ready: list[Any] = []
        if held:
            k.sync()
            ready = [queries(c) for c in range(0, d, 16)]

        for at in k.range(part.low, part.high, keys):
            k.async_wait(0)
            k.sync()
            copy_values(at)
            scores = [[k.vars(f32, 4, 0.0) for _ in range(keys // 8)] for _ in range(down)]
            for c in range(0, d, 16):
                lefts = ready[c // 16] if held else queries(c)
                for n in range(0, keys, 16):
                    rights = [k.ldmatrix(k_tile[j] + k_lane, n * pitch + c) for j in range(parts.keys)]
                    for i, j in of_scores:
                        for m in range(down):
                            for side in range(2):
                                right = rights[j][2 * side : 2 * side + 2]
                                k.mma("m16n8k16", scores[m][n // 8 + side], lefts[i][m], right)
            columns = [at + (8 * n + c) + lane % 4 * 2 for n in range(keys // 8) for c in range(2)]
            lines = [[x for four in scores[m] for x in four[2 * h : 2 * h + 2]] for m in range(down) for h in range(2)]
            softmax.scale(lines, columns, own)
            with k.when(~forms.whole(k, p, part, at, keys)):
                softmax.unseen(lines, columns)
            olds = softmax.weights(lines)
            k.async_wait(0)
            k.sync()
            copy_keys(at + keys)
            for m in range(down):
                for four in sums[m]:
                    for i, x in enumerate(four):
                        x.update("mul", olds[2 * m + i // 2])
            for n in range(0, keys, 16):
                heavy = [weights(k, half, scores[m][n // 8 : n // 8 + 2], parts) for m in range(down)]
                for c in range(0, e, 16):
                    rights = [
                        k.ldmatrix(v_tile[j] + v_lane, n * v_pitch + c, transposed=True) for j in range(parts.values)
                    ]
                    for i, j in of_values:
                        for m in range(down):
                            for side in range(2):
                                right = rights[j][2 * side : 2 * side + 2]
                                k.mma("m16n8k16", sums[m][c // 8 + side], heavy[m][i, j], right)
        k.async_wait(0)

        # ---- the result
        for i, (r, done) in enumerate(softmax.finish()):
            number = part.out + r.at(p).to(u64)
            base = k.multiple_of(number * p.e.to(u64), unit)
            line = p.out + base
            for c in range(0, e, 8):
                first = lane % 4 * 2 + c
                four = sums[i // 2][c // 8][2 * (i % 2) : 2 * (i % 2) + 2]
                for x in range(0, 2, unit):
                    inside = r.live & (first + x < p.e)
                    values = [done(v) for v in four[x : x + unit]]
                    values = [v if form.element is f32 else v.to(form.element) for v in values]
                    stored = finish(values, base + (first + x).to(u64), number, first + x, inside)
                    line.store(first + x, stored, where=inside)
        finish.end()

    words = f"{'_v' * vectors}{'_u2' if unit == 2 else ''}"
    name = f"attention_mma_{form.word}_{half}_p{parts}_{tile}{words}"
    return build(name, arch, form.params(), body, tile.threads, tile.blocks_per_sm)


def widened(n: int) -> int:
    """The multiple of 16 that a tile has for so many columns."""
    return max(-(-n // 16) * 16, 16)
