# mypy: disable-error-code="valid-type"
"""embedding_lookup: rows of a table, copied as bits.

Floor: d · itemsize bytes are read and written for each index, and the index.  C threads copy a row, in accesses of 16
bytes where rows and pointers allow.  The op checks indices on the host where it can; one that is outside of the table
nevertheless reads nothing and gives a row of NaN, as on every GPU backend.  Rows of 16-bit floats are rows like others.
"""

from functools import cache
from math import nan, prod
from typing import Any

import numpy as np
from ml_dtypes import bfloat16
from trueno.backend import Call, Kernel

from trueno_cuda.catalogue.entry import GUARDED, CatalogueEntry, Constant, Sample, Want
from trueno_cuda.device.protocol import Device
from trueno_cuda.kernels.operands import (
    FLOATS,
    VECTOR,
    ArrayLaunch,
    Plan,
    Shape,
    bands,
    called,
    look,
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
UNROLL = 4
"""Accesses of a thread that are on their way at once."""
ALONG = (4, 16, 64, 256)
"""Threads that a row may have: few choices, since each is a build."""


def _lookup(
    k: Builder, table: Pointer, i: Pointer, out: Pointer, v: Value, pitch: Value, height: Value, width: Value,
    status: Pointer | None = None, *, V: int, C: int,
) -> None:  # fmt: skip
    """out[r, :] = table[i[r], :]: C threads a row, V elements an access; width and pitch are multiples of V."""
    row, lane = k.ctaid * (THREADS // C) + k.tid // C, k.tid % C * V
    pitch = k.multiple_of(pitch, V)
    bits = k.var(u32, 0)
    live = row < height
    index = i.load(row, where=live)
    inside = live & (index < v)  # as an unsigned number, which a negative one exceeds
    source, target = table + k.select(inside, index, 0) * pitch, out + row.to(u64) * pitch
    for start in k.range(0, width, UNROLL * C * V):
        columns = [start + lane + turn * C * V for turn in range(UNROLL)]
        rows = [source.load(c, vec=V, where=inside & (c < width), other=nan) for c in columns]
        for c, values in zip(columns, rows, strict=True):
            target.store(c, values, where=live & (c < width))
            if status is not None:
                for e in values:
                    look(k, bits, k.select(live & (c < width), e, 0.0))
    if status is not None:
        tell(k, bits, status)


@cache
def source(dtype: str, guarded: bool) -> Source:
    kind = ptr(FLOATS[dtype])
    sizes = {"v": u64, "pitch": u64, "height": u32, "width": u32}
    name = f"embedding_lookup_{kind.element}{'_guarded' if guarded else ''}"
    return typed(
        _lookup, name, THREADS, {"table": kind, "i": ptr(u64), "out": kind, **status_parameter(guarded), **sizes}
    )


def launches(device: Device, v: int, d: int, rows: int, dtype: str, *, wide: bool, guarded: bool) -> list[ArrayLaunch]:
    """Launches that copy a row of d elements for each index.  wide: whether pointers are aligned to 16 bytes."""
    itemsize = FLOATS[dtype].bytes
    vec = VECTOR // itemsize
    if not wide or d % vec:
        vec = 1
    along = next((c for c in ALONG if c * vec * UNROLL >= d), ALONG[-1])
    planned = []
    for first, height in bands(rows):
        for left, width in bands(d):
            grid = -(-height // (THREADS // along))
            numbers = (v, d, height, width)
            launch = prepared(device, source(dtype, guarded), {"V": vec, "C": along}, grid, numbers)
            offsets = (left * itemsize, first * 8, (first * d + left) * itemsize)
            planned.append(ArrayLaunch(launch, offsets if any(offsets) else ()))
    return planned


@KERNELS.add("embedding_lookup", rates=RATES, dtypes=tuple(FLOATS))
def embedding_lookup(device: Device, call: Call) -> Kernel:
    """table[v,d] i[...] -> out[...,d]."""
    dtype, guarded = call.dtype.name, call.guarded

    def plan(table: Shape, i: Shape, out: Shape, wide: bool) -> Plan:
        if len(table) != 2 or out != (*i, table[1]) or (table[0] == 0 and 0 not in out):
            return None
        return launches(device, *table, prod(i), dtype, wide=wide, guarded=guarded) if 0 not in out else []

    return called(device, plan, guarded, 2)


# ------------------------------------------------------------------------------------- catalogue


def _build(arch: str, *, dtype: str, guarded: bool, V: int, C: int) -> Built:
    return source(dtype, guarded).build(arch, V=V, C=C)


def _sample(rng: np.random.Generator, *, dtype: str, guarded: bool, V: int, C: int) -> Sample:
    v, d, rows = 50, (UNROLL * C + 3) * V, THREADS // C + 2
    table = rng.standard_normal((v, d)).astype(bfloat16 if dtype == "bfloat16" else dtype)
    i = rng.integers(0, v, rows)
    i[0] = v  # outside
    value = table[i % v]
    value[0] = np.nan if dtype != "bfloat16" else np.uint16(0x7FFF).view(bfloat16)  # of a constant in PTX
    operands: dict[str, Any] = {"table": table, "i": i, "out": np.zeros((rows, d), table.dtype)}
    wants = {"out": Want(value)}
    if guarded:
        operands["status"] = np.zeros(1, np.uint32)
        wants["status"] = Want(np.ones(1, np.uint32))
    operands |= {"v": v, "pitch": d, "height": rows, "width": d}
    return Sample((-(-rows // (THREADS // C)), 1, 1), operands, wants)


CATALOGUE = [
    CatalogueEntry(
        "embedding_lookup",
        "moves",
        "rows of a table by index; NaN for an index outside",
        _build,
        _sample,
        (
            Constant("dtype", "float32", "type of an element", tuple(FLOATS)),
            GUARDED,
            Constant("V", 4, "elements an access, up to 16 bytes", (1, 2, 4, 8)),
            Constant("C", 64, "threads that copy a row", powers(1, THREADS)),
        ),
        variants=(
            {},
            {"V": 1, "C": 4, "guarded": True},
            {"dtype": "float64", "V": 2, "C": 256},
            {"dtype": "bfloat16", "V": 8},
        ),
    )
]
