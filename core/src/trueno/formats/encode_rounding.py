"""Formats whose scale comes from the block's extremes, and whose codes are rounded once: q4_0 q5_0, q4_1 q5_1.

Source: quantize_row_q4_0_ref and its siblings in ggml-quants.c of llama.cpp (MIT).
"""

import numpy as np

from trueno.formats.encode_arithmetic import (
    Floats,
    Ints,
    half,
    in_blocks,
    in_lockstep,
    lowest,
    peak,
    reciprocal,
    to_int,
)
from trueno.formats.pack import Bytes, pack
from trueno.formats.table import Format


def symmetric(f: Format, x: Floats) -> Bytes:
    """q4_0, q5_0: the element of largest magnitude gets code 0, which stands for −bias; so d has the other sign."""
    groups = in_lockstep(x, f.elements)
    d = peak(groups)[0] / np.float32(-f.bias)
    codes = _truncated(groups * reciprocal(d) + np.float32(f.bias + 0.5))
    return pack(f, in_blocks(np.minimum(codes, 2 * f.bias - 1), f.elements), {"d": half(d)})


def affine(f: Format, x: Floats) -> Bytes:
    """q4_1, q5_1: codes run from the block's least element to its greatest."""
    groups = in_lockstep(x, f.elements)
    top = (1 << f.code_bits) - 1
    least, most = lowest(groups), -lowest(-groups)
    d = (most - least) / np.float32(top)
    codes = _truncated((groups - least) * reciprocal(d) + np.float32(0.5))
    return pack(f, in_blocks(np.minimum(codes, top), f.elements), {"d": half(d), "m": half(least)})


def _truncated(x: Floats) -> Ints:
    """Toward zero, the low byte of the result, signed."""
    return to_int(x).astype(np.int8).astype(np.int32)
