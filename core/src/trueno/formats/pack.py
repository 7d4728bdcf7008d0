"""Codes, scales and fields into blocks: the inverse of `decode.py`, by the same table."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.formats.table import Format, Pieces

Bytes = npt.NDArray[np.uint8]


def pack(
    f: Format,
    codes: npt.NDArray[Any],
    fields: Mapping[str, npt.NDArray[Any]],
    scales: npt.NDArray[Any] | None = None,
    mins: npt.NDArray[Any] | None = None,
) -> Bytes:
    """Blocks, uint8 [n, nbytes]; the inverse of decoding.

    codes: each element's code as it is stored (bias added), [n, elements]; of an integer dtype, of which the low eight
    count.  fields: name to values [n] or [n, count], already rounded.  scales, mins: each group's integer
    as it is stored (bias added), [n, groups].  Bits that do not fit the field are dropped.
    """
    blocks = np.zeros((len(codes), f.nbytes), np.uint8)
    for name, values in fields.items():
        spec = f.fields[name]
        raw = np.ascontiguousarray(values.reshape(len(codes), spec.count), spec.dtype)
        blocks[:, spec.offset : spec.offset + spec.nbytes] = raw.view(np.uint8)
    _spread(f, blocks, codes.astype(np.uint8))
    if scales is not None:
        _scatter(blocks, f.scales, scales.astype(np.uint8))
    if mins is not None:
        _scatter(blocks, f.mins, mins.astype(np.uint8))
    return blocks


def _spread(f: Format, blocks: Bytes, codes: Bytes) -> None:
    """The bits of the codes into the planes."""
    for plane in f.planes:
        spec = f.fields[plane.field]
        part = (codes >> np.uint8(plane.to)) & np.uint8((1 << plane.bits) - 1)
        shift = (np.arange(plane.ways, dtype=np.uint8) * np.uint8(plane.bits % 8))[:, None]
        packed = np.bitwise_or.reduce(part.reshape(len(codes), -1, plane.ways, plane.run) << shift, axis=2)
        blocks[:, spec.offset : spec.offset + spec.nbytes] = packed.reshape(len(codes), -1)


def _scatter(blocks: Bytes, pieces: Pieces, numbers: Bytes) -> None:
    """The bits of each group's number into the bytes that hold its pieces."""
    for g, parts in enumerate(pieces):
        for p in parts:
            part = (numbers[:, g] >> np.uint8(p.to)) & np.uint8((1 << p.bits) - 1)
            blocks[:, p.byte] |= part << np.uint8(p.shift)
