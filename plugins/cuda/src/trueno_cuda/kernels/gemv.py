"""Matrix-vector products: bound by how fast the matrix is read, so every thread keeps several vectors in flight.

    rows      y[i] = sum of a[i,k] x[k] over k: a warp or a block sums a row
    columns   y[v,j] = sum of x[v,k] a[k,j] over k: a lane owns 16 bytes of neighbouring columns, warps take turns along
              k, and up to four vectors are multiplied at once, so that the matrix is read once for all

Where rows or columns are too few to fill a GPU, k is split over blocks, and a second kernel adds up.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from trueno.backend import Call
from trueno.backend import Kernel as Called

from trueno_cuda.device.protocol import Device
from trueno_cuda.kernels.gemm.splits import THREADS, adding
from trueno_cuda.kernels.product import ProductLaunch, Shape, product_kernel
from trueno_cuda.kernels.source import build
from trueno_cuda.kernels.store import PARTIAL, Finish, Store
from trueno_cuda.kernels.table import KERNELS, RATES
from trueno_cuda.ptx import Kernel, Type, f32, f64, ptr, u32, u64
from trueno_cuda.ptx.builder import ParamType

MOST_VECTORS = 4
AHEAD = 4
"""Vectors of the matrix that a thread reads before it uses the first: 64 bytes, 128 KiB on a full multiprocessor."""
WARPS = THREADS // 32
LONG = 2048
"""Elements from which on a block sums a row."""
LEAST = 4096
"""Elements that a block reads at least, where k is split."""
FILLING = 8
"""Blocks that a multiprocessor holds."""
MOST_SPLITS = 128
MOST = 1 << 31
"""Below this lies every axis."""


def _params(first: Type, store: Store) -> dict[str, ParamType]:
    return {
        "x": ptr(first), "y": ptr(first), "out": ptr(first), **store.pointers(first),
        "m": u32, "depth": u32, "share": u32, **store.floats(first),
    }  # fmt: skip


@cache
def rows(arch: str, element: Type, team: int, vectors: bool, upright: bool, store: Store) -> Kernel:
    """out[i] = sum over k of x[i, k] y[k], of m rows.  Grid: rows, splits.

    team: lanes that sum a row, 32 or all 256.  vectors: depth and both operands are multiples of 16 bytes.  upright:
    the result is a column, whose elements are rows to an epilogue.
    Floor: m k elements read once, 4.28 TB/s on an H200; expected 0.9 of it from 64 MiB on (an estimate).
    """
    width = 16 // element.bytes if vectors else 1
    step = team * width

    def body(k: Any, p: Any) -> None:
        finish = Finish(k, p, store)
        row, lane = k.ctaid * (THREADS // team) + k.tid // team, k.tid % team
        begin = k.multiple_of(k.ctaid_y * p.share, width)
        end = k.min(p.depth, begin + p.share)
        line = p.x + k.multiple_of(k.min(row, p.m - 1).to(u64) * p.depth.to(u64), width)
        sums = k.vars(element, width, 0.0)

        def turn(first: Any, ahead: int, masked: bool) -> None:
            at = [first + (lane * width + j * step) for j in range(ahead)]
            where = [i < end if masked else None for i in at]
            read = [
                (line.load(i, vec=width, where=w, cache="nc"), p.y.load(i, vec=width, where=w, cache="nc"))
                for i, w in zip(at, where, strict=True)
            ]
            for xs, ys in read:
                for sum_, a, b in zip(sums, xs, ys, strict=True):
                    sum_.fma(a, b)

        whole = begin + (end - begin) // (step * AHEAD) * (step * AHEAD)
        for first in k.range(begin, whole, step * AHEAD):
            turn(first, AHEAD, False)
        for first in k.range(k.multiple_of(whole, width), end, step):
            turn(first, 1, True)
        parts = list(sums)
        while len(parts) > 1:
            parts = [a + b for a, b in zip(parts[::2], parts[1::2], strict=True)]
        total = k.block_sum(parts[0]) if team == THREADS else k.warp_sum(parts[0])
        live = (lane == 0) & (row < p.m)
        if store.partial:
            p.out.store(k.mul_wide(k.ctaid_y, p.m) + row.to(u64), total, where=live)
        else:
            zero = k.const(u32, 0)
            place = (row, zero) if upright else (zero, row)
            p.out.store(row, finish([total], row, *place, live), where=live)
        finish.end()

    name = f"gemv_rows_{element}_{team}{'_v' * vectors}{'_upright' * (upright and bool(store.word))}{store.word}"
    return build(name, arch, _params(element, store), body, THREADS)


@cache
def columns(arch: str, element: Type, count: int, vectors: bool, store: Store) -> Kernel:
    """out[v, j] = sum over k of x[v, k] y[k, j], of `count` vectors and m columns.  Grid: columns, splits.

    vectors: m, y and out are multiples of 16 bytes.
    Floor: k m elements read once, 4.28 TB/s on an H200; expected 0.9 of it from 64 MiB on (an estimate).
    """
    width = 16 // element.bytes if vectors else 1
    across = 32 * width
    ahead = AHEAD if count == 1 else 2

    def body(k: Any, p: Any) -> None:
        finish, warp = Finish(k, p, store), k.warp
        scratch = k.shared(element, count, WARPS, across)
        first_column = k.ctaid * across
        column = k.min(first_column + k.lane * width, k.multiple_of(p.m, width) - width)
        begin = k.ctaid_y * p.share
        end = k.min(p.depth, begin + p.share)
        wide = k.multiple_of(p.m.to(u64), width)
        pitch, source = wide * WARPS, p.y + column
        sums = [k.vars(element, width, 0.0) for _ in range(count)]

        def turn(first: Any, ahead: int, masked: bool) -> None:
            mine, read = first + warp, []
            line = source + k.multiple_of(k.mul_wide(mine, p.m), width)
            for j in range(ahead):
                where = mine + j * WARPS < end if masked else None
                ys = line.load(0, vec=width, where=where, cache="nc")
                xs = [
                    p.x.load(mine + (j * WARPS) if not v else p.depth.to(u64) * v + (mine + (j * WARPS)).to(u64),
                             where=where, cache="nc")
                    for v in range(count)
                ]  # fmt: skip
                read.append((xs, ys))
                line += pitch
            for xs, ys in read:
                for x, mine_ in zip(xs, sums, strict=True):
                    for sum_, y in zip(mine_, ys, strict=True):
                        sum_.fma(x, y)

        whole = begin + (end - begin) // (WARPS * ahead) * (WARPS * ahead)
        for first in k.range(begin, whole, WARPS * ahead):
            turn(first, ahead, False)
        for first in k.range(whole, end, WARPS):
            turn(first, 1, True)
        for v in range(count):
            scratch.store((v, warp, k.lane * width), sums[v])
        k.sync()
        mine, live = first_column + k.tid, (k.tid < across) & (first_column + k.tid < p.m)
        at = k.min(k.tid, across - 1)
        for v in range(count):
            total = k.var(scratch.load((v, 0, at)))
            for w in range(1, WARPS):
                total += scratch.load((v, w, at))
            number = k.ctaid_y * count + v if store.partial else k.const(u32, v)
            to = k.mul_wide(number, p.m) + mine.to(u64)
            p.out.store(to, finish([total], to, k.const(u32, v), mine, live), where=live)
        finish.end()

    name = f"gemv_columns_{element}_{count}{'_v' * vectors}{store.word}"
    return build(name, arch, _params(element, store), body, THREADS)


def _launches(
    device: Device, element: Type, first: Any, second: Any, grid: int, m: int, depth: int, splits: int, unit: int,
    shape: tuple[int, int], vectors: bool,
) -> list[ProductLaunch]:  # fmt: skip
    """One launch, or two where k is split.  first, second: kernel for a store.  shape: rows and columns added up."""
    share = -(-max(depth, 1) // splits)
    share = -(-share // unit) * unit
    splits = -(-max(depth, 1) // share)
    launch = device.prepare(first(splits > 1), (grid, splits, 1), (m, depth, share))
    if splits == 1:
        return [ProductLaunch(launch, (0, 0, 0, 0))]
    width = 16 // element.bytes if vectors else 1
    elements = shape[0] * shape[1]
    then = device.prepare(second(vectors), (-(-elements // (THREADS * width)), 1, 1), (*shape, splits))
    return [ProductLaunch(launch, (0, 0, 0, 0), then, splits * elements)]


def row_launches(
    device: Device, element: Type, m: int, depth: int, store: Store, aligned: bool, *, upright: bool = False,
    team: int = 0, splits: int = 0,
) -> list[ProductLaunch]:  # fmt: skip
    """Launches of y[i] = sum of a[i,k] x[k].  team, splits: those, not the best."""
    width = 16 // element.bytes
    vectors = aligned and depth % width == 0
    team = team or (THREADS if depth >= LONG or m < device.sms else 32)
    grid = -(-m // (THREADS // team))
    splits = splits or max(min(-(-device.sms * FILLING // grid), depth // LEAST, MOST_SPLITS), 1)

    def first(partial: bool) -> Kernel:
        return rows(device.arch, element, team, vectors, upright, PARTIAL if partial else store)

    def second(wide: bool) -> Kernel:
        return adding(device.arch, element, wide, store)

    shape = (m, 1) if upright else (1, m)
    return _launches(device, element, first, second, grid, m, depth, splits, width, shape,
                  aligned and shape[1] % width == 0)  # fmt: skip


def column_launches(
    device: Device, element: Type, count: int, m: int, depth: int, store: Store, aligned: bool, *, splits: int = 0
) -> list[ProductLaunch]:
    """Launches of y[v,j] = sum of x[v,k] a[k,j], of m columns.  splits: those, not the best."""
    width = 16 // element.bytes
    vectors = aligned and m % width == 0
    across = 32 * (width if vectors else 1)
    grid = -(-m // across)
    splits = splits or max(min(-(-device.sms * FILLING // grid), depth * across // LEAST, MOST_SPLITS), 1)

    def first(partial: bool) -> Kernel:
        return columns(device.arch, element, count, vectors, PARTIAL if partial else store)

    def second(wide: bool) -> Kernel:
        return adding(device.arch, element, wide, store)

    return _launches(device, element, first, second, grid, m, depth, splits, 1, (count, m), vectors)


ELEMENTS = {"float32": f32, "float64": f64}


@KERNELS.add("matvec", rates=RATES)
def matvec(device: Device, call: Call) -> Called:
    """a[m,k] x[k] -> out[m]."""
    element = ELEMENTS[call.dtype.name]

    def make(store: Store, aligned: bool, a: Shape, x: Shape, out: Shape) -> Sequence[ProductLaunch] | None:
        if len(a) != 2 or x != a[1:] or out != a[:1] or max(a) >= MOST:
            return None
        return row_launches(device, element, *a, store, aligned) if a[0] else []

    return product_kernel(device, call, make)


@KERNELS.add("vecmat", rates=RATES)
def vecmat(device: Device, call: Call) -> Called:
    """x[k] a[k,n] -> out[n]."""
    element = ELEMENTS[call.dtype.name]

    def make(store: Store, aligned: bool, x: Shape, a: Shape, out: Shape) -> Sequence[ProductLaunch] | None:
        if len(a) != 2 or x != a[:1] or out != a[1:] or max(a) >= MOST:
            return None
        return column_launches(device, element, 1, a[1], a[0], store, aligned) if a[1] else []

    return product_kernel(device, call, make)
