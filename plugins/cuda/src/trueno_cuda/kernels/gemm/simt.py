"""Tiles in shared memory, small squares of sums in registers: true float32 and float64 by fma alone.

A block makes a tile of C.  cp.async brings slices of A and B, `depth` of k at a time, into a ring of stages while older
ones are multiplied.  A slice of A lies transposed, so that for each k a thread reads its rows as vectors, as it reads
its columns of B; the transposition is done by the copies, an element each, eight neighbours of a row and the rows below
it by one warp, which hits every bank once.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

from trueno_cuda.kernels.gemm import form
from trueno_cuda.kernels.source import build
from trueno_cuda.kernels.store import Finish, Store
from trueno_cuda.ptx import Kernel, Type, Value, u32, u64

ALONG = 8
"""Neighbours of a row of A that lanes side by side copy: 32 bytes, a sector, of float32."""


@dataclass(frozen=True, slots=True)
class Tile:
    """How a block divides its work.

    warps: rows and columns of them; micro: rows and columns of sums of a thread; lanes: of a warp.  paired: lanes are
    numbered so that eight neighbours hold four rows and two columns, not one row and eight columns.  ahead: operands
    of the next k are read while those of this one are multiplied, across the barrier between slices too; that takes
    registers, without which other blocks on the same multiprocessor must fill the wait.
    """

    warps: tuple[int, int]
    micro: tuple[int, int]
    depth: int = 16
    stages: int = 3
    blocks_per_sm: int = 2
    lanes: tuple[int, int] = (4, 8)
    paired: bool = False
    ahead: bool = True

    @property
    def rows(self) -> int:
        return self.warps[0] * self.lanes[0] * self.micro[0]

    @property
    def columns(self) -> int:
        return self.warps[1] * self.lanes[1] * self.micro[1]

    @property
    def threads(self) -> int:
        return 32 * self.warps[0] * self.warps[1]

    def __str__(self) -> str:
        micro = "x".join(map(str, self.micro))
        words = "p" * self.paired + "n" * (not self.ahead)
        return f"{self.rows}x{self.columns}x{self.depth}_{micro}_s{self.stages}{words}"


def shared_bytes(tile: Tile, size: int) -> int:
    """Of a block, for elements of `size` bytes."""
    return tile.stages * tile.depth * (tile.rows + 16 // size + tile.columns) * size


@cache
def simt(arch: str, element: Type, tile: Tile, vectors: bool, store: Store) -> Kernel:
    """C = A B of any sizes.  vectors: n, b and out are multiples of 16 bytes; A is not asked.

    Floor: 2 m n k flops, of which an H200 does 67e12 a second in float32 and 33e12 in float64 at 1.98 GHz; cuBLAS keeps
    51e12.  In 128x128 tiles of 8x8 every k costs a thread 64 fma and 4 reads of 16 bytes, and every 16 of them 10
    copies: 0.91 of its instructions are fma, which is what it should reach of that rate (an estimate).
    """
    width = 16 // element.bytes
    rows, columns, depth, stages = tile.rows, tile.columns, tile.depth, tile.stages
    tm, tn = tile.micro
    lane_rows, lane_columns = tile.lanes
    threads = tile.threads
    each = width if vectors else 1

    def body(k: Any, p: Any) -> None:
        part = form.part(k, p, rows, columns, b_unit=each)
        kept = form.keep(k, part)
        tid, warp, lane = k.tid, k.warp, k.lane
        a_ring = k.shared(element, depth, rows + width, stages=stages)
        b_ring = k.shared(element, depth, columns, stages=stages)
        wide_k, wide_n = p.depth.to(u64), p.n.to(u64)
        finish = Finish(k, p, store)

        # ---- copies
        a_column, a_row = lane % ALONG, warp * (32 // ALONG) + lane // ALONG
        a_step = threads // ALONG  # rows that a block copies at once
        last_row = p.m - 1
        a_from = [
            part.a + (k.min(part.row + a_row + i, last_row).to(u64) * wide_k + a_column.to(u64))
            for i in range(0, rows, a_step)
        ]
        a_to = a_column * (rows + width) + a_row
        b_line = columns // each
        b_row, b_column = tid // b_line, tid % b_line * each
        b_step = max(threads // b_line, 1)
        last_column = k.multiple_of(p.n, each) - each
        b_from = part.b + k.multiple_of(b_row.to(u64) * wide_n, each)
        b_columns = [
            k.min(part.column + (b_column + i), last_column) for i in range(0, columns, min(threads * each, columns))
        ]
        b_pitch = k.multiple_of(wide_n * b_step, each)

        def fetch(stage: Value | int, first: Value) -> None:
            """The slice of k that begins at `first`; zeros behind the split's end."""
            a_tile, b_tile = a_ring[stage] + a_to, b_ring[stage] + (b_row * columns + b_column)
            for q in range(0, depth, ALONG):
                inside = first + (a_column + q) < part.end
                for i, source in enumerate(a_from):
                    k.copy_async(a_tile, q * (rows + width) + i * a_step, source + first, q, 1, where=inside)
            line = b_from + k.multiple_of(k.mul_wide(first, p.n), each)
            for q in range(0, depth, b_step):
                inside = first + (b_row + q) < part.end
                for i, column in enumerate(b_columns):
                    k.copy_async(b_tile, q * columns + i * threads * each, line, column, each, where=inside)
                line += b_pitch

        for s in range(stages - 1):
            fetch(s, part.begin + s * depth)
            k.async_commit()

        # ---- reads
        if tile.paired:  # bits 0, 3, 4 of a lane are its column
            lr, lc = lane // 2 % lane_rows, lane % 2 + lane // (2 * lane_rows) * 2
        else:
            lr, lc = lane // lane_columns, lane % lane_columns
        top = warp // tile.warps[1] * (lane_rows * tm) + lr * width
        left = warp % tile.warps[1] * (lane_columns * tn) + lc * width
        acc = [k.vars(element, tn, 0.0) for _ in range(tm)]

        def read(a_tile: Any, b_tile: Any, q: int) -> tuple[list[Value], list[Value]]:
            """A thread's rows of A and columns of B, of one k."""
            a_line, b_line = a_tile + q * (rows + width), b_tile + q * columns
            xs = [x for c in range(0, tm, width) for x in a_line.load(c * lane_rows, vec=width)]
            ys = [y for c in range(0, tn, width) for y in b_line.load(c * lane_columns, vec=width)]
            return xs, ys

        def multiply(xs: Any, ys: Any) -> None:
            for i in range(tm):
                for j in range(tn) if i % 2 == 0 else reversed(range(tn)):  # neighbours share an operand
                    acc[i][j].fma(xs[i], ys[j])

        k.async_wait(stages - 2)
        k.sync()
        held: list[Any] = []
        if tile.ahead:
            held = [[k.var(v) for v in part_] for part_ in read(a_ring[0] + top, b_ring[0] + left, 0)]
        stage = k.var(u32, 0)
        for first in k.range(part.begin, part.end, depth):
            now = stage.value
            after = k.select(now == stages - 1, 0, now + 1)
            free = k.select(now == 0, stages - 1, now - 1)
            a_now, b_now = a_ring[now] + top, b_ring[now] + left
            fetch(free, first + (stages - 1) * depth)
            k.async_commit()
            operands: Any = held if tile.ahead else read(a_now, b_now, 0)
            for q in range(1, depth):
                following = read(a_now, b_now, q)
                multiply(*operands)
                operands = following
            if not tile.ahead:
                multiply(*operands)
            k.async_wait(stages - 2)
            k.sync()
            if tile.ahead:
                following = read(a_ring[after] + top, b_ring[after] + left, 0)
                multiply(*operands)
                for variables, values in zip(held, following, strict=True):
                    for variable, value in zip(variables, values, strict=True):
                        variable.set(value)
            stage.set(after)
        k.async_wait(0)

        # ---- store
        place = form.returned(k, p, store, kept, rows, columns)
        first_column = place.column + left
        for i in range(tm):
            row = place.row + top + (i // width * (lane_rows * width) + i % width)
            at = k.multiple_of(row.to(u64) * p.pitch.to(u64) + place.base, each) + first_column.to(u64)
            line, lead = p.out + at, place.lead + row.to(u64)
            for j in range(0, tn, each):
                step = j // width * (lane_columns * width) + j % width
                inside = (row < p.m) & (first_column + step < p.n)
                values = finish(acc[i][j : j + each], at + step, lead, first_column + step, inside)
                line.store(step, values, where=inside)
        finish.end()

    name = f"gemm_simt_{element}_{tile}{'_v' if vectors else ''}{store.word}"
    params = form.params(element, element, store)
    return build(name, arch, params, body, threads, tile.blocks_per_sm)
