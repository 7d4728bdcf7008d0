"""Tensor cores of sm_90a, fed by tensor maps: bf16, f16, and float32 as tf32; sums in float32.

A block stays as long as there are tiles.  One thread of a third warpgroup lets the tensor memory accelerator bring
slices of A and B, 128 bytes of k, into a ring of stages, which swizzles them as wgmma wants; two warpgroups multiply,
each 64 rows of the tile, and store while the next tile's slices come in.  Two rings of mbarriers say which stages are
full and which are free.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from trueno_cuda.kernels.source import build
from trueno_cuda.kernels.store import Finish, Store
from trueno_cuda.ptx import Kernel, Type, f32, ptr, s32, tensor_map, u32, u64
from trueno_cuda.ptx.builder import ParamType
from trueno_cuda.ptx.types import PACKS

SLICE = 128
"""Bytes of k in a slice: as far as a swizzle reaches."""
CONSUMERS = 2
ROWS = 64 * CONSUMERS
THREADS = 128 * (CONSUMERS + 1)
COPIER_REGISTERS, CONSUMER_REGISTERS = 40, 232
"""A thread: 128 of the one and 256 of the other are the 65 536 of a multiprocessor."""
RUN = 64
"""Columns of B, as [k, n], that one copy brings; and of a 16-bit result that a warp turns around at once."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A block's sums: 128 rows by 128, 192 or 256 columns.

    group: rows of tiles that are worked on together, so that what they read stays in L2.
    """

    columns: int
    stages: int
    group: int = 8

    @property
    def rows(self) -> int:
        return ROWS

    def __str__(self) -> str:
        return f"{ROWS}x{self.columns}_s{self.stages}"

    def boxes(self, element: Type, turned: bool) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """What one copy brings of A [products, m, depth], and of B [products, depth, n], or turned, [.., n, depth]."""
        depth = SLICE // element.bytes
        return (1, ROWS, depth), (1, self.columns, depth) if turned else (1, depth, RUN)


def params(result: Type, store: Store) -> dict[str, ParamType]:
    """The launch parameters: maps of A and B, the result; tiles along m and n; products.

    pitch: elements from one row of the result to the next, n where these are all its columns.
    a_step, b_step: 1, or 0 where one matrix is for all products.
    """
    return {
        "a": tensor_map, "b": tensor_map, "out": ptr(result), **store.pointers(result),
        "m": u32, "n": u32, "depth": u32, "pitch": u32, "down": u32, "across": u32, "count": u32,
        "a_step": u32, "b_step": u32,
        **store.floats(result),
    }  # fmt: skip


@dataclass(slots=True)
class Place:
    """A block's tile: of which product, its first row and column."""

    product: Any
    row: Any
    column: Any


class Ring:
    """Where a role is in the ring of stages.  stage: its number; last: the one before; turn: parity of the rounds."""

    def __init__(self, k: Any, stages: int) -> None:
        self.k, self.stages = k, stages
        self.stage, self.last, self.turn = (k.var(u32, 0) for _ in range(3))

    def step(self) -> None:
        k, after = self.k, self.stage + 1
        around = after == self.stages
        self.last.set(self.stage)
        self.turn.set(self.turn ^ k.select(around, k.const(u32, 1), 0))
        self.stage.set(k.select(around, k.const(u32, 0), after))


@cache
def wgmma(element: Type, result: Type, tile: Tile, turned: bool, unit: int, store: Store) -> Kernel:
    """C = A B, or A B^T where `turned`, of any m; the rows of a and b, and their addresses, are multiples of 16 bytes.

    element: f32 is rounded to tf32 by its maps, and must be turned: wgmma reads 32-bit elements along k alone.
    unit: elements that divide n, pitch and out's alignment: 1, 2 or 8.

    Floor: 2 m n k flops at 989e12 a second on an H200, of which its power lets some 0.8 through.  Measured there at
    8192²: 790e12, as cuBLAS; clusters that share B, and stores by tensor maps, were no quicker.
    """
    columns, stages, depth = tile.columns, tile.stages, SLICE // element.bytes
    staged = unit == 8 and result.bits == 16

    def body(k: Any, p: Any) -> None:
        a_ring = k.shared(element, ROWS, depth, stages=stages, align=1024)
        b_ring = k.shared(element, columns, depth, stages=stages, align=1024)
        turning = k.shared(result, 16, RUN, stages=4 * CONSUMERS, per="warp") if staged else None
        full, free = k.mbarrier(stages), k.mbarrier(stages)
        finish, warp, lane = Finish(k, p, store), k.warp, k.lane
        slices = (p.depth + (depth - 1)) // depth
        with k.when(k.tid == 0):
            for s in range(stages):
                full.init(1, s)
                free.init(4 * CONSUMERS, s)
            k.fence("mbarrier_init")
        k.sync()

        def places() -> Iterator[Place]:
            """This block's tiles, one after the other."""
            per = p.down * p.across
            for number in k.range(k.ctaid, per * p.count, k.nctaid):
                product, rest = number // per, number % per
                group, within = rest // (p.across * tile.group), rest % (p.across * tile.group)
                height = k.min(p.down - group * tile.group, tile.group)
                yield Place(product, (group * tile.group + within % height) * ROWS, within // height * columns)

        def copy() -> None:
            """One thread's work: fill the stages that are free."""
            ring = Ring(k, stages)
            for place in places():
                a_product, b_product = ((place.product * s).to(s32) for s in (p.a_step, p.b_step))
                row, column = place.row.to(s32), place.column.to(s32)
                for i in k.range(slices):
                    first = (i * depth).to(s32)
                    a_tile, b_tile = a_ring[ring.stage], b_ring[ring.stage]
                    free.wait(ring.turn ^ 1, ring.stage)
                    full.arrive_expecting((ROWS + columns) * SLICE, ring.stage)
                    k.copy_tensor(a_tile, 0, p.a, (first, row, a_product), full, ring.stage)
                    if turned:
                        k.copy_tensor(b_tile, 0, p.b, (first, column, b_product), full, ring.stage)
                    else:
                        for j in range(0, columns, RUN):
                            at = column + j, first, b_product
                            k.copy_tensor(b_tile, j * depth, p.b, at, full, ring.stage)
                    ring.step()

        def multiply() -> None:
            """Four warps' work: sum their rows of each tile, slice by slice."""
            ring = Ring(k, stages)
            for place in places():
                acc = k.vars(f32, columns // 2, 0.0)
                for i in k.range(slices):
                    full.wait(ring.turn, ring.stage)
                    left = k.matrix(a_ring[ring.stage], warp // 4 * (64 * depth), stride=8 * depth)
                    if turned:
                        right = k.matrix(b_ring[ring.stage], stride=8 * depth)
                    else:  # blocks of 64 columns, in each a row of 128 bytes for each k
                        right = k.matrix(b_ring[ring.stage], leading=depth * RUN, stride=8 * RUN)
                    k.wgmma_fence()
                    for q in range(0, depth, depth // 4):
                        a, b = k.deeper(left, q, element), k.deeper(right, q if turned else q * RUN, element)
                        k.wgmma(f"m64n{columns}k{depth // 4}", acc, a, b, element, transposed=(False, not turned))
                    k.wgmma_commit()
                    k.wgmma_wait(1)  # so the slice before is read no more
                    with k.when((i > 0) & (lane == 0)):
                        free.arrive(ring.last)
                    ring.step()
                k.wgmma_wait(0)
                with k.when(lane == 0):
                    free.arrive(ring.last)
                (turn_and_put if staged else put)(acc, place)

        def finished(sums: Sequence[Any], at: Any, row: Any, column: Any, inside: Any) -> list[Any]:
            converted = sums if result is f32 else [v.to(result) for v in sums]
            return finish(converted, at, row, column, inside)

        def put(acc: Any, place: Place) -> None:
            """Store a tile as wgmma leaves it: two neighbours a thread."""
            width = min(unit, 2)
            wide, lead = k.multiple_of(p.pitch.to(u64), width), place.product.to(u64) * p.m.to(u64)
            first = place.column + lane % 4 * 2
            for half in range(2):
                row = place.row + (warp * 16 + half * 8) + lane // 4
                number = lead + row.to(u64)
                at = k.multiple_of(number * wide + first.to(u64), width)
                line = p.out + at
                for c in range(0, columns, 8):
                    for i in range(0, 2, width):
                        inside = (row < p.m) & (first + (c + i) < p.n)
                        sums = acc[c // 2 + 2 * half + i :][:width]
                        line.store(c + i, finished(sums, at + (c + i), number, first + (c + i), inside), where=inside)

        def turn_and_put(acc: Any, place: Place) -> None:
            """Store a tile in lines of 128 bytes: warps turn it around in shared memory, swizzled as for wgmma."""
            own, words = turning[warp], turning[warp].cast(u32)
            wide, lead = p.pitch.to(u64), place.product.to(u64) * p.m.to(u64)
            top, first = place.row + warp * 16, place.column + lane % 8 * 8
            down = top + lane // 8
            line = p.out.cast(u32) + k.multiple_of(((lead + down.to(u64)) * wide + first.to(u64)) // 2, 4)
            lines = [line + k.multiple_of(wide * (r // 2), 4) for r in range(0, 16, 4)]
            inside = [down + r < p.m for r in range(0, 16, 4)]
            there, spot = lane % 16 * RUN, lane // 16 ^ lane % 8
            for start in range(0, columns, RUN):
                k.sync_warp()
                for j in range(start, start + RUN, 16):
                    pairs = [looked_at(acc, place, c, half) for c in (j, j + 8) for half in range(2)]
                    packed = [k.pack(PACKS[result.name], *pair) for pair in pairs]
                    k.stmatrix(own, there + k.multiple_of((spot ^ (j - start) // 8) * 8, 8), packed)
                k.sync_warp()
                column = first + start < p.n
                for r in range(0, 16, 4):
                    row = lane // 8 + r
                    values = words.load(row * (RUN // 2) + (lane % 8 ^ row % 8) * 4, vec=4)
                    lines[r // 4].store(start // 2, values, where=inside[r // 4] & column)

        def looked_at(acc: Any, place: Place, c: int, half: int) -> list[Any]:
            """Two neighbouring sums of a row, with what is done to them before they are stored."""
            sums = acc[c // 2 + 2 * half :][:2]
            if store.plain:
                return sums  # rounded in one instruction, both
            row, column = place.row + (warp * 16 + half * 8) + lane // 4, place.column + lane % 4 * 2 + c
            number = place.product.to(u64) * p.m.to(u64) + row.to(u64)
            at = k.multiple_of(number * k.multiple_of(p.pitch.to(u64), 2) + column.to(u64), 2)
            return finished(sums, at, number, column, (row < p.m) & (column < p.n))

        with k.when(warp >= 4 * CONSUMERS):
            k.set_max_registers("dec", COPIER_REGISTERS)
            with k.when(k.tid == 128 * CONSUMERS):
                copy()
        with k.when(warp < 4 * CONSUMERS):
            k.set_max_registers("inc", CONSUMER_REGISTERS)
            multiply()
            finish.end()

    name = f"gemm_wgmma_{element}_{result}_{tile}{'_turned' * turned}_u{unit}{store.word}"
    return build(name, "sm_90a", params(result, store), body, THREADS)
