"""matmul and batched_matmul: which tile, in how many splits, over which rows.

    naive     a sum an invocation: products so small that nothing else pays
    64x64     16x16 invocations with 4x4 sums each
    64x64     8x8 invocations with 8x8 sums: twice the arithmetic for what it reads from workgroup memory
    128x128   16x16 invocations with 8x8 sums
    one row, one column, two or three rows: `trueno_wgpu.kernels.gemv`

A grid too small for the GPU is split along k; the splits are added up by a second pass.
"""

import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import prod

from trueno.backend import Call, Kernel, stacks
from trueno.errors import KernelError

from trueno_wgpu.device.gpu import Gpu, Limits
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels import gemv
from trueno_wgpu.kernels.dispatches import Dispatch, Shape, added, product_kernel
from trueno_wgpu.kernels.memory import Band, bands
from trueno_wgpu.kernels.store import PARTIAL, PLAIN, Store
from trueno_wgpu.kernels.table import KERNELS, RATES
from trueno_wgpu.kernels.tile import NAIVE, Form, Tile, naive, tiled
from trueno_wgpu.kernels.tile_text import Reads

SMALL = Tile(32, 32, 32, 4, 4)
MIDDLE = Tile(64, 64, 16, 4, 4)
FINE = Tile(64, 64, 16, 8, 8, unroll=16)
LARGE = Tile(128, 128, 16, 8, 8, unroll=16)
DEEP = Tile(128, 128, 32, 8, 8, unroll=16)
"""LARGE with half as many barriers, where workgroups may share 32 KiB."""
SPEEDS: dict[Tile, tuple[float, int]] = {
    NAIVE: (0.06, 1024),
    SMALL: (0.35, 1024),
    MIDDLE: (0.5, 528),
    FINE: (0.97, 264),
    LARGE: (1.0, 264),
    DEEP: (1.05, 264),
}
"""Of each tile: multiply-adds a second beside LARGE's on a full GPU, and workgroups that fill a large one.

Measured on an H200 by `benchmarks/wgpu_matmul.py`: at 4096² 34.9 TFLOP/s for LARGE, 36.9 for DEEP, 34.3 for FINE, 25.6
for MIDDLE; at 1024² FINE gives 21.7, LARGE 18.
"""
PASS = 5e7
"""What a second pass costs at least, in multiply-adds of the largest tile; a byte that it moves costs 8."""
MOST_SPLITS = 32
WORK = 1 << 37
"""Multiply-adds of one dispatch: 9 ms at 30 TFLOP/s, and half a second on the slowest GPU, where Windows allows two."""
MOST_AXES = 4
SPARE = 0.9
"""Of the loop budget of a CPU adapter, which loops that naga adds may share."""


def choose(m: int, n: int, k: int, batch: int, limits: Limits) -> tuple[Tile, int]:
    """Tile and splits of k for a product of these sizes."""
    if limits.trips:  # a CPU has no grid to fill, and takes seconds to compile a large tile
        work = m * n * k
        return (NAIVE if work <= 32**3 or min(m, n) < 8 else MIDDLE if work < 256**3 else LARGE), 1
    best, choice = float("inf"), (MIDDLE, 1)
    for tile, (speed, filling) in SPEEDS.items():
        if tile.workgroup_bytes > limits.workgroup:
            continue
        grid = -(-m // tile.rows) * -(-n // tile.columns) * batch
        splits = 1
        while splits <= MOST_SPLITS and (splits == 1 or k // splits >= 4 * tile.depth):
            waves = max(-(-grid * splits // filling), 1)
            cost = waves * filling * tile.rows * tile.columns * (-(-k // splits) + tile.depth) / speed
            if splits > 1:
                cost += PASS + 8 * 4 * (splits + 1) * m * n * batch
            if cost < best:
                best, choice = cost, (tile, splits)
            splits *= 2
    return choice


def _reads(tile: Tile, m: int, n: int, k: int, turned: bool, first: int = 0, pitch: int = 0) -> Reads:
    if tile is NAIVE or k % 4 or n % 4 or first % 4 or pitch % 4:
        return "ones"
    return "fours" if m % tile.rows or n % tile.columns or k % tile.depth else "whole"


@cache
def shader(tile: Tile, form: Form) -> Shader:
    text = naive(form) if tile is NAIVE else tiled(tile, form)
    return Shader(f"matmul {tile}, {form.reads}", text, (False, False, True, *form.store.writes))


def product_dispatches(
    op: str, m: int, n: int, k: int, limits: Limits, store: Store = PLAIN, *, turned: bool = False,
    lead: Sequence[int] = (), a_step: Sequence[int] = (), b_step: Sequence[int] = (), first: int = 0, pitch: int = 0,
    tile: Tile | None = None, splits: int = 0,
) -> list[Dispatch]:  # fmt: skip
    """Steps of C = A B, operands 0 and 1, or A Bᵀ where `turned`.

    lead, a_step, b_step: leading axes and, in elements, what lies between neighbours along each; all of it must fit
    into bindings.  first, pitch: C's first column and the elements of its rows.  tile, splits: those, not the best.
    """
    batch, batched = prod(lead), bool(lead)
    pitch = pitch or n
    chosen = choose(m, n, k, batch, limits)
    tile, splits = tile or chosen[0], splits or chosen[1]
    most = 0 if limits.trips or batched else max(WORK // (n * k), 1)
    near = batched or first + m * pitch <= limits.binding // 4  # C is bound as one
    down = bands(op, "a", m, (k * 4,) if near else (k * 4, pitch * 4), limits, most, wanted=tile.rows)
    if batched:
        down = [(0, m)]
    along = [(0, k)] if turned or batched else bands(op, "b", k, (n * 4,), limits, multiple=4, wanted=64)
    # A depth's worth of k is a slice.  Naive: two loops, and four steps in a trip of the first.
    slices = int(limits.trips * SPARE) // (1 if tile is NAIVE else tile.trips)
    budget = max(slices - 8, 1) * tile.depth if limits.trips else k
    leads = [1] * (MOST_AXES - len(lead)) + list(lead)
    gaps = [[0] * (MOST_AXES - len(s)) + list(s) for s in (a_step, b_step)]
    dispatches = []
    for top, height in down:
        a_band = None if len(down) == 1 else Band(top, height, k * 4)
        c_band = None if len(down) == 1 or near else Band(top, height, pitch * 4)
        begins = first + top * pitch if near else first
        cuts = [(b, s, min(s + budget, b[0] + b[1])) for b in along for s in range(b[0], b[0] + b[1], budget)]
        for number, (b, begin, end) in enumerate(cuts):
            share = -(-(end - begin) // splits)
            share = -(-share // tile.depth) * tile.depth
            parts = -(-(end - begin) // share)
            final = number == len(cuts) - 1
            after = store if final else PLAIN
            form = Form(
                _reads(tile, height, n, k, turned, first, pitch if parts == 1 else n), turned, batched,
                after if parts == 1 else PARTIAL,
            )  # fmt: skip
            if form.reads == "whole" and (end - begin) % tile.depth:
                form = replace(form, reads="fours")
            tiles = -(-height // tile.rows), -(-n // tile.columns)
            groups = tiles[0] * tiles[1] * parts * batch
            words = (
                height, n, k, begin, end, share, parts, b[0], number > 0 and parts == 1, groups, *tiles,
                begins if parts == 1 else 0, pitch if parts == 1 else n, top, *leads, *gaps[0], *gaps[1],
            )  # fmt: skip
            then = None
            if parts > 1:
                count = batch * height * n
                then = added(count, height * n, parts, n, after, limits.groups, add=number > 0, first=begins,
                             pitch=pitch, above=top)  # fmt: skip
            dispatches.append(
                Dispatch(
                    shader(tile, form),
                    struct.pack("<27I", *words),
                    fold(groups, limits.groups),
                    ((0, a_band), (1, None if len(along) == 1 else Band(*b, n * 4))),
                    c_band,
                    final,
                    parts * batch * height * n * 4 if parts > 1 else 0,
                    then,
                )
            )
    return dispatches


def dispatches_for(op: str, m: int, n: int, k: int, limits: Limits, store: Store) -> list[Dispatch]:
    """Steps of a product of two matrices, by the kernel that fits its shape."""
    if n == 1:
        return gemv.row_dispatches(op, m, k, limits, store, upright=True)
    if m <= gemv.MOST_VECTORS:
        return gemv.column_dispatches(op, m, n, k, limits, store, x=0, a=1)
    return product_dispatches(op, m, n, k, limits, store)


@KERNELS.add("matmul", rates=RATES)
def matmul(gpu: Gpu, call: Call) -> Kernel:
    """a[m,k] b[k,n] -> out[m,n]."""

    def make(store: Store, a: Shape, b: Shape, out: Shape) -> list[Dispatch] | None:
        if len(a) != 2 or len(b) != 2 or a[1] != b[0] or out != (a[0], b[1]):
            return None
        return dispatches_for("matmul", a[0], b[1], a[1], gpu.limits, store) if a[1] and 0 not in out else []

    return product_kernel(gpu, call, make)


@KERNELS.add("batched_matmul", rates=RATES)
def batched_matmul(gpu: Gpu, call: Call) -> Kernel:
    """a[...,m,k] b[...,k,n] -> out[...,m,n]; leading axes are broadcast."""

    def make(store: Store, a: Shape, b: Shape, out: Shape) -> list[Dispatch] | None:
        if min(len(a), len(b)) < 2 or a[-1] != b[-2] or out[-2:] != (a[-2], b[-1]):
            return None
        if len(out) != max(len(a), len(b)):
            return None
        m, k, n = a[-2], a[-1], b[-1]
        whole = out[:-2]
        gaps = stacks.leading(a[:-2], whole, m * k), stacks.leading(b[:-2], whole, k * n)
        if gaps[0] is None or gaps[1] is None or _broadcast(a[:-2], b[:-2]) != whole:
            return None
        if k == 0 or 0 in out:
            return []
        lead, (a_step, b_step) = stacks.merged(whole, gaps[0], gaps[1])
        if not lead:
            return dispatches_for("batched_matmul", m, n, k, gpu.limits, store)
        if len(lead) > MOST_AXES:
            return None
        return batch_dispatches(m, n, k, lead, a_step, b_step, gpu.limits, store)

    return product_kernel(gpu, call, make)


def _broadcast(a: Shape, b: Shape) -> Shape:
    axes = max(len(a), len(b))
    pairs = zip((1,) * (axes - len(a)) + a, (1,) * (axes - len(b)) + b, strict=True)
    return tuple(y if x == 1 else x for x, y in pairs)


def batch_dispatches(
    m: int,
    n: int,
    k: int,
    lead: Sequence[int],
    a_step: Sequence[int],
    b_step: Sequence[int],
    limits: Limits,
    store: Store,
) -> list[Dispatch]:
    """Steps of stacked products: all at once, or as many as bindings hold."""
    op = "batched_matmul"
    sizes = [4 * (elements + sum((s - 1) * g for s, g in zip(lead, gaps, strict=True)))
             for elements, gaps in ((m * k, a_step), (k * n, b_step))]  # fmt: skip
    if max(*sizes, prod(lead) * m * n * 4) <= limits.binding:
        return product_dispatches(op, m, n, k, limits, store, lead=lead, a_step=a_step, b_step=b_step)
    if len(lead) > 1:
        raise KernelError(
            f"{op}: operands broadcast along {len(lead)} axes and need {max(sizes)} bytes in one binding, but this "
            f"adapter binds {limits.binding}; call it for parts of the batch"
        )
    each = (m * k * 4 if a_step[0] else 0, k * n * 4 if b_step[0] else 0, m * n * 4)
    dispatches: list[Dispatch] = []
    for first, count in bands(op, "the batch", lead[0], each, limits):
        a, b, c = (Band(first, count, size) if size else None for size in each)
        planned = product_dispatches(op, m, n, k, limits, store, lead=[count], a_step=a_step, b_step=b_step)
        dispatches += [replace(dispatch, reads=((0, a), (1, b)), out=c) for dispatch in planned]
    return dispatches
