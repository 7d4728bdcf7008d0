# mypy: disable-error-code="valid-type"
"""convolve2d: cross-correlation of planes, valid or same; x is 0 outside.

Floor: x, the weights and the result once through memory, and 2 · c · p · q flops per element of the result, whichever
takes longer: one plane with few taps is bound by memory, many channels by arithmetic.

`taps`: a thread sums R neighbouring rows of one column of one channel.  Where P and Q are constants of the build, the
weights stay in registers and an element of x serves all the rows that it meets; with P = Q = 0 the loops count at run
time.  `product`: the sum over channels and taps as a matrix product, weights[o, c p q] times windows[c p q, i j], whose
windows are gathered into shared memory as they are needed and never written out.
Places and taps of `product` are counted with 32 bits, so larger planes take `taps`; both address with 64.
"""

from functools import cache
from math import prod
from typing import Any

import numpy as np
from trueno.backend import Call, Kernel

from trueno_cuda.catalogue.entry import GUARDED, ITEMSIZE, CatalogueEntry, Constant, Sample, Want
from trueno_cuda.device.protocol import Device
from trueno_cuda.kernels.operands import (
    VECTOR,
    ArrayLaunch,
    Plan,
    Shape,
    build,
    called,
    element,
    look,
    powers,
    prepared,
    status_parameter,
    tell,
    typed,
)
from trueno_cuda.kernels.table import KERNELS, RATES
from trueno_cuda.ptx import Builder, BuildError, Pointer, Source, Value, Var, ptr, u32, u64
from trueno_cuda.ptx import Kernel as Built

THREADS = 256
ACROSS, DOWN = 32, 8
"""Threads of `taps` over the columns and rows of the result."""
DEPTH = 8
"""Products summed between two barriers of `product`."""
NOWHERE = 1 << 31
"""A row that is in no plane: that of taps beyond the last."""
MOST = 1 << 30
"""What no axis may exceed."""
LARGEST = 7
"""Rows and columns up to which a kernel's size is a constant of the build."""


def _corner(row: Value, column: Value, top: Value, left: Value, w: Value) -> Value:
    """Index in a plane where the window of a place begins.  Before the plane it wraps, and so does what is added."""
    return (row.to(u64) - top.to(u64)) * w.to(u64) + (column.to(u64) - left.to(u64))


# ------------------------------------------------------------------------------------- taps


def _taps(
    k: Builder, x: Pointer, weights: Pointer, out: Pointer, channels: Value, h: Value, w: Value, p: Value, q: Value,
    height: Value, width: Value, top: Value, left: Value, across: Value, down: Value, status: Pointer | None = None,
    *, P: int, Q: int, R: int,
) -> None:  # fmt: skip
    """A block for each DOWN * R rows and ACROSS columns of each channel of the result."""
    if (P == 0) != (Q == 0):
        raise BuildError(f"P={P} and Q={Q}: both are constants of the build, or both are 0")
    column = k.ctaid % across * ACROSS + k.tid % ACROSS
    tile = k.ctaid // across
    channel, row = tile // down, (tile % down * DOWN + k.tid // ACROSS) * R
    sums = k.vars(x.element, R)
    pitch, plane, size = w.to(u64), h.to(u64) * w.to(u64), p.to(u64) * q.to(u64)
    first = weights + channel.to(u64) * channels.to(u64) * size
    corner = _corner(row, column, top, left, w)
    y, x0 = row - top, column - left  # of x; what lies before it is huge as an unsigned number

    for c in k.range(channels):
        line, kernel = x + (c.to(u64) * plane + corner), first + c.to(u64) * size
        if P:
            taps = [[kernel.load(i * Q + j) for j in range(Q)] for i in range(P)]
            for r in range(R + P - 1):
                inside = y + r < h
                for j in range(Q):
                    value = line.load(j, where=inside & (x0 + j < w))
                    for a in range(max(r - P + 1, 0), min(r + 1, R)):
                        sums[a].fma(taps[r - a][j], value)
                line = line + pitch
        else:
            for row_tap in k.range(p):
                for column_tap in k.range(q):
                    tap = kernel.load(row_tap.to(u64) * q.to(u64) + column_tap.to(u64))
                    at = line + (row_tap.to(u64) * pitch + column_tap.to(u64))
                    for a in range(R):
                        sums[a].fma(tap, at.load(0, where=(y + row_tap + a < h) & (x0 + column_tap < w)))
                        at = at + pitch

    bits = k.var(u32, 0)
    target = out + (channel.to(u64) * height.to(u64) + row.to(u64)) * width.to(u64) + column.to(u64)
    for a in range(R):
        live = (row + a < height) & (column < width)
        target.store(0, sums[a], where=live)
        target = target + width
        if status is not None:
            look(k, bits, k.select(live, sums[a], 0.0))
    if status is not None:
        tell(k, bits, status)


# ------------------------------------------------------------------------------------- product


def _product(
    k: Builder, x: Pointer, weights: Pointer, out: Pointer, o: Value, h: Value, w: Value, p: Value, q: Value,
    width: Value, top: Value, left: Value, places: Value, depth: Value, across: Value, status: Pointer | None = None,
    *, M: int, N: int, V: int,
) -> None:  # fmt: skip
    """A block for each M channels and N places of the result; 16 x 16 threads, each of a part of both."""
    kind = x.element
    vec = VECTOR // kind.bytes
    channel0, place0 = k.ctaid // across * M, k.ctaid % across * N
    tx, ty = k.tid % 16, k.tid // 16
    a_tile, b_tile = k.shared(kind, DEPTH, M + vec), k.shared(kind, DEPTH, N)  # more: no bank conflicts
    steps, rows, columns = k.shared(u64, DEPTH), k.shared(u32, DEPTH), k.shared(u32, DEPTH)
    sums = [k.vars(kind, N // 16) for _ in range(M // 16)]

    # What this thread brings: weights of one tap, M * DEPTH / THREADS channels; and one place, that many taps of it.
    a_depth, a_row = k.tid % DEPTH, k.tid // DEPTH
    b_depth, b_column = k.tid // N, k.tid % N
    a_held, b_held = k.vars(kind, M * DEPTH // THREADS), k.vars(kind, N * DEPTH // THREADS)
    place = place0 + b_column
    row, column = place // width, place % width
    corner = _corner(row, column, top, left, w)
    row, column = row - top, column - left

    def list_taps(first: Value | int) -> None:
        """Where the next taps lie, counted from a window's beginning."""
        with k.when(k.tid < DEPTH):
            tap = k.tid + first
            c, rest = tap // (p * q), tap % (p * q)
            i, j = rest // q, rest % q
            steps.store(k.tid, (c.to(u64) * h.to(u64) + i.to(u64)) * w.to(u64) + j.to(u64))
            rows.store(k.tid, k.select(tap < depth, i, NOWHERE))
            columns.store(k.tid, j)

    def fetch(first: Value | int) -> None:
        for s, held in enumerate(a_held):
            channel, tap = channel0 + a_row + s * (THREADS // DEPTH), a_depth + first
            index = channel.to(u64) * depth.to(u64) + tap.to(u64)
            held.set(weights.load(index, where=(channel < o) & (tap < depth)))
        for s, held in enumerate(b_held):
            d = b_depth + s * (THREADS // N)
            inside = (row + rows.load(d) < h) & (column + columns.load(d) < w) & (place < places)
            held.set(x.load(corner + steps.load(d), where=inside))

    list_taps(0)
    k.sync()
    fetch(0)
    k.sync()
    for first in k.range(0, depth, DEPTH):
        for s, held in enumerate(a_held):
            a_tile.store((a_depth, a_row + s * (THREADS // DEPTH)), held)
        for s, held in enumerate(b_held):
            b_tile.store((b_depth + s * (THREADS // N), b_column), held)
        list_taps(first + DEPTH)
        k.sync()
        fetch(first + DEPTH)
        for d in range(DEPTH):
            a = [e for g in range(0, M, 16 * vec) for e in a_tile.load((d, ty * vec + g), vec=vec)]
            b = [e for g in range(0, N, 16 * vec) for e in b_tile.load((d, tx * vec + g), vec=vec)]
            for line, e in zip(sums, a, strict=True):
                for total, f in zip(line, b, strict=True):
                    total.fma(e, f)
        k.sync()
    _write(k, out, sums, (channel0 + ty * vec, o), (place0 + tx * vec, places), vec, V, status)


def _write(
    k: Builder, out: Pointer, sums: list[list[Var]], channels: tuple[Value, Value], places: tuple[Value, Value],
    vec: int, V: int, status: Pointer | None,
) -> None:  # fmt: skip
    """Store a thread's sums, V at a time: runs of `vec` channels and places, 16 runs apart."""
    bits = k.var(u32, 0)
    pitch = k.multiple_of(places[1], V)
    for i, line in enumerate(sums):
        channel = channels[0] + (i // vec * 16 * vec + i % vec)
        target = out + channel.to(u64) * pitch.to(u64)
        for j in range(0, len(line), V):
            place = places[0] + (j // vec * 16 * vec + j % vec)
            live = (channel < channels[1]) & (place < pitch)
            target.store(place, line[j : j + V], where=live)
            if status is not None:
                with k.when(live):
                    for total in line[j : j + V]:
                        look(k, bits, total)
    if status is not None:
        tell(k, bits, status)


# ------------------------------------------------------------------------------------- launches

TAPS = ("channels", "h", "w", "p", "q", "height", "width", "top", "left", "across", "down")
PRODUCT = ("o", "h", "w", "p", "q", "width", "top", "left", "places", "depth", "across")


@cache
def source(itemsize: int, schedule: str, guarded: bool) -> Source:
    kind = ptr(element(itemsize))
    # Two blocks of `product` an SM: one waits at a barrier or for memory while the other multiplies.
    function, numbers, blocks = (_taps, TAPS, None) if schedule == "taps" else (_product, PRODUCT, 2)
    operands = {"x": kind, "weights": kind, "out": kind, **status_parameter(guarded), **dict.fromkeys(numbers, u32)}
    name = f"convolve2d_{schedule}_{kind.element}{'_guarded' if guarded else ''}"
    return typed(function, name, THREADS, operands, blocks)


def launch(
    x: Shape, weights: Shape, out: Shape, same: bool, itemsize: int, sms: int, wide: bool, schedule: str = "",
    constants: dict[str, int] | None = None,
) -> tuple[str, dict[str, int], int, dict[str, int]]:  # fmt: skip
    """Schedule, constants, blocks and numbers of a call; the first two may be given."""
    (h, w), (p, q), (height, width) = x[-2:], weights[-2:], out[-2:]
    channels, o, places = (x[0], out[0], height * width) if len(x) == 3 else (1, 1, height * width)
    depth = channels * p * q
    top, left = ((p - 1) // 2, (q - 1) // 2) if same else (0, 0)
    sizes = {"h": h, "w": w, "p": p, "q": q, "width": width, "top": top, "left": left}
    if not schedule:
        many = o >= 16 and depth >= 16 and places >= 64 and places < 1 << 31 and depth < 1 << 31
        schedule = "product" if many else "taps"
    if schedule == "product":
        tiles = -(-o // 128) * -(-places // 128)
        side = 128 if itemsize == 4 and o > 64 and tiles >= sms else 64
        vec = VECTOR // itemsize
        constants = constants or {"M": side, "N": side, "V": vec if wide and places % vec == 0 else 1}
        across = -(-places // constants["N"])
        blocks = -(-o // constants["M"]) * across
        return schedule, constants, blocks, sizes | {"o": o, "places": places, "depth": depth, "across": across}
    if constants is None:
        few = max(p, q) <= LARGEST
        rows = 8 if o * -(-height // (8 * DOWN)) * -(-width // ACROSS) >= 2 * sms else 2
        constants = {"P": p if few else 0, "Q": q if few else 0, "R": rows}
    across, down = -(-width // ACROSS), -(-height // (DOWN * constants["R"]))
    return schedule, constants, across * down * o, sizes | {
        "channels": channels, "height": height, "across": across, "down": down,
    }  # fmt: skip


@KERNELS.add("convolve2d", rates=RATES)
def convolve2d(device: Device, call: Call, schedule: str = "", constants: dict[str, int] | None = None) -> Kernel:
    """x[h,w] kernel[p,q] -> out[i,j], or x[c,h,w] kernel[o,c,p,q] -> out[o,i,j]."""
    itemsize, guarded, same = call.dtype.itemsize, call.guarded, dict(call.static).get("mode", "valid") == "same"

    def plan(x: Shape, weights: Shape, out: Shape, wide: bool) -> Plan:
        if (len(x), len(weights), len(out)) not in ((2, 2, 2), (3, 4, 3)) or 0 in weights[-2:]:
            return None
        (h, w), (p, q) = x[-2:], weights[-2:]
        shape = (h, w) if same else (h - p + 1, w - q + 1)
        if not same and (p > h or q > w):
            return None
        if out != (*weights[:-3], *shape) or (len(x) == 3 and weights[1] != x[0]):
            return None
        if 0 in out:
            return []
        chosen, fixed, blocks, sizes = launch(x, weights, out, same, itemsize, device.sms, wide, schedule, constants)
        if max(*x, *weights, *out) > MOST or blocks >= 1 << 31:
            return None
        numbers = [sizes[n] for n in (TAPS if chosen == "taps" else PRODUCT)]
        return [ArrayLaunch(prepared(device, source(itemsize, chosen, guarded), fixed, blocks, numbers))]

    return called(device, plan, guarded, 2)


# ------------------------------------------------------------------------------------- catalogue


def _constants(schedule: str, P: int, Q: int, R: int, M: int, N: int, V: int) -> dict[str, int]:
    return {"P": P, "Q": Q, "R": R} if schedule == "taps" else {"M": M, "N": N, "V": V}


def _build(arch: str, *, schedule: str, itemsize: int, guarded: bool, **constants: int) -> Built:
    return build(source(itemsize, schedule, guarded), arch, tuple(_constants(schedule, **constants).items()))


def _sample(rng: np.random.Generator, *, schedule: str, itemsize: int, guarded: bool, **constants: int) -> Sample:
    """Mode same, of a kernel that is not square unless its size is fixed."""
    p, q = (constants["P"] or 5, constants["Q"] or 2) if schedule == "taps" else (3, 2)
    c, o, h, w = (2, 2, 21, 35) if schedule == "taps" else (3, constants["M"] + 3, 9, constants["N"] // 8 + 4)
    if itemsize == 8:  # which takes the emulator longer
        c, o = 1, min(o, 5)
    dtype = np.dtype(f"f{itemsize}")
    x, weights = (rng.standard_normal(s).astype(dtype) for s in ((c, h, w), (o, c, p, q)))
    padded = np.pad(x.astype(np.float64), [(0, 0), ((p - 1) // 2, p // 2), ((q - 1) // 2, q // 2)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (p, q), (1, 2))
    value, size = (
        np.einsum("chwpq,ocpq->ohw", f(windows), f(weights.astype(np.float64))) for f in (np.asarray, np.abs)
    )
    fixed = _constants(schedule, **constants)
    _, _, blocks, sizes = launch(x.shape, weights.shape, value.shape, True, itemsize, 1, True, schedule, fixed)
    operands: dict[str, Any] = {"x": x, "weights": weights, "out": np.full(value.shape, np.nan, dtype)}
    wants = {"out": Want(value, (prod(weights.shape[1:]) + 4) * np.finfo(dtype).eps * size)}
    if guarded:
        operands["status"] = np.zeros(1, np.uint32)
        wants["status"] = Want(np.zeros(1, np.uint32))
    return Sample((blocks, 1, 1), operands | sizes, wants)


CATALOGUE = [
    CatalogueEntry(
        "convolve2d",
        "convolutions",
        "cross-correlation of planes with zeros outside",
        _build,
        _sample,
        (
            Constant("schedule", "taps", "a tap at a time, or a matrix product", ("taps", "product")),
            ITEMSIZE,
            GUARDED,
            Constant("P", 3, "rows of the kernel, or 0 where the launch says it (`taps`)", tuple(range(LARGEST + 1))),
            Constant("Q", 3, "columns of the kernel, or 0 (`taps`)", tuple(range(LARGEST + 1))),
            Constant("R", 8, "rows of the result that a thread sums (`taps`)", powers(1, 16)),
            Constant("M", 64, "channels of a tile (`product`)", (64, 128)),
            Constant("N", 64, "places of a tile (`product`)", (64, 128)),
            Constant("V", 4, "elements a store, up to 16 bytes (`product`)", (1, 2, 4)),
        ),
        variants=(
            {},
            {"P": 7, "Q": 7},
            {"P": 3, "Q": 2, "R": 2, "itemsize": 8},
            {"P": 0, "Q": 0, "R": 2, "guarded": True},
            {"schedule": "product"},
            {"schedule": "product", "M": 128, "N": 128, "V": 1, "guarded": True},
            {"schedule": "product", "itemsize": 8, "V": 2},
        ),
    )
]
