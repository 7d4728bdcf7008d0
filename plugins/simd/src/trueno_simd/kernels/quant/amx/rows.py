"""Rows of x, quantized, in blocks for AMX's tiles (`records`)."""

from typing import Any

from numba import types

from trueno_simd.kernels.operands import reader as job_reader
from trueno_simd.kernels.quant.amx.records import DEPTH, FLAT, STEP, Records
from trueno_simd.kernels.quant.halves import INFINITE, float_bits
from trueno_simd.kernels.tile import clear, put_word
from trueno_simd.llvm.amx import ROW, ROWS, TILE
from trueno_simd.llvm.jit import inner, outer, special
from trueno_simd.llvm.vectors import Vector, bits, converted, filled, number_reader, reader, write

_BYTES, _HALF, _SHORTS = Vector(types.int8, STEP), Vector(types.int8, FLAT), Vector(types.int16, 16)
_bytes, _half, _zeros, _sums = reader(_BYTES), reader(_HALF), filled(_HALF), reader(_SHORTS)
_float, _short = number_reader(types.float32), number_reader(types.int16)
_int32, _float32, _words = converted(types.int32), converted(types.float32), bits(Vector(types.uint32, 16))

# What differs between formats.
GROUPS = A_BLOCK = X_MINS = X_D = X_M = X_BYTES = 1
MINS = FLAT_M = False
quantize = put_row = None

QUANTIZE_JOB = job_reader(9)


@inner
def infinite(d):
    return types.int64((float_bits(d) & 0x7FFFFFFF) == INFINITE)


@outer
def put_nested(codes, sums, d, block, r, depth):
    """DEPTH elements of row r of a block; 1 if their scale is infinite, else 0."""
    for s in range(DEPTH // STEP):
        write(block + s * TILE + r * ROW, _bytes(codes + s * STEP))
    if MINS:
        whole = _int32(_sums(sums))
        high = ((whole + 8) >> 4) << 4
        low = _words(_float32(whole - high)) & 0xFFFF0000
        write(block + X_MINS + r * ROW, (_words(_float32(high)) >> 16) | low)
    scale = _float(d)
    write(block + X_D + r * 4, scale)
    return infinite(scale)


@outer
def put_flat(codes, sums, d, block, r, depth):
    """The same for up to DEPTH elements in groups of FLAT."""
    flag = 0
    for g in range(depth // FLAT):
        place, half = block + g * TILE + r * ROW, g % 2 * FLAT
        write(place + half, _half(codes + g * FLAT))
        write(place + FLAT - half, _zeros(0))
        scale = _float(d + g * 4)
        write(block + X_D + (r * GROUPS + g) * 4, scale)
        if FLAT_M:
            whole = types.int32(_short(sums + g * 4)) + types.int32(_short(sums + g * 4 + 2))
            write(block + X_M + (r * GROUPS + g) * 4, scale * types.float32(whole))
        flag |= infinite(scale)
    return flag


@outer
def quantize_piece(args, index):
    """Some blocks of x, for each DEPTH of k all blocks side by side; rows beyond the last are zero."""
    x, blocks, area, flags, m, k, count, share, area_bytes = QUANTIZE_JOB(args)
    codes = area + index * area_bytes
    d = codes + k
    sums = d + k // A_BLOCK * 4
    flag = 0
    for t in range(index * share, min((index + 1) * share, count)):
        for r in range(ROWS):
            row = t * ROWS + r
            if row < m:
                quantize(x + row * k * 4, k, codes, d, sums)
            else:
                clear(codes, area_bytes)
            for p in range(0, k, DEPTH):
                block = blocks + (p // DEPTH * count + t) * X_BYTES
                flag |= put_row(codes + p, sums + p // 8, d + p // A_BLOCK * 4, block, r, min(DEPTH, k - p))
    put_word(flags, index, flag)
    return 0


def row_writer(records: Records, word: str, known: dict[str, Any]) -> Any:
    """`put_row` of a format; word: in its name."""
    function = put_nested if records.nested else put_flat
    return outer(special(function, f"put_row_{word}", known))
