"""Blocks to float32 in NumPy, bit for bit as ggml: one decoder, which reads every layout from the table."""

from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.formats.interleave import plain
from trueno.formats.table import Format, Pieces

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def field(f: Format, blocks: Bytes, name: str) -> npt.NDArray[Any]:
    """Field `name` of blocks[n, nbytes] in its own dtype: [n, count]."""
    spec = f.fields[name]
    raw = np.ascontiguousarray(blocks[:, spec.offset : spec.offset + spec.nbytes])
    return raw.view(spec.dtype)


def codes(f: Format, blocks: Bytes) -> Bytes:
    """The code of each element: uint8 [n, elements]."""
    n = len(blocks)
    result = np.zeros((n, f.elements), np.uint8)
    for plane in f.planes:
        spec = f.fields[plane.field]
        raw = blocks[:, spec.offset : spec.offset + spec.nbytes].reshape(n, -1, 1, plane.run)
        shift = (np.arange(plane.ways, dtype=np.uint8) * np.uint8(plane.bits % 8))[:, None]
        part = (raw >> shift) & np.uint8((1 << plane.bits) - 1)
        result |= part.reshape(n, f.elements) << np.uint8(plane.to)
    return result


def values(f: Format, blocks: Bytes) -> npt.NDArray[np.int16]:
    """The value of the code of each element: int16 [n, elements]."""
    stored = codes(f, blocks)
    if f.values:
        return np.array(f.values, np.int16)[stored]
    if f.signed:
        return stored.view(np.int8).astype(np.int16)
    return stored.astype(np.int16) - np.int16(f.bias)


def _gathered(blocks: Bytes, pieces: Pieces) -> Bytes:
    numbers = np.zeros((len(blocks), len(pieces)), np.uint8)
    for g, parts in enumerate(pieces):
        for p in parts:
            numbers[:, g] |= ((blocks[:, p.byte] >> np.uint8(p.shift)) & np.uint8((1 << p.bits) - 1)) << np.uint8(p.to)
    return numbers


def group_scales(f: Format, blocks: Bytes) -> npt.NDArray[np.int16]:
    """The integer that scales each group: int16 [n, groups]; ones where a block has one scale."""
    if not f.scales:
        return np.ones((len(blocks), 1), np.int16)
    stored = _gathered(blocks, f.scales)
    if f.scale_signed:
        return stored.view(np.int8).astype(np.int16)
    return stored.astype(np.int16) - np.int16(f.scale_bias)


def group_mins(f: Format, blocks: Bytes) -> Bytes:
    """The integer that scales each group's min: uint8 [n, groups], for formats that have mins."""
    return _gathered(blocks, f.mins)


def scale(f: Format, blocks: Bytes) -> Floats:
    """The block's scale d: float32 [n, 1]."""
    raw = field(f, blocks, f.d)
    if f.e8m0:  # 2^(d − 128); the two smallest are subnormal in float32
        e = raw.astype(np.uint32)
        return np.where(e < 2, np.uint32(0x00200000) << np.minimum(e, 1), (e - np.minimum(e, 1)) << 23).view(np.float32)
    return raw.astype(np.float32)


def offsets(f: Format, blocks: Bytes) -> Floats | None:
    """The offset of each group: float32 [n, groups], or None in formats without one."""
    if not f.m:
        return None
    m = field(f, blocks, f.m).astype(np.float32)
    return -(m * group_mins(f, blocks).astype(np.float32)) if f.mins else m


def decode(f: Format, data: Bytes) -> Floats:
    """Rows of blocks, uint8 [..., row_bytes], as float32 [..., row_bytes / nbytes · elements].

    Bit-identical with ggml's dequantize_row functions.  NaN and Inf in a scale give what IEEE 754 says.
    Where rows are interleaved (`f.plain`), data is the whole matrix, or begins and ends at a group of rows.
    """
    shape = (*data.shape[:-1], f.row_elements(data.shape[-1]))
    if not data.size:
        return np.empty(shape, np.float32)
    if f.cells:
        return _floats(f, np.ascontiguousarray(data)).reshape(shape)
    if f.plain:
        data = plain(data.reshape(-1, data.shape[-1]), f)
    blocks = data.reshape(-1, f.nbytes)
    with np.errstate(all="ignore"):
        factor = scale(f, blocks) * group_scales(f, blocks).astype(np.float32)
        y = values(f, blocks).reshape(len(blocks), f.groups, -1).astype(np.float32)
        y *= factor[:, :, None]
        added = offsets(f, blocks)
        if added is not None:
            y += added[:, :, None]
    return y.reshape(shape)


def _floats(f: Format, data: Bytes) -> Floats:
    cells = data.view(f.fields[f.d].dtype)
    if f.name == "bf16":  # the upper half of a float32
        return (cells.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return cells.astype(np.float32)


def stored(f: Format, x: Floats) -> Bytes:
    """x[..., k] as rows of a format of one float an element, each rounded to nearest even: uint8 [..., row_bytes]."""
    x = np.ascontiguousarray(x, np.float32)
    if f.name == "bf16":
        bits = x.view(np.uint32)
        nearest = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
        bits = np.where(np.isnan(x), bits | np.uint32(0x400000), nearest)
        cells: npt.NDArray[Any] = (bits >> np.uint32(16)).astype("<u2")
    else:
        with np.errstate(all="ignore"):
            cells = x.astype(f.fields[f.d].dtype)
    return cells.view(np.uint8).reshape(*x.shape[:-1], f.row_bytes(x.shape[-1]))
