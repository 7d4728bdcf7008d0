"""Parts of matrices whose blocks stay whole, and columns of a block that become exactly zero."""

from itertools import pairwise
from typing import Any

import numpy as np
import trueno
from trueno.backend import format_of


def even(total: int, count: int, unit: int = 1) -> list[slice]:
    """`count` parts of so many numbers, in whole units."""
    return [slice(*two) for two in pairwise([*(round(i * total / count / unit) * unit for i in range(count)), total])]


def around(part: slice, unit: int) -> slice:
    """The whole units that a part has something of."""
    return slice(part.start // unit * unit, -(-part.stop // unit) * unit)


def apart(form: str) -> int:
    """How many neighbouring columns can become zero without the others; 0 where none can.  form: "" of floats."""
    if not form:
        return 1
    f = format_of(form)
    return 0 if f.e8m0 else f.group or f.elements  # a power of two is never zero


def cleared(matrix: Any, kept: slice) -> Any:
    """A matrix whose columns outside of `kept` are exactly zero, and whose others have the same bits.

    In blocks the scales and mins of those columns become zero.  Nothing is quantized again.
    """
    rows, width = matrix.shape
    if not isinstance(matrix, trueno.QuantizedMatrix):
        x = np.zeros_like(matrix)
        x[:, kept] = matrix[:, kept]
        return x
    f, unit = format_of(matrix.format), apart(matrix.format)
    data = np.array(matrix.bytes).reshape(rows, -1, f.nbytes)
    for column in (*range(0, kept.start, unit), *range(kept.stop, width, unit)):
        block, group = data[:, column // f.elements], column % f.elements // unit
        for pieces, zero in ((f.scales, f.scale_bias), (f.mins, 0)):
            for p in pieces[group] if pieces else ():
                mask = (1 << p.bits) - 1
                block[:, p.byte] &= 255 ^ mask << p.shift
                block[:, p.byte] |= (zero >> p.to & mask) << p.shift
        for name in (f.d, f.m) if not f.scales else ():  # the block is the group
            if name:
                block[:, f.fields[name].offset : f.fields[name].offset + f.fields[name].nbytes] = 0
    return trueno.QuantizedMatrix(data.reshape(rows, -1), matrix.shape, matrix.format)
