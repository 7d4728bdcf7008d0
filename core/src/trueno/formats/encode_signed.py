"""Formats with a signed scale, found by search: q3_k q6_k; with an importance matrix q4_0 and q5_0 too.

A group tries inverse scales around that of its element of largest magnitude and keeps the one whose codes fit best
under weighted least squares; q3_k moves single codes instead.  A super-block then quantizes its groups' scales, and
rounds the codes again with the stored ones.
Source: make_qx_quants, make_q3_quants and their callers in ggml-quants.c of llama.cpp (MIT).
"""

import numpy as np

from trueno.formats.encode_arithmetic import (
    Floats,
    Importance,
    Ints,
    emphasis,
    half,
    in_blocks,
    in_lockstep,
    nearest_int,
    peak,
    total,
)
from trueno.formats.pack import Bytes, pack
from trueno.formats.table import Format

ZERO = np.float32(0)
EMPTY = np.float32(1e-15)
"""Groups below this in magnitude count as all zero."""


def search(x: Floats, w: Floats, nmax: int) -> tuple[Ints, Floats]:
    """Codes −nmax … nmax − 1, plus nmax, [n, s], and signed scale [s] of x[n, s] with weights w[n, s].

    Groups of zeros have scale 0 and codes of 0, not nmax.
    """
    signed, largest = peak(x)
    wx = w * x

    def codes_by(iscale: Floats) -> Ints:
        return np.clip(nearest_int(iscale * x), -nmax, nmax - 1)

    def sums(codes: Ints) -> tuple[Floats, Floats]:
        level = codes.astype(np.float32)
        return total(wx * level), total(w * level * level)

    best = codes_by(np.float32(-nmax) / signed)
    lx, l2 = sums(best)
    scale = np.where(l2 != 0, lx / l2, ZERO)
    gain = scale * lx
    for i in (*range(-9, 0), *range(1, 10)):
        codes = codes_by(-(np.float32(nmax) + np.float32(0.1) * np.float32(i)) / signed)
        lx, l2 = sums(codes)
        better = (l2 > 0) & (lx * lx > gain * l2)
        fitted = lx / l2
        np.copyto(best, codes, where=better)
        np.copyto(scale, fitted, where=better)
        np.copyto(gain, fitted * lx, where=better)
    zero = largest < EMPTY
    return np.where(zero, 0, best + nmax), np.where(zero, ZERO, scale)


def sweeps(x: Floats, nmax: int) -> tuple[Ints, Floats]:
    """As `search`, with weights x², by moving single codes while the fit improves, in five sweeps at most."""
    signed, largest = peak(x)
    codes = np.clip(nearest_int(np.float32(-nmax) / signed * x), -nmax, nmax - 1)
    w = x * x
    wx = w * x
    level = codes.astype(np.float32)
    sum_lx, sum_l2 = total(wx * level), total(w * level * level)
    for _ in range(5):
        before = codes.copy()
        for i in range(len(x)):
            old = codes[i].astype(np.float32)
            lx = sum_lx - wx[i] * old
            l2 = sum_l2 - w[i] * old * old
            code = np.clip(nearest_int(x[i] * l2 / lx), -nmax, nmax - 1)
            moved = (lx > 0) & (code != codes[i])
            new = code.astype(np.float32)
            lx = lx + wx[i] * new
            l2 = l2 + w[i] * new * new
            better = moved & (l2 > 0) & (lx * lx * sum_l2 > sum_lx * sum_lx * l2)
            np.copyto(codes[i], code, where=better)
            np.copyto(sum_lx, lx, where=better)
            np.copyto(sum_l2, l2, where=better)
        if np.array_equal(before, codes):
            break
    zero = largest < EMPTY
    return np.where(zero, 0, codes + nmax), np.where(zero | ~(sum_l2 > 0), ZERO, sum_lx / sum_l2)


def q3_k(f: Format, x: Floats, importance: Importance | None) -> Bytes:
    """Sixteen groups, six-bit scales."""
    groups = in_lockstep(x, f.group)
    if importance is None:
        codes, scale = sweeps(groups, f.bias)
        scale = in_lockstep(scale, f.groups)
        signed = peak(scale)[0]
        iscale = np.float32(-f.scale_bias) / signed
        some = signed != 0
        whole = (
            np.clip(nearest_int(iscale * scale).astype(np.int8).astype(np.int32), -f.scale_bias, f.scale_bias - 1)
            + f.scale_bias
        )
        scales, d = np.where(some, whole, 0), np.where(some, np.float32(1) / iscale, ZERO)
    else:
        by_block = in_lockstep(x, f.elements)
        mean = np.float32(2) * total(by_block * by_block) / np.float32(f.elements)
        w = emphasis(in_lockstep(importance.weights, f.group), groups, np.repeat(mean, f.groups))
        codes, scale = search(groups, w, f.bias)
        scales, d = search(in_lockstep(scale, f.groups), in_lockstep(total(w), f.groups), f.scale_bias)
    return _rounded_again(f, groups, codes, in_blocks(scales, f.groups), d)


def q6_k(f: Format, x: Floats, importance: Importance | None) -> Bytes:
    """Sixteen groups, eight-bit scales; a super-block of zeros is 210 bytes of zero."""
    groups = in_lockstep(x, f.group)
    w = groups * groups if importance is None else in_lockstep(importance.weights, f.group)
    codes, scale = search(groups, w, f.bias)
    scale = in_lockstep(scale, f.groups)
    signed, largest = peak(scale)
    iscale = np.float32(-128) / signed
    whole = np.minimum(nearest_int(iscale * scale), 127).astype(np.int8).astype(np.int32)
    blocks = _rounded_again(f, groups, codes, in_blocks(whole, f.groups), np.float32(1) / iscale)
    blocks[largest < EMPTY] = 0
    return blocks


def _rounded_again(f: Format, groups: Floats, codes: Ints, scales: Ints, d: Floats) -> Bytes:
    """Blocks with the scales [b, groups], and with codes rounded by the stored d, where that is not 0."""
    stored = half(d)
    step = stored.astype(np.float32)[:, None] * (scales - f.scale_bias).astype(np.float32)
    again = np.clip(nearest_int(groups / step.reshape(-1)), -f.bias, f.bias - 1) + f.bias
    codes = np.where(step.reshape(-1) != 0, again, codes)
    return pack(f, in_blocks(codes, f.elements), {f.d: stored}, scales)


def symmetric_weighted(f: Format, x: Floats, importance: Importance) -> Bytes:
    """q4_0, q5_0 under an importance matrix."""
    groups = in_lockstep(x, f.elements)
    w = emphasis(in_lockstep(importance.weights, f.elements), groups, importance.row_mean)
    codes, d = search(groups, w, f.bias)
    return pack(f, in_blocks(codes, f.elements), {"d": half(d)})
