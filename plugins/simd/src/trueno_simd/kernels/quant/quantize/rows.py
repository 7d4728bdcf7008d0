"""Encoders of blocks of 32 elements that search: iq4_nl, and, with an importance matrix, q4_0 q4_1 q5_0 q5_1."""

from typing import Any

import numpy as np
from trueno.backend import FORMATS

from trueno_simd.kernels.quant.halves import half_bits
from trueno_simd.kernels.quant.quantize import search
from trueno_simd.kernels.quant.quantize.batch import (
    ROW,
    gathered,
    gathered_columns,
    matrix_weights,
    number,
    put_codes,
    squares,
    weights_of,
)
from trueno_simd.kernels.quant.quantize.blocks import as_half, to_bytes
from trueno_simd.kernels.quant.quantize.encoders import encodes
from trueno_simd.kernels.quant.quantize.search import LANES, ONE, ZERO, load, rounded, spread
from trueno_simd.kernels.quant.quantize.store import codes_of, compact, job, room
from trueno_simd.llvm.jit import exact, exact_outer
from trueno_simd.llvm.vectors import write


@encodes("codebook")
@encodes("symmetric", "affine", weighted=(True,), by_row=True)  # without a matrix they search nothing
def row_encoder(format: str, weighted: bool) -> Any:
    """iq4_nl, and, with an importance matrix, q4_0 q4_1 q5_0 q5_1: 16 blocks at a time.

    The weights of those four depend on the whole row, so first ... stop - 1 are the blocks of whole rows.
    """
    f = FORMATS[format]
    n, nbytes, is_table, is_affine = 32, f.nbytes, bool(f.values), bool(f.m)
    half, top = np.float32(max(1, f.bias)), (1 << f.code_bits) - 1
    m_at = f.fields[f.m].offset if is_affine else 0
    gather, columns, weigh, plain = gathered(n), gathered_columns(n), matrix_weights(n), weights_of(n, "square")
    affine, symmetric = search.affine(n, top, *f.weighted_search), search.symmetric(n, max(1, f.bias))
    values = f.values or (-1, 1)
    from_table, place = search.from_table(n, values), search.nearest_value(values, index=True)
    put, top_ = codes_of(format), np.float32(top)
    x_room, w_room, code_room, sum_room = room(ROW * n), room(ROW * n), room(ROW * n), room(64)
    result_room, byte_room = room(4 * ROW), room(32)

    @exact
    def batch(x, imatrix, w, k, at, stop, sigma):
        compact()
        xt, wt, codes, results, packed = x_room(), w_room(), code_room(), result_room(), byte_room()
        gather(x, at, stop - 1, xt)
        if weighted:
            columns(imatrix, k, at, stop - 1, wt)
            spread_ = spread(sigma)
            if is_table:
                spread_ = spread(ZERO)
                for i in range(n):
                    v = load(xt + ROW * i)
                    spread_ = spread_ + v * v
                spread_ = spread_ * np.float32(2 / 32)
            weigh(xt, wt, spread_)
        else:
            plain(xt, wt)
        if is_table:
            scale = from_table(xt, wt)
            factor = scale
        elif is_affine:
            scale, least, factor, base = affine(xt, wt, codes)
            write(results + 2 * ROW, least)
            write(results + 3 * ROW, base)
        else:
            scale, factor = symmetric(xt, wt)
        write(results, scale)
        write(results + ROW, factor)
        for lane in range(min(LANES, stop - at)):
            source, block = x + 128 * (at + lane), w + nbytes * (at + lane)
            write(block, as_half(half_bits(number(results + 4 * lane))))
            one = number(results + ROW + 4 * lane)
            if is_table:
                one = ONE / one if one != ZERO else ZERO
            for i in range(0, n, LANES):
                v = load(source + 4 * i)
                if is_table:
                    write(packed + i, to_bytes(place(one * v)))
                elif one == ZERO:
                    put_codes(packed + i, spread(ZERO))
                elif is_affine:
                    put_codes(packed + i, rounded(one * (v - number(results + 3 * ROW + 4 * lane)), ZERO, top_))
                else:
                    put_codes(packed + i, rounded(one * v, -half, half - ONE) + half)
            if is_affine:
                write(block + m_at, as_half(half_bits(number(results + 2 * ROW + 4 * lane))))
            put(packed, block)

    @exact_outer
    def encode(args, index):
        compact()
        x, imatrix, w, k, start, stop = job(args, index)
        if is_table:
            for at in range(start, stop, LANES):
                batch(x, imatrix, w, k, at, stop, ZERO)
            return 0
        sums, row = sum_room(), k // n
        for i in range((stop - start) // row):
            at = start + i * row
            if i % 8 == 0:
                squares(x + 128 * at, 4 * k, k, min(8, (stop - at) // row), sums)
            sigma = number(sums + 4 * (i % 8)) / np.float32(k)
            for b in range(at, at + row, LANES):
                batch(x, imatrix, w, k, b, at + row, sigma)
        return 0

    return encode
