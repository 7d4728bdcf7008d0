"""Tensor cores by wgmma, on sm_90a alone: bf16 and f16, sums in float32.

Two warpgroups multiply, each 64 rows of a block's tile; a third brings slices of A and B, 64 of k, into a ring of
stages.  It copies with cp.async, and so swizzles by hand: of a row of 128 bytes the 16 that are number c lie where
c xor (row mod 8) says, as wgmma's 128-byte swizzle wants.  Two rings of mbarriers say which stages are full and which
are free.  Copies are ordinary writes, so the threads that wait for them say fence.proxy.async before they arrive.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

from trueno_cuda.kernels import gemm_form
from trueno_cuda.kernels.source import build
from trueno_cuda.kernels.store import Finish, Store
from trueno_cuda.ptx import Kernel, Type, f32, u64

DEPTH = 64
"""Elements of k in a slice: rows of 128 bytes."""
ROW = 128 // 2
CONSUMERS = 2
COPIERS = 128
LAG = 2
"""Slices that are under way before the oldest is waited for."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A block's sums: 128 rows by 64, 128 or 256 columns."""

    columns: int
    stages: int = 4

    @property
    def rows(self) -> int:
        return 64 * CONSUMERS

    @property
    def threads(self) -> int:
        return 128 * CONSUMERS + COPIERS

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}x{DEPTH}_s{self.stages}"


def shared_bytes(tile: Tile) -> int:
    return tile.stages * (tile.rows + tile.columns) * 128


@cache
def wgmma(element: Type, result: Type, tile: Tile, turned: bool, pairs: bool, store: Store) -> Kernel:
    """C = A B, or A B^T where `turned`, of any m; the rows of a and b, and their addresses, are multiples of 16 bytes.

    pairs: n is even and out aligned to two elements, as it always is of what is not turned.

    Floor: 2 m n k flops at 989e12 a second on an H200; copies by threads and blocks that do not share what they read
    should leave 0.5 to 0.65 of it (an estimate).
    """
    rows, columns, stages = tile.rows, tile.columns, tile.stages

    def body(k: Any, p: Any) -> None:
        part = gemm_form.part(k, p, rows, columns, 8, 8, share=DEPTH)
        kept = gemm_form.keep(k, part)
        a_ring = k.shared(element, rows, ROW, stages=stages, align=1024)
        b_ring = k.shared(element, columns, ROW, stages=stages, align=1024)
        full, free = k.mbarrier(stages), k.mbarrier(stages)
        finish, warp, lane = Finish(k, p, store), k.warp, k.lane
        slices = (part.end - part.begin + (DEPTH - 1)) // DEPTH
        with k.when(k.tid == 0):
            for s in range(stages):
                full.init(COPIERS, s)
                free.init(4 * CONSUMERS, s)
            k.fence("mbarrier_init")
        k.sync()

        # ---- the warpgroup that copies
        with k.when(warp >= 4 * CONSUMERS):
            me = k.tid - 128 * CONSUMERS
            line, chunk = me // 8, me % 8
            to = line * ROW + (chunk ^ line % 8) * 8
            wide_k, wide_n = k.multiple_of(p.depth.to(u64), 8), p.n.to(u64)
            step = COPIERS // 8

            def along_k(base: Any, first: Any, most: Any, many: int) -> list[Any]:
                """Where this thread's rows of a matrix [.., k] begin."""
                found = [k.min(first + (line + i), most - 1) for i in range(0, many, step)]
                return [base + k.multiple_of(row.to(u64) * wide_k, 8) for row in found]

            a_from = along_k(part.a, part.row, p.m, rows)
            b_from = along_k(part.b, part.column, p.n, columns) if turned else []
            for t in k.range(slices):
                stage = t % stages
                free.wait(t // stages % 2 ^ 1, stage)
                first = k.multiple_of(part.begin + t * DEPTH, DEPTH)
                a_tile, b_tile = a_ring[stage] + k.multiple_of(to, 8), b_ring[stage] + k.multiple_of(to, 8)
                inside = first + chunk * 8 < part.end
                for i, source in enumerate(a_from):
                    k.copy_async(a_tile, i * step * ROW, source, first + chunk * 8, 8, where=inside)
                for i, source in enumerate(b_from):
                    k.copy_async(b_tile, i * step * ROW, source, first + chunk * 8, 8, where=inside)
                if not turned:  # [k, n]: blocks of 64 columns, in each a row of 128 bytes for each k
                    for i in range(0, DEPTH, step):
                        term = first + (line + i)
                        from_row = part.b + k.multiple_of(term.to(u64) * wide_n, 8)
                        for j in range(0, columns, ROW):
                            column = k.min(part.column + (chunk * 8 + j), k.multiple_of(p.n, 8) - 8)
                            k.copy_async(b_tile, (j + i) * ROW, from_row, column, 8, where=term < part.end)
                k.async_commit()
                with k.when(t >= LAG):
                    k.async_wait(LAG)
                    k.fence("async")
                    full.arrive((t - LAG) % stages)
            k.async_wait(0)
            k.fence("async")
            begin = k.select(slices > LAG, slices - LAG, 0)
            for t in k.range(begin, slices):
                full.arrive(t % stages)

        # ---- the warpgroups that multiply
        with k.when(warp < 4 * CONSUMERS):
            acc = k.vars(f32, columns // 2, 0.0)
            group = warp // 4
            for t in k.range(slices):
                stage = t % stages
                full.wait(t // stages % 2, stage)
                left = k.matrix(a_ring[stage], group * (64 * ROW), stride=8 * ROW)
                if turned:
                    right = k.matrix(b_ring[stage], stride=8 * ROW)
                else:
                    right = k.matrix(b_ring[stage], leading=DEPTH * ROW, stride=8 * ROW)
                k.wgmma_fence()
                for q in range(0, DEPTH, 16):
                    a, b = (k.deeper(left, q, element), k.deeper(right, q if turned else q * ROW, element))
                    k.wgmma(f"m64n{columns}k16", acc, a, b, element, transposed=(False, not turned))
                k.wgmma_commit()
                k.wgmma_wait(1)
                with k.when((t > 0) & (lane == 0)):
                    free.arrive((t - 1) % stages)
            k.wgmma_wait(0)

            # ---- store
            place = gemm_form.returned(k, p, store, kept, rows, columns)
            unit = 2 if pairs else 1
            wide_n = k.multiple_of(p.n.to(u64), unit)
            first_column = place.column + lane % 4 * 2
            for half in range(2):
                row = place.row + (warp * 16 + half * 8) + lane // 4
                at = k.multiple_of(row.to(u64) * wide_n + place.base, unit) + first_column.to(u64)
                line, lead = p.out + at, place.lead + row.to(u64)
                for j in range(columns // 8):
                    for c in range(0, 2, unit):
                        inside = (row < p.m) & (first_column + (j * 8 + c) < p.n)
                        sums = acc[4 * j + 2 * half + c : 4 * j + 2 * half + c + unit]
                        made = sums if result is f32 else [v.to(result) for v in sums]
                        values = finish(made, at + (j * 8 + c), lead, first_column + (j * 8 + c), inside)
                        line.store(j * 8 + c, values, where=inside)
            finish.end()

    name = f"gemm_wgmma_{element}_{result}_{tile}{'_turned' * turned}{'_v' * pairs}{store.word}"
    return build(name, "sm_90a", gemm_form.params(element, result, store), body, tile.threads)
