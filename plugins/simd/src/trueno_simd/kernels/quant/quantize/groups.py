"""Encoders of blocks of 256 elements, in groups with separate scales.

Three steps.  Sixteen groups at a time, the search (`search`), in lanes.  Then, for each block, the scales of
its groups as whole numbers and its own scale as float16; with an importance matrix that is a search too, eight blocks
at a time.  Last the codes, in the order of the elements, from the scales as they were rounded; only where such a scale
became 0 do the codes of the search stand.  Here the first step, and q2_k, q4_k, q5_k.
"""

from typing import Any

import numpy as np
from trueno.backend import FORMATS

from trueno_simd.kernels.quant.halves import half_bits, half_float
from trueno_simd.kernels.quant.quantize import search
from trueno_simd.kernels.quant.quantize.batch import (
    I32,
    ROW,
    as_ints,
    gathered,
    gathered_columns,
    integer,
    matrix_weights,
    nearest,
    number,
    put_codes,
    put_int,
    squares,
    weights_of,
)
from trueno_simd.kernels.quant.quantize.blocks import as_half, to_bytes
from trueno_simd.kernels.quant.quantize.encoders import encodes
from trueno_simd.kernels.quant.quantize.search import LANES, MAGIC, ZERO, load, rounded, spread
from trueno_simd.kernels.quant.quantize.store import codes_of, compact, job, room, scales_of
from trueno_simd.llvm.jit import exact, exact_outer
from trueno_simd.llvm.vectors import with_lane, write

UNIT = 8  # blocks that go through the three steps together


def first_step(format: str, weighted: bool) -> Any:
    """(x, imatrix, k, first, stop, results, kept): the search for the groups of blocks first ... stop - 1.

    `results` gets five numbers for each group: scale, least, factor, base, and the sum of its weights, 16 groups'
    scales first, then their leasts and so on.  `kept` gets the codes of q3_k, whose search no factor can repeat.
    """
    f = FORMATS[format]
    n, groups, top = f.group, f.groups, (1 << f.code_bits) - 1
    batches = UNIT * groups // LANES
    gather, columns, weigh = gathered(n), gathered_columns(n), matrix_weights(n)
    is_affine, is_table = f.search is not None, bool(f.values)
    is_descent = f.encoder == "descent" and not weighted
    tries = f.weighted_search if weighted or f.search is None else f.search
    affine = search.affine(n, top, *tries)
    symmetric = search.symmetric(n, max(1, f.bias))
    from_table = search.from_table(n, f.values or (-1, 1))
    descent = search.descent(n, max(1, f.bias))
    kind = "square" if not is_affine else "magnitude" if tries.absolute else "average"
    plain = weights_of(n, kind)
    # of the mean of squares; iq4_xs doubles it in another order
    doubled = np.float32(f.mean_squares)
    by_matrix_alone = f.encoder == "signed_scale"
    x_room, w_room, code_room, squares_room = room(ROW * n), room(ROW * n), room(ROW * n), room(64)

    @exact
    def step(x, imatrix, k, first, stop, results, kept):
        compact()
        xt, wt, codes, sums = x_room(), w_room(), code_room(), squares_room()
        last = stop * groups - 1
        if weighted and not by_matrix_alone:
            squares(x + 1024 * first, 1024, 256, stop - first, sums)
        for b in range(batches):
            at = first * groups + b * LANES
            if at > last:
                break
            gather(x, at, last, xt)
            to = results + 5 * ROW * b
            if weighted:
                columns(imatrix, k, at, last, wt)
                if not by_matrix_alone:
                    sigma = spread(ZERO)
                    for lane in range(LANES):
                        total = number(sums + 4 * min((b * LANES + lane) // groups, stop - first - 1))
                        if is_table:
                            total = total * np.float32(2 / 256)
                        else:
                            total = doubled * total / np.float32(256)
                        sigma = with_lane(sigma, lane, total)
                    write(to + 4 * ROW, weigh(xt, wt, sigma))
            else:
                plain(xt, wt)
            if is_affine:
                scale, least, factor, base = affine(xt, wt, codes)
                write(to + ROW, least)
                write(to + 3 * ROW, base)
            elif is_table:
                scale, factor = from_table(xt, wt), spread(ZERO)
            elif is_descent:
                scale, factor = descent(xt, codes), spread(ZERO)
                for i in range(n):
                    write(kept + (b * n + i) * LANES, to_bytes(as_ints(load(codes + ROW * i) + MAGIC)))
            else:
                scale, factor = symmetric(xt, wt)
            write(to, scale)
            write(to + 2 * ROW, factor)

    return step


@exact
def result_at(results, group, which):
    """Where number `which` of a group stands among those that the first step left."""
    return results + (group // LANES * 5 + which) * ROW + group % LANES * 4


def affine_block(format: str) -> Any:
    """(x, w, results, block, d, dmin, scales, mins): the codes of one block, and all its bytes."""
    f = FORMATS[format]
    n, groups, top = f.group, f.groups, np.float32((1 << f.code_bits) - 1)
    d_at, m_at = f.fields[f.d].offset, f.fields[f.m].offset
    put, put_scales, reserve = codes_of(format), scales_of(format), room(256)

    @exact_outer
    def finish(x, w, results, block, d, dmin, scales, mins):
        compact()
        codes = reserve()
        write(w + d_at, as_half(d))
        write(w + m_at, as_half(dmin))
        put_scales(scales, mins, w)
        d_, m_ = half_float(d), half_float(dmin)
        for j in range(groups):
            step, least = d_ * np.float32(integer(scales + 4 * j)), m_ * np.float32(integer(mins + 4 * j))
            g = block * groups + j
            factor, base = number(result_at(results, g, 2)), number(result_at(results, g, 3))
            for i in range(j * n, (j + 1) * n, LANES):
                v = load(x + 4 * i)
                if step != ZERO:
                    q = rounded((v + least) / step, ZERO, top)
                elif factor != ZERO:
                    q = rounded(factor * (v - base), ZERO, top)
                else:
                    q = spread(ZERO)
                put_codes(codes + i, q)
        put(codes, w)
        return 0

    return finish


@encodes("scale_and_min")
def affine_encoder(format: str, weighted: bool) -> Any:
    """q2_k, q4_k, q5_k."""
    f = FORMATS[format]
    groups, nbytes = f.groups, f.nbytes
    widest = (1 << max(p.to + p.bits for p in f.scales[-1])) - 1
    most, capped = np.float32(widest), f.capped[1]
    share_a_byte = f.scales[0][0].byte == f.mins[0][0].byte
    first, finish = first_step(format, weighted), affine_block(format)
    positive = search.positive(groups, widest)
    result_room, number_room = room(5 * 4 * UNIT * groups), room(8 * groups)
    batch_room, weight_room, code_room = room(ROW * groups), room(ROW * groups), room(ROW * groups)

    @exact
    def whole(v, inverse):
        """A scale as a whole number, by way of C's uint8."""
        return min(nearest(inverse * v) & I32(0xFF), I32(widest))

    @exact
    def stored(codes, j, scale, least):
        """A scale and a min from the search with an importance matrix, as the bits of a block keep them.

        One above the widest (a negative one has wrapped around) is cut if the format says so; else ggml lets its upper
        bits run into the number that shares a byte with it.  See `trueno.formats.encode_minmax`.
        """
        up, down = I32(number(codes)), I32(number(codes + 32))
        if capped:
            up, down = min(up, I32(widest)), min(down, I32(widest))
        elif share_a_byte:
            down = down | up >> 4
        elif j >= 4:
            up = up | I32(number(codes - 4 * ROW)) >> 6 << 4
            down = down | I32(number(codes - 4 * ROW + 32)) >> 6 << 4
        put_int(scale, up & I32(widest))
        put_int(least, down & I32(widest))

    @exact
    def plain(x, w, results, block, scales, mins):
        compact()
        best, deepest = ZERO, ZERO
        for j in range(groups):
            g = block * groups + j
            scale, least = number(result_at(results, g, 0)), -number(result_at(results, g, 1))
            best, deepest = scale if scale > best else best, least if least > deepest else deepest
        up = most / best if best > ZERO else ZERO
        down = most / deepest if deepest > ZERO else ZERO
        for j in range(groups):
            g = block * groups + j
            put_int(scales + 4 * j, whole(number(result_at(results, g, 0)), up))
            put_int(mins + 4 * j, whole(-number(result_at(results, g, 1)), down))
        finish(x, w, results, block, half_bits(best / most), half_bits(deepest / most), scales, mins)

    @exact
    def searched(x, w, results, blocks, scales, mins):
        compact()
        batch, weights, codes = batch_room(), weight_room(), code_room()
        for s in range(UNIT):
            for j in range(groups):
                g = min(s, blocks - 1) * groups + j
                write(batch + ROW * j + 4 * s, number(result_at(results, g, 0)))
                write(batch + ROW * j + 4 * s + 32, -number(result_at(results, g, 1)))
                write(weights + ROW * j + 4 * s, number(result_at(results, g, 4)))
                write(weights + ROW * j + 4 * s + 32, number(result_at(results, g, 4)))
        write(batch, positive(batch, weights, codes))
        for s in range(blocks):
            for j in range(groups):
                stored(codes + ROW * j + 4 * s, j, scales + 4 * j, mins + 4 * j)
            d, dmin = half_bits(number(batch + 4 * s)), half_bits(number(batch + 4 * s + 32))
            finish(x + 1024 * s, w + nbytes * s, results, s, d, dmin, scales, mins)

    @exact_outer
    def encode(args, index):
        compact()
        x, imatrix, w, k, start, stop = job(args, index)
        results, scales = result_room(), number_room()
        mins = scales + 4 * groups
        for at in range(start, stop, UNIT):
            end = min(at + UNIT, stop)
            first(x, imatrix, k, at, end, results, 0)
            if weighted:
                searched(x + 1024 * at, w + nbytes * at, results, end - at, scales, mins)
            else:
                for i in range(at, end):
                    plain(x + 1024 * i, w + nbytes * i, results, i - at, scales, mins)
        return 0

    return encode
