# mypy: disable-error-code="valid-type"
"""concatenate: a thread copies vectors of the result from where they are stored, in a or in b.

Floor: each byte is read once and written once.  A row of the result is a row of a and then one of b, where a row is all
behind the axis; vectors are as wide as both rows and the pointers allow, so that none has parts of both.
"""

from functools import cache
from math import prod
from typing import Any

import numpy as np
from ml_dtypes import bfloat16
from trueno.backend import Call, Kernel
from trueno.errors import ShapeError

from trueno_cuda.catalogue.entry import GUARDED, CatalogueEntry, Constant, Sample, Want
from trueno_cuda.device.protocol import ArrayLaunch, Device
from trueno_cuda.kernels.operands import (
    FLOATS,
    REACH,
    VECTOR,
    Plan,
    Shape,
    called,
    look,
    prepared,
    status_parameter,
    tell,
    typed,
)
from trueno_cuda.kernels.table import KERNELS, RATES
from trueno_cuda.ptx import Builder, Pointer, Source, Value, ptr, u32
from trueno_cuda.ptx import Kernel as Built

THREADS = 256
UNROLL = 4
"""Vectors of a thread that are on their way at once."""


def _concatenate(
    k: Builder, a: Pointer, b: Pointer, out: Pointer, count: Value, first: Value, second: Value,
    status: Pointer | None = None, *, V: int, ONE: bool,
) -> None:  # fmt: skip
    """`count` vectors of the result, whose rows are `first` vectors of a and `second` of b.  ONE: it is one row."""
    whole, bits = first + second, k.var(u32, 0)
    loaded = []
    for turn in range(UNROLL):
        at = k.ctaid * (THREADS * UNROLL) + k.tid + turn * THREADS
        live = at < count
        row, column = (None, at) if ONE else (at // whole, at % whole)
        of_a = column < first
        left, right = column, column - first
        if row is not None:
            left, right = left + row * first, right + row * second
        values = a.load(left * V, vec=V, where=live & of_a)
        others = b.load(right * V, vec=V, where=live & ~of_a)
        loaded.append((at, live, [k.select(of_a, p, q) for p, q in zip(values, others, strict=True)]))
    for at, live, values in loaded:
        out.store(at * V, values, where=live)
        if status is not None:
            for value in values:
                look(k, bits, k.select(live, value, 0.0))
    if status is not None:
        tell(k, bits, status)


@cache
def source(dtype: str, guarded: bool) -> Source:
    kind = ptr(FLOATS[dtype])
    name = f"concatenate_{kind.element}{'_guarded' if guarded else ''}"
    pointers = {"a": kind, "b": kind, "out": kind, **status_parameter(guarded)}
    return typed(_concatenate, name, THREADS, pointers | dict.fromkeys(("count", "first", "second"), u32))


def launches(
    device: Device, rows: int, first: int, second: int, dtype: str, *, aligned: bool, guarded: bool
) -> list[ArrayLaunch]:
    """Launches on (a, b, out): rows of `first` and `second` elements.  aligned: all pointers, to 16 bytes."""
    itemsize = FLOATS[dtype].bytes
    vec = VECTOR // itemsize if aligned else 1
    while first % vec or second % vec:
        vec //= 2
    whole, most = (first + second) // vec, REACH // VECTOR

    def part(a: int, b: int, to: int, rows: int, first: int, second: int) -> ArrayLaunch:
        """Places in elements, sizes in vectors."""
        count = rows * (first + second)
        grid, constants = -(-count // (THREADS * UNROLL)), {"V": vec, "ONE": rows == 1}
        launch = prepared(device, source(dtype, guarded), constants, grid, (count, first, second))
        return ArrayLaunch(launch, tuple(place * itemsize for place in (a, b, to)))

    if whole <= most:
        each = most // whole
        return [
            part(r * first, r * second, r * whole * vec, min(each, rows - r), first // vec, second // vec)
            for r in range(0, rows, each)
        ]
    planned = []
    for r in range(rows):
        for of_a, size in ((True, first), (False, second)):
            for at in range(0, size, most * vec):
                to, some = r * whole * vec + at + (0 if of_a else first), min(most, (size - at) // vec)
                place = r * size + at
                planned.append(part(place, 0, to, 1, some, 0) if of_a else part(0, place, to, 1, 0, some))
    return planned


@KERNELS.add("concatenate", rates=RATES, dtypes=tuple(FLOATS))
def concatenate(device: Device, call: Call) -> Kernel:
    """Two arrays with one shape but along the axis."""
    static, dtype, guarded = dict(call.static), call.dtype.name, call.guarded

    def plan(a: Shape, b: Shape, out: Shape, aligned: bool) -> Plan:
        try:
            if (out,) != call.op.result_shapes((a, b), static):
                return None
        except ShapeError:
            return None
        at = static["axis"] % len(a)
        sizes = prod(a[:at]), prod(a[at:]), prod(b[at:])
        return launches(device, *sizes, dtype, aligned=aligned, guarded=guarded) if 0 not in out else []

    return called(device, plan, guarded, 2)


# ------------------------------------------------------------------------------------- catalogue


def _build(arch: str, *, dtype: str, guarded: bool, V: int, ONE: bool) -> Built:
    return source(dtype, guarded).build(arch, V=V, ONE=ONE)


def _sample(rng: np.random.Generator, *, dtype: str, guarded: bool, V: int, ONE: bool) -> Sample:
    """Rows of some vectors of a and fewer of b."""
    rows, first, second = (1, 900, 300) if ONE else (40, 20, 9)
    kind = np.dtype(bfloat16 if dtype == "bfloat16" else dtype)
    a, b = (rng.standard_normal((rows, n * V)).astype(kind) for n in (first, second))
    value = np.concatenate((a, b), -1)
    count = rows * (first + second)
    operands: dict[str, Any] = {"a": a, "b": b, "out": np.zeros(value.shape, kind)}
    operands |= {"count": count, "first": first, "second": second}
    wants = {"out": Want(value)}
    if guarded:
        operands["status"] = np.zeros(1, np.uint32)
        wants["status"] = Want(np.zeros(1, np.uint32))
    return Sample((-(-count // (THREADS * UNROLL)), 1, 1), operands, wants)


CATALOGUE = [
    CatalogueEntry(
        "concatenate",
        "moves",
        "two arrays joined along an axis",
        _build,
        _sample,
        (
            Constant("dtype", "float32", "type of an element", tuple(FLOATS)),
            GUARDED,
            Constant("V", 4, "elements an access, up to 16 bytes", (1, 2, 4, 8)),
            Constant("ONE", False, "one row: joined along the first axis", (False, True)),
        ),
        variants=(
            {},
            {"ONE": True, "guarded": True, "V": 1},
            {"dtype": "float64", "V": 2, "ONE": True},
            {"dtype": "bfloat16", "V": 8},
        ),
    )
]
