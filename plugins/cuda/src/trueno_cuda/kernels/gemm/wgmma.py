"""Tensor cores of sm_90a, fed by tensor maps: bf16, f16, and float32 as tf32; sums in float32.

A block stays as long as there are tiles.  One thread of the last warpgroup lets the tensor memory accelerator bring
slices of A and B, 128 bytes of k, into a ring of stages, which swizzles them as wgmma wants; the others multiply,
each 64 rows of the tile, and store while the next tile's slices come in.  Two rings of mbarriers say which stages are
full and which are free.

Where tiles are too few for the GPU, the blocks of a cluster share one: each sums some slices of it, and then adds up,
in order, some rows of all their sums, which it reads from the others' shared memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from trueno.errors import KernelError

from trueno_cuda.kernels.gemm import form
from trueno_cuda.kernels.source import build
from trueno_cuda.kernels.store import Finish, Store
from trueno_cuda.ptx import Kernel, Type, f32, ptr, s32, tensor_map, u32, u64
from trueno_cuda.ptx.builder import ParamType
from trueno_cuda.ptx.types import PACKS

SLICE = 128
"""Bytes of k in a slice: as far as a swizzle reaches."""
WARPGROUP = 128
"""Threads of a warpgroup."""
COPIER_REGISTERS, CONSUMER_REGISTERS = 40, 232
"""A thread: 128 of the one and 256 of the other are the 65 536 of a multiprocessor."""
RUN = 64
"""Columns of B, as [k, n], that one copy brings; and of a 16-bit result that a warp turns around at once."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A block's sums: 64 or 128 rows by 64 to 256 columns.

    consumers: warpgroups that multiply, 64 rows each.  group: rows of tiles that are worked on together, so that what
    they read stays in L2.
    """

    columns: int
    stages: int
    consumers: int = 2
    group: int = 8

    @property
    def rows(self) -> int:
        return 64 * self.consumers

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}_s{self.stages}"

    def height(self, m: int) -> int:
        """Rows of A that a copy brings: whole swizzles, and no more than there are."""
        return min(self.rows, -(-m // 8) * 8)

    def boxes(self, m: int, element: Type, turned: bool) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """What one copy brings of A [products, m, depth], and of B [products, depth, n], or turned, [.., n, depth]."""
        depth = SLICE // element.bytes
        return (1, self.height(m), depth), (1, self.columns, depth) if turned else (1, depth, RUN)


def shares(tile: Tile, blocks: int) -> bool:
    """Whether the blocks of a cluster can share a tile, whose sums a ring then holds."""
    return form.shares(tile.rows, tile.columns, tile.stages * SLICE * max(tile.rows, tile.columns), blocks)


def params(result: Type, store: Store) -> dict[str, ParamType]:
    """The launch parameters: maps of A and B, the result; tiles along m and n; products.

    pitch: elements from one row of the result to the next, n where these are all its columns.
    height: of a tile of A.  a_step, b_step: 1, or 0 where one matrix is for all products.
    """
    return {
        "a": tensor_map, "b": tensor_map, "out": ptr(result), **store.pointers(result),
        "m": u32, "n": u32, "depth": u32, "pitch": u32, "down": u32, "across": u32, "count": u32,
        "height": u32, "a_step": u32, "b_step": u32,
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
def wgmma(element: Type, result: Type, tile: Tile, turned: bool, unit: int, store: Store, blocks: int = 1) -> Kernel:
    """C = A B, or A B^T where `turned`, of any m; the rows of a and b, and their addresses, are multiples of 16 bytes.

    element: f32 is rounded to tf32 by its maps, and must be turned: wgmma reads 32-bit elements along k alone.
    unit: elements that divide n, pitch and out's alignment: 1, 2 or 8.  blocks: of a cluster that share a tile; then
    there is a cluster for each, and a ring holds the sums.

    Floor: 2 m n k flops at 989e12 a second on an H200, of which its power lets some 0.8 through, or the bytes of B.
    Measured there at 8192²: 790e12, as cuBLAS; clusters that share B, and stores by tensor maps, were no quicker.
    16 and 128 rows by 4096² of bfloat16, 32 MiB, take 7.0 and 10.0 us, and cuBLAS 8.9 and 12.7.
    """
    rows, columns, stages, depth = tile.rows, tile.columns, tile.stages, SLICE // element.bytes
    working, threads = 4 * tile.consumers, WARPGROUP * (tile.consumers + 1)
    many = tile.consumers > 1 and columns > RUN  # sums for a thread, so that it needs the copier's registers
    staged = unit == 8 and result.bits == 16 and blocks == 1
    if not shares(tile, blocks):
        raise KernelError(f"{tile}: {blocks} blocks do not divide its rows, or no ring holds its sums")

    def body(k: Any, p: Any) -> None:
        a_ring = k.shared(element, rows, depth, stages=stages, align=1024)
        b_ring = k.shared(element, columns, depth, stages=stages, align=1024)
        sums, pitch = (b_ring if columns > rows else a_ring).cast(f32), columns + form.SKEW
        turning = k.shared(result, 16, RUN, stages=working, per="warp") if staged else None
        full, free = k.mbarrier(stages), k.mbarrier(stages)
        finish, warp, lane = Finish(k, p, store), k.warp, k.lane
        every = slices = (p.depth + (depth - 1)) // depth
        start: Any = 0
        if blocks > 1:
            share = (every + (blocks - 1)) // blocks
            start = k.min(k.ctaid_y * share, every)
            slices = k.min(every - start, share)
        with k.when(k.tid == 0):
            for s in range(stages):
                full.init(1, s)
                free.init(working, s)
            k.fence("mbarrier_init")
        k.sync()

        def placed(number: Any) -> Place:
            per = p.down * p.across
            product, rest = number // per, number % per
            group, within = rest // (p.across * tile.group), rest % (p.across * tile.group)
            height = k.min(p.down - group * tile.group, tile.group)
            return Place(product, (group * tile.group + within % height) * rows, within // height * columns)

        def places() -> Iterator[Place]:
            """This block's tiles, one after the other."""
            if blocks > 1:
                yield placed(k.ctaid)
            else:
                yield from map(placed, k.range(k.ctaid, p.down * p.across * p.count, k.nctaid))

        def copy() -> None:
            """One thread's work: fill the stages that are free."""
            ring = Ring(k, stages)
            for place in places():
                a_product, b_product = ((place.product * s).to(s32) for s in (p.a_step, p.b_step))
                row, column = place.row.to(s32), place.column.to(s32)
                for i in k.range(slices):
                    first = ((start + i) * depth).to(s32)
                    a_tile, b_tile = a_ring[ring.stage], b_ring[ring.stage]
                    free.wait(ring.turn ^ 1, ring.stage)
                    full.arrive_expecting((p.height + columns) * SLICE, ring.stage)
                    k.copy_tensor(a_tile, 0, p.a, (first, row, a_product), full, ring.stage)
                    if turned:
                        k.copy_tensor(b_tile, 0, p.b, (first, column, b_product), full, ring.stage)
                    else:
                        for j in range(0, columns, RUN):
                            at = column + j, first, b_product
                            k.copy_tensor(b_tile, j * depth, p.b, at, full, ring.stage)
                    ring.step()

        def clear() -> None:
            """Zero what no copy brings: rows below a tile of A that has them all."""
            words, row = a_ring.cast(u32), SLICE // 4
            for e in k.range(k.tid * 4, (rows - p.height) * row, WARPGROUP * tile.consumers * 4):
                for s in range(stages):
                    at = k.multiple_of((s * rows + p.height) * row + e, 4)
                    words.store(at, [k.const(u32, 0)] * 4)
            k.fence("async")
            k.sync(1, WARPGROUP * tile.consumers)

        def multiply() -> None:
            """Four warps' work: sum their rows of each tile, slice by slice."""
            clear()
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
                if blocks > 1:
                    leave(acc)
                    continue
                with k.when(lane == 0):
                    free.arrive(ring.last)
                (turn_and_put if staged else put)(acc, place)

        def leave(acc: Any) -> None:
            """Put sums where the ring was, when the operands of all these warps in it were read."""
            k.sync(1, WARPGROUP * tile.consumers)
            spot = (warp * 16 + lane // 4) * pitch + lane % 4 * 2
            for half in range(2):
                for c in range(0, columns, 8):
                    sums.store(spot + (half * 8 * pitch + c), acc[c // 2 + 2 * half :][:2])

        def add_up() -> None:
            """Store some rows of the cluster's sums."""
            place = placed(k.ctaid)
            lead = place.product.to(u64) * p.m.to(u64)
            to = form.Place(place.row, place.column, lead, lead * p.pitch.to(u64))
            width = 4 if unit == 8 else unit
            form.add_up(
                k, p, finish, to, sums, (rows, columns, pitch), blocks, result, width, WARPGROUP * tile.consumers
            )

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

        with k.when(warp >= working):
            if many:
                k.set_max_registers("dec", COPIER_REGISTERS)
            with k.when(k.tid == WARPGROUP * tile.consumers):
                copy()
        with k.when(warp < working):
            if many:
                k.set_max_registers("inc", CONSUMER_REGISTERS)
            multiply()
            if blocks == 1:
                finish.end()
        if blocks > 1:
            k.sync_cluster()
            with k.when(warp < working):
                add_up()
                finish.end()
            k.sync_cluster()  # no block ends while another one reads its shared memory

    name = f"gemm_wgmma_{element}_{result}_{tile}{'_turned' * turned}_u{unit}{store.word}"
    cluster = (1, blocks, 1) if blocks > 1 else None
    name += f"_{blocks}" if blocks > 1 else ""
    return build(name, "sm_90a", params(result, store), body, threads, cluster=cluster)
