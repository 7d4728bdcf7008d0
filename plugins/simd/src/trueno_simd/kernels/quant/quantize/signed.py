"""Encoders of blocks of 256 elements whose groups have signed scales and no mins: q3_k, q6_k, iq4_xs.

The steps are those of `groups`.
"""

from typing import Any

import numpy as np
from trueno.backend import FORMATS

from trueno_simd.kernels.quant.halves import half_bits, half_float
from trueno_simd.kernels.quant.quantize import search
from trueno_simd.kernels.quant.quantize.batch import (
    I32,
    ROW,
    byte,
    integer,
    nearest,
    number,
    put_codes,
    put_int,
)
from trueno_simd.kernels.quant.quantize.blocks import as_half, to_bytes
from trueno_simd.kernels.quant.quantize.encoders import encodes
from trueno_simd.kernels.quant.quantize.groups import UNIT, first_step, result_at
from trueno_simd.kernels.quant.quantize.search import LANES, ONE, TINY, ZERO, load, rounded, spread
from trueno_simd.kernels.quant.quantize.store import codes_of, compact, job, room, scales_of
from trueno_simd.kernels.tile import clear
from trueno_simd.llvm.jit import exact, exact_outer
from trueno_simd.llvm.vectors import write


@encodes("descent", "signed_scale")
def symmetric_encoder(format: str, weighted: bool) -> Any:
    """q3_k, q6_k."""
    f = FORMATS[format]
    n, groups, nbytes = f.group, f.groups, f.nbytes
    half = np.float32(f.bias)
    bias, lowest, highest = (0, -128, 127) if f.scale_signed else (f.scale_bias, -32, 31)
    descends = f.encoder == "descent"
    is_q6, kept_codes, second = not descends, not weighted and descends, weighted and descends
    first, by_weights = first_step(format, weighted), search.symmetric(groups, 32)
    d_at = f.fields[f.d].offset
    put, put_scales = codes_of(format), scales_of(format)
    result_room, number_room, code_room = room(5 * 4 * UNIT * groups), room(4 * groups), room(256)
    batch_room, weight_room = room(ROW * groups), room(ROW * groups)
    kept_room = room(UNIT * 256 if kept_codes else LANES)

    @exact_outer
    def finish(x, w, results, kept, block, d, scales):
        """The codes of one block, and all its bytes."""
        compact()
        codes = code_room()
        write(w + d_at, as_half(d))
        put_scales(scales, scales, w)
        d_ = half_float(d)
        for j in range(groups):
            step = d_ * np.float32(integer(scales + 4 * j) - bias)
            g = block * groups + j
            factor = number(result_at(results, g, 2))
            v = load(x + 4 * LANES * j)
            if step != ZERO:
                put_codes(codes + LANES * j, rounded(v / step, -half, half - ONE) + half)
            elif kept_codes:
                for i in range(n):
                    write(codes + n * j + i, byte(kept + (g // LANES * n + i) * LANES + g % LANES))
            elif factor != ZERO:
                put_codes(codes + LANES * j, rounded(factor * v, -half, half - ONE) + half)
            else:
                put_codes(codes + LANES * j, spread(ZERO))
        put(codes, w)
        return 0

    @exact
    def plain(x, w, results, kept, block, scales):
        compact()
        best, size = ZERO, ZERO
        for j in range(groups):
            scale = number(result_at(results, block * groups + j, 0))
            if abs(scale) > size:
                best, size = scale, abs(scale)
        if is_q6 and size < TINY:
            clear(w, nbytes)
            return
        if best == ZERO:
            for j in range(groups):
                put_int(scales + 4 * j, I32(0))
            finish(x, w, results, kept, block, I32(0), scales)
            return
        inverse = np.float32(lowest) / best
        for j in range(groups):
            whole = nearest(inverse * number(result_at(results, block * groups + j, 0)))
            if not is_q6:
                whole = max(I32(lowest), I32(byte_of(whole)))
            put_int(scales + 4 * j, min(whole, I32(highest)) + I32(bias))
        finish(x, w, results, kept, block, half_bits(ONE / inverse), scales)

    @exact
    def searched(x, w, results, blocks, scales):
        compact()
        batch, weights = batch_room(), weight_room()
        for s in range(LANES):
            for j in range(groups):
                g = min(s, blocks - 1) * groups + j
                write(batch + ROW * j + 4 * s, number(result_at(results, g, 0)))
                write(weights + ROW * j + 4 * s, number(result_at(results, g, 4)))
        d, factor = by_weights(batch, weights)
        write(weights, d)
        write(weights + ROW, factor)
        for s in range(blocks):
            f_ = number(weights + ROW + 4 * s)
            for j in range(groups):
                whole = nearest(f_ * number(batch + ROW * j + 4 * s))
                whole = max(I32(lowest), min(whole, I32(highest))) + I32(bias) if f_ != ZERO else I32(0)
                put_int(scales + 4 * j, whole)
            d_ = half_bits(number(weights + 4 * s))
            finish(x + 1024 * s, w + nbytes * s, results, 0, s, d_, scales)

    @exact_outer
    def encode(args, index):
        compact()
        x, imatrix, w, k, start, stop = job(args, index)
        results, scales, kept = result_room(), number_room(), kept_room()
        for at in range(start, stop, UNIT):
            end = min(at + UNIT, stop)
            first(x, imatrix, k, at, end, results, kept)
            if second:
                searched(x + 1024 * at, w + nbytes * at, results, end - at, scales)
            else:
                for i in range(at, end):
                    plain(x + 1024 * i, w + nbytes * i, results, kept, i - at, scales)
        return 0

    return encode


@exact
def byte_of(whole):
    """A whole number as C's int8 keeps it."""
    return ((whole + I32(128)) & I32(0xFF)) - I32(128)


@encodes("grouped_codebook")
def table_encoder(format: str, weighted: bool) -> Any:
    """iq4_xs."""
    f = FORMATS[format]
    n, groups, nbytes, bias = f.group, f.groups, f.nbytes, f.scale_bias
    first, place = first_step(format, weighted), search.nearest_value(f.values, index=True)
    d_at = f.fields[f.d].offset
    put, put_scales = codes_of(format), scales_of(format)
    result_room, number_room, code_room = room(5 * 4 * UNIT * groups), room(4 * groups), room(256)

    @exact
    def block_of(x, w, results, block, scales):
        compact()
        codes = code_room()
        best, size = ZERO, ZERO
        for j in range(groups):
            scale = number(result_at(results, block * groups + j, 0))
            if abs(scale) > size:
                best, size = scale, abs(scale)
        d = -best / np.float32(bias)
        inverse = ONE / d if d != ZERO else ZERO
        for j in range(groups):
            whole = nearest(inverse * number(result_at(results, block * groups + j, 0)))
            whole = max(I32(-bias), min(whole, I32(bias - 1)))
            put_int(scales + 4 * j, whole + I32(bias))
            step = d * np.float32(whole)
            factor = ONE / step if step != ZERO else ZERO
            for i in range(j * n, (j + 1) * n, LANES):
                write(codes + i, to_bytes(place(load(x + 4 * i) * factor)))
        write(w + d_at, as_half(half_bits(d)))
        put_scales(scales, scales, w)
        put(codes, w)

    @exact_outer
    def encode(args, index):
        compact()
        x, imatrix, w, k, start, stop = job(args, index)
        results, scales = result_room(), number_room()
        for at in range(start, stop, UNIT):
            end = min(at + UNIT, stop)
            first(x, imatrix, k, at, end, results, 0)
            for i in range(at, end):
                block_of(x + 1024 * i, w + nbytes * i, results, i - at, scales)
        return 0

    return encode
