# mypy: disable-error-code="valid-type"
"""outer: one product per element.

Floor: the result is written once, m · n · itemsize bytes; x and y stay in the caches.  A thread keeps V elements of y
in registers and multiplies them with R elements of x, so a row's products take a load of 4 bytes, V multiplications and
one store of 16 bytes.
"""

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
from trueno_cuda.ptx import Builder, Pointer, Source, Value, ptr, u32, u64
from trueno_cuda.ptx import Kernel as Built

THREADS = 256
ROWS = 8
"""Rows of a thread."""


def _outer(
    k: Builder, x: Pointer, y: Pointer, out: Pointer, pitch: Value, height: Value, width: Value, across: Value,
    status: Pointer | None = None, *, V: int, C: int,
) -> None:  # fmt: skip
    """out[i, j] = x[i] * y[j]: C threads along a row, V elements each; width and pitch are multiples of V."""
    high = THREADS // C
    first, column = k.ctaid // across * (high * ROWS) + k.tid // C, (k.ctaid % across * C + k.tid % C) * V
    pitch = k.multiple_of(pitch, V)
    bits = k.var(u32, 0)
    live = column < width
    right = y.load(column, vec=V, where=live)
    left = [x.load(row, where=row < height) for row in (first + r * high for r in range(ROWS))]
    base = out + (first.to(u64) * pitch + column.to(u64))
    for r, factor in enumerate(left):
        products = [factor * e for e in right]
        base.store(0, products, where=live & (first + r * high < height))
        base = base + pitch * high
        if status is not None:
            inside = live & (first + r * high < height)
            for e in products:
                look(k, bits, k.select(inside, e, 0.0))
    if status is not None:
        tell(k, bits, status)


@cache
def source(itemsize: int, guarded: bool) -> Source:
    kind = ptr(element(itemsize))
    sizes = {"pitch": u64, "height": u32, "width": u32, "across": u32}
    name = f"outer_{kind.element}{'_guarded' if guarded else ''}"
    return typed(_outer, name, THREADS, {"x": kind, "y": kind, "out": kind, **status_parameter(guarded), **sizes})


def launches(device: Device, m: int, n: int, itemsize: int, *, wide: bool, guarded: bool) -> list[ArrayLaunch]:
    """Launches that write m rows of n products.  wide: whether pointers are aligned to 16 bytes."""
    vec = VECTOR // itemsize
    if not wide or n % vec:
        vec = 1
    along = min(power(-(-n // vec)), THREADS)
    planned = []
    for top, height in bands(m):
        for left, width in bands(n):
            across = -(-width // (along * vec))
            grid = -(-height // (THREADS // along * ROWS)) * across
            numbers = (n, height, width, across)
            launch = prepared(device, source(itemsize, guarded), {"V": vec, "C": along}, grid, numbers)
            offsets = (top * itemsize, left * itemsize, (top * n + left) * itemsize)
            planned.append(ArrayLaunch(launch, offsets if any(offsets) else ()))
    return planned


@KERNELS.add("outer", rates=RATES)
def outer(device: Device, call: Call) -> Kernel:
    """x[m] y[n] -> out[m,n]."""
    itemsize, guarded = call.dtype.itemsize, call.guarded

    def plan(x: Shape, y: Shape, out: Shape, wide: bool) -> Plan:
        if len(x) != 1 or len(y) != 1 or out != x + y:
            return None
        return launches(device, *out, itemsize, wide=wide, guarded=guarded) if 0 not in out else []

    return called(device, plan, guarded, 2)


# ------------------------------------------------------------------------------------- catalogue


def _build(arch: str, *, itemsize: int, guarded: bool, V: int, C: int) -> Built:
    return source(itemsize, guarded).build(arch, V=V, C=C)


def _sample(rng: np.random.Generator, *, itemsize: int, guarded: bool, V: int, C: int) -> Sample:
    m, n = THREADS // C * ROWS + 3, (C + C // 2 + 1) * V
    x, y = (rng.standard_normal(size).astype(f"f{itemsize}") for size in (m, n))
    operands: dict[str, Any] = {"x": x, "y": y, "out": np.full((m, n), np.nan, x.dtype)}
    wants = {"out": Want(np.multiply.outer(x, y))}  # one rounding, so the bits are known
    if guarded:
        operands["status"] = np.zeros(1, np.uint32)
        wants["status"] = Want(np.zeros(1, np.uint32))
    across = -(-n // (C * V))
    operands |= {"pitch": n, "height": m, "width": n, "across": across}
    return Sample((-(-m // (THREADS // C * ROWS)) * across, 1, 1), operands, wants)


CATALOGUE = [
    CatalogueEntry(
        "outer",
        "moves",
        "out[i,j] = x[i] * y[j], y in registers",
        _build,
        _sample,
        (
            ITEMSIZE,
            GUARDED,
            Constant("V", 4, "elements an access, up to 16 bytes", (1, 2, 4)),
            Constant("C", 256, "threads along a row", powers(1, THREADS)),
        ),
        variants=({}, {"V": 1, "C": 4, "guarded": True}, {"itemsize": 8, "V": 2, "C": 32}),
    )
]
