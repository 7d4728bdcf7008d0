# mypy: disable-error-code="valid-type"
"""Keys and values as tensor cores take them: rows of whole 16 bytes, and float32 in bfloat16 parts.

A plane holds one part of every number: the first the rounded ones, the next what that leaves, rounded.  Rows of each
are widened to a multiple of 16 elements with zeros.  The parts of values are brought to the first one's magnitude, 2^8
times larger each than the one before, so that those of subnormal numbers keep their bits and those of the largest do
not overflow; weights are divided by as much.

Floor: each number is read once, and written in as many parts as wanted: 10 bytes of a float32 in three.
"""

from functools import cache
from typing import Any

from trueno_cuda.kernels.operands import FLOATS, typed
from trueno_cuda.ptx import Builder, Pointer, Source, Value, bf16, f16, f32, ptr, u32, u64
from trueno_cuda.ptx.types import PACKS

THREADS = 256
UNIT = 8
"""16-bit elements of 16 bytes."""
STEP = 2.0**8
"""From one part of a value to the next: what is left of a rounded number is at most 2^-8 of it."""


def _planes(
    k: Builder, x: Pointer, y: Pointer, out_x: Pointer, out_y: Pointer, x_rows: Value, y_rows: Value, x_wide: Value,
    y_wide: Value, x_padded: Value, y_padded: Value, *, PX: int, PY: int, V: int,
) -> None:  # fmt: skip
    """Parts of the rows of two arrays, the first by blocks with 0 along y, the second by those with 1."""
    number = k.ctaid * THREADS + k.tid
    with k.when(k.ctaid_y == 0):
        _part(k, x, out_x, x_rows, x_wide, x_padded, number, PX, 1.0, V)
    with k.when(k.ctaid_y == 1):
        _part(k, y, out_y, y_rows, y_wide, y_padded, number, PY, STEP, V)


def _part(
    k: Any, x: Any, out: Any, rows: Value, wide: Value, padded: Value, number: Value, parts: int, step: float, V: int
) -> None:
    """Eight neighbours of a row."""
    padded = k.multiple_of(padded, 2 * UNIT)
    across = padded // UNIT
    row, column = number // across, number % across * UNIT
    live, half, width = row < rows, out.element, min(V, 16 // x.element.bytes)
    line = x + k.multiple_of(row.to(u64) * wide.to(u64), V)
    values = []
    for i in range(0, UNIT, width):
        loaded = line.load(column + i, vec=width, where=live & (column + i < wide))
        values += [v if v.type is f32 or parts == 1 else v.to(f32) for v in loaded]
    to = out.cast(u32) + k.multiple_of(row.to(u64) * padded.to(u64) // 2, UNIT)
    plane = k.multiple_of(rows.to(u64) * padded.to(u64) // 2, UNIT)
    for i in range(parts):
        packed = [k.pack(PACKS[half.name], *values[j : j + 2]) for j in range(0, UNIT, 2)]
        (to + plane * i).store(k.multiple_of(column // 2, 4), [w.bits(u32) for w in packed], where=live)
        if i + 1 < parts:
            back = [v for w in packed for v in k.unpack(w, f32)]
            values = [(v - b) * step for v, b in zip(values, back, strict=True)]


@cache
def source(dtype: str) -> Source:
    """Of elements of this type: float32 in parts of bfloat16, 16-bit floats as they are."""
    element = FLOATS[dtype]
    kind, to = ptr(element), ptr(element if element in (bf16, f16) else bf16)
    sizes = dict.fromkeys(("x_rows", "y_rows", "x_wide", "y_wide", "x_padded", "y_padded"), u32)
    return typed(
        _planes, f"attention_planes_{element}", THREADS, {"x": kind, "y": kind, "out_x": to, "out_y": to, **sizes}
    )
