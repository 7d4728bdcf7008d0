"""Formats whose codes are indices into a table of values: iq4_nl, iq4_xs, and mxfp4.

Source: quantize_row_iq4_nl_impl and quantize_row_mxfp4_ref in ggml-quants.c of llama.cpp (MIT).
"""

from functools import cache
from itertools import pairwise

import numpy as np

from trueno.formats.decode import scale
from trueno.formats.encode_arithmetic import (
    Floats,
    Importance,
    emphasis,
    half,
    in_blocks,
    in_lockstep,
    nearest_int,
    peak,
    reciprocal,
    total,
)
from trueno.formats.pack import Bytes, pack
from trueno.formats.table import Format

ZERO = np.float32(0)
TRIES = 7


@cache
def thresholds(values: tuple[int, ...]) -> Floats:
    """For ascending values: the least float32 that is as near to entry i + 1 as to entry i, both distances rounded."""
    limits = []
    table = np.array(values, np.float32)
    for low, high in pairwise(table):
        x = (low + high) / np.float32(2)
        while (below := np.nextafter(x, low)) - low >= high - below:
            x = below
        limits.append(x)
    return np.array(limits, np.float32)


def nearest_entry(values: tuple[int, ...], x: Floats) -> Bytes:
    """The index of the entry nearest to x, the greater of two equally near; the last for NaN."""
    indices = np.full(x.shape, len(values) - 1, np.uint8)
    for limit in thresholds(values):  # several times faster than numpy.searchsorted
        indices -= x < limit
    return indices


def search(values: tuple[int, ...], x: Floats, w: Floats) -> Floats:
    """The signed scale [s] of x[n, s], weights w[n, s]: the best of the inverse scales that map the element of largest
    magnitude near the first entry."""
    table = np.array(values, np.float32)
    signed, largest = peak(x)

    def sums(inverse: Floats) -> tuple[Floats, Floats]:
        q = table[nearest_entry(values, inverse * x)]
        wq = w * q
        return total(wq * x), total(wq * q)

    qx, q2 = sums(np.float32(1) / (-signed / table[0]))
    best = np.where(q2 > 0, qx / q2, ZERO)
    gain = best * qx
    for i in range(-TRIES, TRIES + 1):
        qx, q2 = sums((np.float32(i) + table[0]) / signed)
        better = (q2 > 0) & (qx * qx > gain * q2)
        fitted = qx / q2
        np.copyto(best, fitted, where=better)
        np.copyto(gain, fitted * qx, where=better)
    return np.where(largest < np.float32(1e-15), ZERO, best)


def iq4(f: Format, x: Floats, importance: Importance | None) -> Bytes:
    """iq4_nl, one group a block; iq4_xs, eight with six-bit scales."""
    n = f.group or f.elements
    groups = in_lockstep(x, n)
    if importance is None:
        w = groups * groups
    else:
        by_block = in_lockstep(x, f.elements)
        mean = total(by_block * by_block) * np.float32(2 / f.elements)
        w = emphasis(in_lockstep(importance.weights, n), groups, np.repeat(mean, f.groups))
    fitted = search(f.values, groups, w)
    if not f.scales:
        codes = nearest_entry(f.values, reciprocal(fitted) * groups)
        return pack(f, in_blocks(codes, n), {f.d: half(fitted)})
    by_group = in_lockstep(fitted, f.groups)
    d = -peak(by_group)[0] / np.float32(f.scale_bias)
    whole = np.clip(nearest_int(reciprocal(d) * by_group), -f.scale_bias, f.scale_bias - 1)
    step = in_blocks(d * whole.astype(np.float32), f.groups).reshape(-1)
    codes = nearest_entry(f.values, reciprocal(step) * groups)
    return pack(f, in_blocks(codes, f.elements), {f.d: half(d)}, in_blocks(whole + f.scale_bias, f.groups))


def mxfp4(f: Format, x: Floats) -> Bytes:
    """The scale is a power of two, two below that of the largest magnitude; codes are the nearest, the first of ties.

    A block below 2⁻¹²⁵ has no such scale: the exponent wraps around in ggml, and so it does here; all its elements
    then decode to zero, because the codes are those of a huge scale.
    """
    largest = np.abs(x).max(axis=1)
    exponent = np.floor(np.log2(largest.astype(np.float64)).astype(np.float32))
    e = np.where(largest > 0, exponent + np.float32(125), ZERO).astype(np.int32).astype(np.uint8)
    codes = np.zeros(x.shape, np.uint8)
    unit = scale(f, pack(f, codes, {f.d: e}))
    best = np.abs(np.float32(f.values[0]) * unit - x)
    for i, value in enumerate(f.values[1:], 1):
        error = np.abs(np.float32(value) * unit - x)
        better = error < best
        np.copyto(codes, np.uint8(i), where=better)
        np.copyto(best, error, where=better)
    return pack(f, codes, {f.d: e})
