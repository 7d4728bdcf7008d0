# mypy: disable-error-code="valid-type"
"""transpose: tiles through shared memory, so that reads and writes both run along rows.  Bits are copied.

Floor: each byte is read once and written once, so 2 · m · n · itemsize bytes and nothing else.

`vectors`: a thread reads V rows of 16 bytes, transposes them in registers, and writes V rows of 16 bytes.  In shared
memory a row's units of 16 bytes are permuted by an XOR, so that neither side has bank conflicts.
`elements`: any sizes and alignments, an element at a time; matrices of few columns or rows get tiles of that shape.
"""

from collections.abc import Iterator
from functools import cache
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
    bands,
    build,
    called,
    element,
    look,
    power,
    powers,
    prepared,
    status_parameter,
    tell,
    typed,
)
from trueno_cuda.kernels.table import KERNELS, RATES
from trueno_cuda.ptx import Builder, BuildError, Pointer, Source, Value, ptr, u32, u64
from trueno_cuda.ptx import Kernel as Built

THREADS = 256
TILE = 16384
"""Bytes of a tile: 16 a thread and access, and 8 to 13 tiles an SM."""
THIN = 32
"""Rows or columns up to which a tile takes their shape."""


def _place(k: Builder, across: Value, rows: int, columns: int) -> tuple[Value, Value]:
    """First row and column of this block's tile; tiles are numbered along x's rows."""
    return k.ctaid // across * rows, k.ctaid % across * columns


def _vectors(
    k: Builder, x: Pointer, y: Pointer, x_pitch: Value, y_pitch: Value, height: Value, width: Value, across: Value,
    status: Pointer | None = None,
) -> None:  # fmt: skip
    """y[j, i] = x[i, j]: V x V blocks of a 16 x 16 grid of threads; sizes and pitches are multiples of V."""
    kind = x.element
    vec = VECTOR // kind.bytes
    side = 16 * vec
    top, left = _place(k, across, side, side)
    x_pitch, y_pitch = k.multiple_of(x_pitch, vec), k.multiple_of(y_pitch, vec)
    tile = k.shared(kind, side, side)
    bits = k.var(u32, 0)

    column, down = k.tid % 16, k.tid // 16  # in units of V
    row, col = top + down * vec, left + column * vec
    source = x + (row.to(u64) * x_pitch + col.to(u64))
    loaded = []
    for _ in range(vec):
        loaded.append(source.load(0, vec=vec, where=(row < height) & (col < width), cache="nc"))
        source = source + x_pitch
    if status is not None:
        for value in (v for line in loaded for v in line):
            look(k, bits, value)
    for j in range(vec):  # row `column * V + j` of the tile that is written
        unit = (down ^ column) * vec
        tile.store((column * vec + j, unit), [line[j] for line in loaded])
    k.sync()

    row, col = left + down * vec, top + column * vec
    target = y + (row.to(u64) * y_pitch + col.to(u64))
    for j in range(vec):
        values = tile.load((down * vec + j, (column ^ down) * vec), vec=vec)
        target.store(0, values, where=(row < width) & (col < height))
        target = target + y_pitch
    if status is not None:
        tell(k, bits, status)


def _elements(
    k: Builder, x: Pointer, y: Pointer, x_pitch: Value, y_pitch: Value, height: Value, width: Value, across: Value,
    status: Pointer | None = None, *, R: int, C: int,
) -> None:  # fmt: skip
    """y[j, i] = x[i, j]: tiles of R rows and C columns of x, an element a lane."""
    kind = x.element
    if R * C < THREADS:
        raise BuildError(f"a tile of {R} x {C} elements leaves some of {THREADS} threads without one")
    top, left = _place(k, across, R, C)
    lanes = 128 // kind.bytes  # that the banks serve at a time
    # Rows in shared memory run along the tile's longer side, and are so much longer that no two lanes share a bank.
    turned = R >= THIN
    tile = k.shared(kind, C, R + max(lanes // C, 1)) if turned else k.shared(kind, R, C + max(lanes // R, 1))

    def place(i: Value, j: Value) -> tuple[Value, Value]:
        return (j, i) if turned else (i, j)

    bits = k.var(u32, 0)

    base = x + (top.to(u64) * x_pitch + left.to(u64))
    loaded = []
    for i, j in _walk(k, R, C):
        inside = (top + i < height) & (left + j < width)
        loaded.append((place(i, j), base.load(i.to(u64) * x_pitch + j.to(u64), where=inside, cache="nc")))
    for at, value in loaded:
        if status is not None:
            look(k, bits, value)
        tile.store(at, value)
    k.sync()
    base = y + (left.to(u64) * y_pitch + top.to(u64))
    for j, i in _walk(k, C, R):
        inside = (top + i < height) & (left + j < width)
        base.store(j.to(u64) * y_pitch + i.to(u64), tile.load(place(i, j)), where=inside)
    if status is not None:
        tell(k, bits, status)


def _walk(k: Builder, rows: int, columns: int) -> Iterator[tuple[Value, Value]]:
    """A thread's elements of a tile, neighbouring threads along its rows."""
    wide = min(columns, THREADS)
    row, column = k.tid // wide, k.tid % wide
    for first in range(0, rows, THREADS // wide):
        for along in range(0, columns, wide):
            yield row + first, column + along


@cache
def source(itemsize: int, vectors: bool, guarded: bool) -> Source:
    kind = ptr(element(itemsize))
    sizes = dict.fromkeys(("x_pitch", "y_pitch"), u64) | dict.fromkeys(("height", "width", "across"), u32)
    name = f"transpose_{'vectors' if vectors else 'elements'}_{kind.element}{'_guarded' if guarded else ''}"
    operands = {"x": kind, "y": kind, **status_parameter(guarded), **sizes}
    return typed(_vectors if vectors else _elements, name, THREADS, operands)


def tile(itemsize: int, m: int, n: int) -> tuple[int, int]:
    """Rows and columns of a tile of `elements` for a matrix of m rows and n columns."""
    count = TILE // itemsize
    if min(m, n) > THIN:
        return count // 64, 64
    thin = max(power(min(m, n)), 8)
    return (count // thin, thin) if n <= m else (thin, count // thin)


def launches(
    device: Device, m: int, n: int, itemsize: int, *, x_pitch: int = 0, y_pitch: int = 0, wide: bool = False,
    guarded: bool = False, schedule: str = "",
) -> list[ArrayLaunch]:  # fmt: skip
    """Launches that write the transpose of m rows of n elements; pitches: elements from row to row.

    wide: whether pointers are aligned to 16 bytes.  schedule: `vectors` or `elements`, where it is not to be chosen.
    """
    x_pitch, y_pitch = x_pitch or n, y_pitch or m
    vec = VECTOR // itemsize
    fits = wide and not (m % vec or n % vec or x_pitch % vec or y_pitch % vec)
    vectors = fits and min(m, n) >= THIN if not schedule else schedule == "vectors"
    rows, columns = (16 * vec, 16 * vec) if vectors else tile(itemsize, m, n)
    constants = {} if vectors else {"R": rows, "C": columns}
    planned = []
    for top, height in bands(m):
        for left, width in bands(n):
            across = -(-width // columns)
            numbers = (x_pitch, y_pitch, height, width, across)
            grid = -(-height // rows) * across
            launch = prepared(device, source(itemsize, vectors, guarded), constants, grid, numbers)
            offsets = ((top * x_pitch + left) * itemsize, (left * y_pitch + top) * itemsize)
            planned.append(ArrayLaunch(launch, offsets if any(offsets) else ()))
    return planned


@KERNELS.add("transpose", rates=RATES)
def transpose(device: Device, call: Call, schedule: str = "") -> Kernel:
    """x[m,n] -> y[n,m]."""
    itemsize, guarded = call.dtype.itemsize, call.guarded

    def plan(x: Shape, y: Shape, wide: bool) -> Plan:
        if len(x) != 2 or y != x[::-1]:
            return None
        return launches(device, *x, itemsize, wide=wide, guarded=guarded, schedule=schedule) if 0 not in x else []

    return called(device, plan, guarded, 1)


# ------------------------------------------------------------------------------------- catalogue


def _build(arch: str, *, schedule: str, itemsize: int, guarded: bool, R: int, C: int) -> Built:
    vectors = schedule == "vectors"
    return build(source(itemsize, vectors, guarded), arch, () if vectors else (("R", R), ("C", C)))


def _sample(rng: np.random.Generator, *, schedule: str, itemsize: int, guarded: bool, R: int, C: int) -> Sample:
    vec = VECTOR // itemsize
    rows, columns = (16 * vec, 16 * vec) if schedule == "vectors" else (R, C)
    m, n = rows + 3 * vec, columns + 5 * vec
    x = rng.standard_normal((m, n)).astype(f"f{itemsize}")
    operands: dict[str, Any] = {"x": x, "y": np.full((n, m), np.nan, x.dtype)}
    wants = {"y": Want(x.T.copy())}
    if guarded:
        x[m - 1, n - 1] = -np.inf
        wants = {"y": Want(x.T.copy()), "status": Want(np.array([2], np.uint32))}
        operands["status"] = np.zeros(1, np.uint32)
    across = -(-n // columns)
    operands |= {"x_pitch": n, "y_pitch": m, "height": m, "width": n, "across": across}
    return Sample((-(-m // rows) * across, 1, 1), operands, wants)


CATALOGUE = [
    CatalogueEntry(
        "transpose",
        "moves",
        "y[j,i] = x[i,j] through tiles in shared memory",
        _build,
        _sample,
        (
            Constant("schedule", "vectors", "16 bytes an access, or an element", ("vectors", "elements")),
            ITEMSIZE,
            GUARDED,
            Constant("R", 64, "rows of a tile of `elements`", powers(8, 512)),
            Constant("C", 64, "columns of a tile of `elements`", powers(8, 512)),
        ),
        variants=(
            {},
            {"itemsize": 8, "guarded": True},
            {"schedule": "elements", "guarded": True},
            {"schedule": "elements", "itemsize": 8, "R": 32},
            {"schedule": "elements", "R": 8, "C": 512},
            {"schedule": "elements", "R": 512, "C": 8},
        ),
    )
]
