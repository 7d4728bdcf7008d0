"""Formats with a scale and a min, found by search: q2_k q4_k q5_k; with an importance matrix q4_1 and q5_1 too.

Each group tries a range of scales, fits (scale, min) to the codes of each try by weighted least squares, and keeps the
best; then the scales and mins of a super-block are quantized, and the codes are rounded again with the stored ones.
Source: make_qkx2_quants, make_qkx3_quants, make_qp_quants and their callers in ggml-quants.c of llama.cpp (MIT).
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
    lowest,
    nearest_int,
    total,
)
from trueno.formats.pack import Bytes, pack
from trueno.formats.table import Format, Pieces, Search


def search(x: Floats, w: Floats, nmax: int, tries: Search) -> tuple[Ints, Floats, Floats]:
    """Codes [n, s], scale [s] and −min [s] of groups x[n, s] with weights w[n, s]: x ≈ scale · code + min.

    min ≤ 0, so for groups with only positive numbers the range starts at zero.
    """
    sum_w = _running(w)
    sum_x = _running(w * x)
    bottom = lowest(x)
    top = -lowest(-x)
    np.copyto(bottom, 0, where=bottom > 0)
    flat = top == bottom

    def codes_by(iscale: Floats) -> Ints:
        return np.clip(nearest_int(iscale * (x - least)), 0, nmax)

    def error(codes: Floats, scale: Floats, least: Floats) -> Floats:
        diff = scale * codes + least - x
        return total(w * (np.abs(diff) if tries.absolute else diff * diff))

    least = bottom.copy()
    iscale = np.float32(nmax) / (top - least)
    scale = np.float32(1) / iscale
    best = codes_by(iscale)
    best_error = error(best.astype(np.float32), scale, least)
    for i in range(tries.last + 1):
        step = np.float32(tries.first) + np.float32(tries.step) * np.float32(i) + np.float32(nmax)
        codes = codes_by(step / (top - least))  # from the least that is best so far
        level = codes.astype(np.float32)
        wl = w * level
        sum_l, sum_l2, sum_xl = total(wl), total(wl * level), total(wl * x)
        det = sum_w * sum_l2 - sum_l * sum_l
        new_scale: Floats = np.divide(sum_w * sum_xl - sum_x * sum_l, det)
        new_least: Floats = np.divide(sum_l2 * sum_x - sum_l * sum_xl, det)
        over = new_least > 0  # a min is never positive: then the line goes through zero
        np.copyto(new_scale, sum_xl / sum_l2, where=over)
        np.copyto(new_least, 0, where=over)
        new_error = error(level, new_scale, new_least)
        better = (det > 0) & (new_error < best_error)
        np.copyto(best, codes, where=better)
        np.copyto(best_error, new_error, where=better)
        np.copyto(scale, new_scale, where=better)
        np.copyto(least, new_least, where=better)
    np.copyto(best, 0, where=flat)
    scale = np.where(flat, np.float32(0), scale)
    return best, scale, -np.where(flat, bottom, least)


def _running(terms: Floats) -> Floats:
    """Σ over the rows, starting from the first term and not from zero: −0 stays −0."""
    sums: Floats = terms[0].copy()
    for row in terms[1:]:
        sums += row
    return sums


def weighed(x: Floats, w: Floats, nmax: int) -> tuple[Ints, Floats]:
    """Codes 0 … nmax [n, s] and scale [s] of x[n, s] ≥ 0, x ≈ scale · code under the weights w[n, s].

    The best of nine inverse scales by squared error; then up to five sweeps, which move single codes while that
    brings scale · code nearer; the scale is that of least squares.
    """
    top = np.zeros(x.shape[1:], np.float32)
    for row in x:
        top = np.where(top > row, top, row)

    def mean_error(codes: Floats, scale: Floats) -> Floats:
        diff: Floats = x - scale * codes
        return total(w * diff * diff)

    iscale = np.float32(nmax) / top
    best_error = mean_error(_byte(nearest_int(iscale * x)).astype(np.float32), np.float32(1) / iscale)
    for i in (-4, -3, -2, -1, 1, 2, 3, 4):
        tried = (np.float32(0.1) * np.float32(i) + np.float32(nmax)) / top
        codes = np.minimum(nearest_int(tried * x), nmax).astype(np.float32)
        error = mean_error(codes, np.float32(1) / tried)
        better = error < best_error
        np.copyto(best_error, error, where=better)
        np.copyto(iscale, tried, where=better)

    first = np.minimum(nearest_int(iscale * x), nmax)
    best_codes = _byte(first)
    level = first.astype(np.float32)
    wx = w * x
    sum_lx, sum_l2 = total(wx * level), total(w * level * level)
    for _ in range(5):
        before = best_codes.copy()
        for i in range(len(x)):
            old = best_codes[i].astype(np.float32)
            lx = sum_lx - wx[i] * old
            l2 = sum_l2 - w[i] * old * old
            code = np.minimum(nearest_int(x[i] * l2 / lx), nmax)
            new = code.astype(np.float32)
            moved = (lx > 0) & (l2 > 0) & (code != best_codes[i])
            lx = lx + wx[i] * new
            l2 = l2 + w[i] * new * new
            better = moved & (lx * lx * sum_l2 > sum_lx * sum_lx * l2)
            np.copyto(best_codes[i], _byte(code), where=better)
            np.copyto(sum_lx, lx, where=better)
            np.copyto(sum_l2, l2, where=better)
        if np.array_equal(before, best_codes):
            break
    none = top < np.float32(1e-15)
    np.copyto(best_codes, 0, where=none)
    return best_codes, np.where(none | ~(sum_l2 > 0), np.float32(0), sum_lx / sum_l2)


def _byte(codes: Ints) -> Ints:
    """As an unsigned byte holds them."""
    return codes & 0xFF


def grouped(f: Format, x: Floats, importance: Importance | None) -> Bytes:
    """q2_k, q4_k, q5_k: groups with a quantized scale and a quantized min each."""
    nmax, smax = (1 << f.code_bits) - 1, (1 << sum(p.bits for p in f.scales[0])) - 1
    groups = in_lockstep(x, f.group)
    if importance is None:
        assert f.search is not None
        w = np.abs(groups)
        if not f.search.absolute:
            w += np.sqrt(total(groups * groups) / np.float32(f.group))
        codes, scale, depth = search(groups, w, nmax, f.search)
        quantized = [_by_largest(v.reshape(-1, f.groups), smax) for v in (scale, depth)]
    else:
        by_block = in_lockstep(x, f.elements)
        mean = np.float32(f.mean_squares) * total(by_block * by_block) / np.float32(f.elements)
        w = emphasis(in_lockstep(importance.weights, f.group), groups, np.repeat(mean, f.groups))
        codes, scale, depth = search(groups, w, nmax, f.weighted_search)
        by_group = in_lockstep(total(w), f.groups)
        quantized = []
        for v in (scale, depth):
            whole, unit = weighed(in_lockstep(v, f.groups), by_group, smax)
            quantized.append((in_blocks(whole, f.groups), unit))
    (scales, d), (mins, dmin) = quantized
    scales, mins = _as_stored(f, scales, mins, capped=f.capped[importance is not None])
    stored_d, stored_min = half(d), half(dmin)
    step = (stored_d.astype(np.float32)[:, None] * scales.astype(np.float32)).reshape(-1)
    down = (stored_min.astype(np.float32)[:, None] * mins.astype(np.float32)).reshape(-1)
    again = np.clip(nearest_int((groups + down) / step), 0, nmax)
    np.copyto(codes, again, where=step != 0)  # where it is 0, the codes of the search stay: they have no effect
    return pack(f, in_blocks(codes, f.elements), {f.d: stored_d, f.m: stored_min}, scales, mins)


def _by_largest(v: Floats, smax: int) -> tuple[Ints, Floats]:
    """Integers 0 … smax [b, groups] and their unit [b]; smax stands for the largest of v[b, groups]."""
    largest = np.fmax.reduce(v, axis=1, initial=0)
    some = largest > 0
    inverse = np.where(some, np.float32(smax) / largest, np.float32(0))
    return _byte(nearest_int(inverse[:, None] * v)), np.where(some, largest / np.float32(smax), np.float32(0))


def _as_stored(f: Format, scales: Ints, mins: Ints, capped: bool) -> tuple[Ints, Ints]:
    """The bytes of the scales and mins [b, groups], cut to the bits that a block has for them.

    They fit, with one exception: if one element has all the weight of a group, its line is rounding noise, a scale may
    come out negative and wraps to a byte above 63.  Then ggml cuts it to 63 in q5_k, and in q4_k without an importance
    matrix; otherwise its upper bits overwrite bits of the number that shares its byte.  This code does the same.
    """
    smax = (1 << sum(p.bits for p in f.scales[0])) - 1
    if capped:
        return np.minimum(scales, smax), np.minimum(mins, smax)
    pieces: Pieces = (*f.scales, *f.mins)
    numbers = np.concatenate([scales, mins], axis=1)
    stored = numbers.copy()
    whole = {own[0].byte: (i, own[0]) for i, own in enumerate(pieces) if len(own) == 1 and not own[0].shift}
    for i, parts in enumerate(pieces):
        for p in parts:
            above, own = whole.get(p.byte, (i, p))
            if above != i and p.shift >= own.bits:
                stored[:, i] |= (numbers[:, above] >> p.shift & (1 << p.bits) - 1) << p.to
    return stored[:, : f.groups] & smax, stored[:, f.groups :] & smax


def affine_weighted(f: Format, x: Floats, importance: Importance) -> Bytes:
    """q4_1, q5_1 under an importance matrix."""
    groups = in_lockstep(x, f.elements)
    w = emphasis(in_lockstep(importance.weights, f.elements), groups, importance.row_mean)
    codes, scale, depth = search(groups, w, (1 << f.code_bits) - 1, f.weighted_search)
    return pack(f, in_blocks(codes, f.elements), {"d": half(scale), "m": half(-depth)})
