"""Tensor cores by mma.sync, from sm_80 on: bf16 and f16, and float32 rounded to tf32; sums are float32.

A block makes a tile of C, a warp a part of it that it holds in registers.  cp.async brings slices of A and B into a
ring of stages.  Rows in shared memory are 16 bytes longer than they need be, so that eight rows which ldmatrix reads
at once lie in different banks.  B comes as [k, n], which ldmatrix transposes, or turned, as [n, k].

Where tiles are too few for the GPU, the blocks of a cluster share one (from sm_90 on): each sums its terms of k, and
then adds up, in order, some rows of all their sums, which it reads from the others' shared memory.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

from trueno.errors import KernelError

from trueno_cuda.kernels.gemm import form
from trueno_cuda.kernels.source import build
from trueno_cuda.kernels.store import Finish, Store
from trueno_cuda.ptx import Kernel, Type, Value, f32, tf32, u32, u64


@dataclass(frozen=True, slots=True)
class Tile:
    """How a block divides its work.  warps: rows and columns of them; each: rows and columns of sums of a warp;
    bytes: of a row of a slice, along k.
    """

    warps: tuple[int, int]
    each: tuple[int, int]
    bytes: int = 64
    stages: int = 4
    blocks_per_sm: int = 2

    @property
    def rows(self) -> int:
        return self.warps[0] * self.each[0]

    @property
    def columns(self) -> int:
        return self.warps[1] * self.each[1]

    @property
    def threads(self) -> int:
        return 32 * self.warps[0] * self.warps[1]

    def __str__(self) -> str:
        each = "x".join(map(str, self.each))
        return f"{self.rows}x{self.columns}x{self.bytes}b_{each}_s{self.stages}"


def shared_bytes(tile: Tile, size: int, turned: bool) -> int:
    """Of a block, for elements of `size` bytes."""
    depth = tile.bytes // size
    b = tile.columns * (tile.bytes + 16) if turned else depth * (tile.columns * size + (32 if size == 4 else 16))
    return tile.stages * (tile.rows * (tile.bytes + 16) + b)


@cache
def mma(
    arch: str, element: Type, result: Type, tile: Tile, turned: bool, divisor: int, store: Store, blocks: int = 1
) -> Kernel:
    """C = A B of any sizes, or A B^T where `turned`.

    divisor: elements that divide the rows of a and b and their addresses, a power of two up to 16 bytes; they also
    divide those of out, or from 2 on 2 does where b is turned.  Copies are of so many; single 16-bit elements are
    fetched through registers, which is right and slow.  blocks: of a cluster that share a tile, which divide its rows.
    Floor: 2 m n k flops; an H200 does 989e12 a second in bf16 and f16 with wgmma, of which mma.sync reaches 0.6, and
    half of that in tf32.  Expected 0.45 to 0.55 of the peak (an estimate).  A warp's 64x64 reads 4 KiB of shared memory
    for 65536 multiply-adds, which take it 51 clocks of 32; its 64x32 reads 3 KiB for half of that, and both are full.
    """
    size = element.bytes
    unit = 16 // size  # elements of 16 bytes
    rows, columns, depth, stages, threads = tile.rows, tile.columns, tile.bytes // size, tile.stages, tile.threads
    step = 32 // size  # of k in one mma
    shape = {2: "m16n8k16", 4: "m16n8k8"}[size]
    down, across = tile.each[0] // 16, tile.each[1] // 8
    a_pitch = depth + unit
    # Of [k, n] in float32, four rows of eight neighbours are read at once: a pitch of 8 words more than 32 parts them.
    b_shape = (columns, a_pitch) if turned else (depth, columns + (8 if size == 4 else unit))
    b_rows, b_line = (columns, depth) if turned else (depth, columns)
    out_unit = min(divisor, 2)
    copied = divisor * size >= 4
    if not form.shares(rows, columns, stages * size * max(rows * a_pitch, b_shape[0] * b_shape[1]), blocks):
        raise KernelError(f"{tile}: {blocks} blocks do not divide its rows, or no ring holds its sums")

    def body(k: Any, p: Any) -> None:
        part = form.part(k, p, rows, columns, divisor, divisor, share=depth)
        kept = form.keep(k, part)
        tid, warp, lane = k.tid, k.warp, k.lane
        a_ring = k.shared(element, rows, a_pitch, stages=stages)
        b_ring = k.shared(element, *b_shape, stages=stages)
        finish = Finish(k, p, store)
        wide_k, wide_n = (k.multiple_of(x.to(u64), divisor) for x in (p.depth, p.n))

        # ---- copies: a vector a thread and turn; rows behind the end are others again, k behind it is zero
        def fetch(stage: Value | int, first: Value) -> None:
            for ring, along_k, many, length, pitch in (
                (a_ring, True, rows, depth, a_pitch), (b_ring, turned, b_rows, b_line, b_shape[1]),
            ):  # fmt: skip
                to = ring[stage]
                vectors_a_row = length // unit
                for e in range(0, many * vectors_a_row, threads):
                    row, column = (tid + e) // vectors_a_row, (tid + e) % vectors_a_row * unit
                    if vectors_a_row == 4:  # eight lanes write rows r and r + 4, 5 * 4 vectors apart: all banks once
                        row = row // 8 * 8 + row % 2 * 4 + row % 8 // 2
                    if along_k:
                        top, most = (part.row, p.m) if ring is a_ring else (part.column, p.n)
                        source = part.a if ring is a_ring else part.b
                        line = k.min(top + row, most - 1).to(u64) * wide_k
                        here, at = source + line, first + column
                        copy(to, row * pitch + column, here, at, at, 1)
                    else:
                        at = first + row
                        copy(to, row * pitch + column, part.b + at.to(u64) * wide_n, part.column + column, at, 0)

        def copy(to: Any, place: Value, line: Any, at: Value, term: Value, per: int) -> None:
            """16 bytes of a row; `term` of k is the first's, and `per` more each element further on."""
            if copied:
                for i in range(0, unit, divisor):
                    column = at + i if per else k.min(at + i, k.multiple_of(p.n, divisor) - divisor)
                    k.copy_async(to, place + i, line, column, divisor, where=term + i * per < part.end)
                return
            values = []
            for i in range(unit):
                inside = term + i * per < part.end
                values.append(line.load(at + i if per else k.min(at + i, p.n - 1), where=inside))
            to.store(place, values)

        for s in range(stages - 1):
            fetch(s, part.begin + s * depth)
            k.async_commit()

        # ---- products
        top, left = warp // tile.warps[1] * tile.each[0], warp % tile.warps[1] * tile.each[1]
        acc = [[k.vars(f32, 4, 0.0) for _ in range(across)] for _ in range(down)]
        stage = k.var(u32, 0)
        a_lane = (top + lane % 16) * a_pitch + lane // 16 * unit
        if turned:
            b_lane = (left + lane // 16 * 8 + lane % 8) * a_pitch + lane // 8 % 2 * unit
        elif size == 2:
            b_lane = lane % 16 * b_shape[1] + (left + lane // 16 * 8)
        else:
            b_lane = lane % 4 * b_shape[1] + (left + lane // 4)

        def rounded(values: Any) -> Any:
            return [v.bits(f32).to(tf32) for v in values] if size == 4 else values

        def right(b_tile: Any, q: int, j: int) -> list[Any]:
            """Fragments of B for columns 8 j to 8 j + 15."""
            if turned:
                four = rounded(k.ldmatrix(b_tile, j * 8 * a_pitch + q))
            elif size == 2:
                four = k.ldmatrix(b_tile, q * b_shape[1] + j * 8, transposed=True)
            else:
                places = [(q + i) * b_shape[1] + (j + c) * 8 for c in range(2) for i in (0, 4)]
                four = [b_tile.load(at).to(tf32) for at in places]
            return [four[:2], four[2:]]

        for first in k.range(part.begin, part.end, depth):
            k.async_wait(stages - 2)
            k.sync()
            now = stage.value
            fetch(k.select(now == 0, stages - 1, now - 1), first + (stages - 1) * depth)
            k.async_commit()
            a_tile, b_tile = a_ring[now] + a_lane, b_ring[now] + b_lane
            for q in range(0, depth, step):
                lefts = [rounded(k.ldmatrix(a_tile, i * 16 * a_pitch + q)) for i in range(down)]
                rights = [x for j in range(0, across, 2) for x in right(b_tile, q, j)]
                for i in range(down):
                    for j in range(across) if i % 2 == 0 else reversed(range(across)):
                        k.mma(shape, acc[i][j], lefts[i], rights[j])
            stage.set(k.select(now == stages - 1, 0, now + 1))
        k.async_wait(0)
        k.sync()

        # ---- store
        place = form.returned(k, p, store, kept, rows, columns)
        if blocks > 1:
            added(k, p, finish, place, a_ring if rows * a_pitch > b_shape[0] * b_shape[1] else b_ring, acc, top, left)
            return
        first_column = place.column + (left + lane % 4 * 2)
        for i in range(down):
            for half in range(2):
                row = place.row + top + (i * 16 + half * 8) + lane // 4
                at = k.multiple_of(row.to(u64) * p.pitch.to(u64) + place.base, out_unit) + first_column.to(u64)
                line, lead = p.out + at, place.lead + row.to(u64)
                for j in range(across):
                    for c in range(0, 2, out_unit):
                        inside = (row < p.m) & (first_column + (j * 8 + c) < p.n)
                        sums = [v.to(result) if result is not f32 else v
                                for v in acc[i][j][2 * half + c : 2 * half + c + out_unit]]  # fmt: skip
                        values = finish(sums, at + (j * 8 + c), lead, first_column + (j * 8 + c), inside)
                        line.store(j * 8 + c, values, where=inside)
        finish.end()

    def added(k: Any, p: Any, finish: Finish, place: form.Place, ring: Any, acc: Any, top: Value, left: Value) -> None:
        """Put the sums where a ring was, and store this block's rows of the cluster's."""
        pitch, width = columns + form.SKEW, min(divisor, 2 if turned else 4)
        sums = ring.cast(f32)
        spot = (top + k.lane // 4) * pitch + (left + k.lane % 4 * 2)
        for i in range(down):
            for half in range(2):
                for j in range(across):
                    sums.store(spot + ((i * 16 + half * 8) * pitch + j * 8), acc[i][j][2 * half :][:2])
        k.sync_cluster()
        form.add_up(k, p, finish, place, sums, (rows, columns, pitch), blocks, result, width, threads)
        k.sync_cluster()  # no block ends while another one reads its shared memory
        finish.end()

    vectors = "_v" if divisor == unit else f"_v{divisor * size}" if divisor > 1 else ""
    words = f"{'_turned' * turned}{vectors}{f'_{blocks}' if blocks > 1 else ''}{store.word}"
    name = f"gemm_mma_{'tf32' if size == 4 else element}_{result}_{tile}{words}"
    params = form.params(element, result, store)
    cluster = (1, blocks, 1) if blocks > 1 else None
    return build(name, arch, params, body, threads, tile.blocks_per_sm, cluster=cluster)
