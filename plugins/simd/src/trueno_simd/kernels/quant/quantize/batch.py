"""What the searching encoders share: 16 groups of numbers side by side, their weights, and whole numbers.

A batch of groups of n numbers is n vectors: lane l of vector i is number i of group l.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from trueno_simd.kernels.quant.halves import float_bits
from trueno_simd.kernels.quant.quantize.blocks import to_bytes
from trueno_simd.kernels.quant.quantize.search import LANES, MAGIC, ZERO, load, spread
from trueno_simd.kernels.quant.quantize.store import compact, room
from trueno_simd.llvm.jit import exact
from trueno_simd.llvm.vectors import Vector, absolute, bits, filled, number_reader, root, with_lane, write

F32, I32 = types.float32, types.int32
number, integer, byte = number_reader(F32), number_reader(I32), number_reader(types.uint8)
as_ints, eight = bits(Vector(I32, LANES)), filled(Vector(F32, 8))
ROW = 4 * LANES  # bytes of a vector of a batch


@exact
def nearest(v):
    """ggml's nearest integer (ties to even) of one float32, as int32."""
    return (float_bits(v + MAGIC) & I32(0x7FFFFF)) - I32(0x400000)


@exact
def put_int(address, value):
    """A whole number as int32; Numba's own arithmetic widens."""
    write(address, I32(value))


@exact
def put_address(address, value):
    write(address, types.int64(value))


@exact
def put_codes(codes, v):
    """16 whole numbers as bytes."""
    write(codes, to_bytes(as_ints(v + MAGIC)))


@exact
def squares(x, row, count, rows, to):
    """The sums of squares of up to 8 rows of `count` numbers, `row` bytes apart, each from left to right."""
    eight_sums = eight(ZERO)
    for i in range(count):
        v = eight(ZERO)
        for j in range(8):
            v = with_lane(v, j, number(x + min(j, rows - 1) * row + 4 * i))
        eight_sums = eight_sums + v * v
    write(to, eight_sums)


def gathered(n: int) -> Any:
    """(x, first, last, to): element i of groups first ... first + 15 side by side; those after `last` are that one."""
    reserve = room(8 * LANES)

    @exact
    def gather(x, first, last, to):
        compact()
        rows = reserve()
        for lane in range(LANES):
            put_address(rows + 8 * lane, x + 4 * n * min(first + lane, last))
        for i in range(0, n, LANES):
            transpose(rows, 4 * i, to + ROW * i)

    return gather


def gathered_columns(n: int) -> Any:
    """The same of a row k that belongs to each row: of groups first ... first + 15 of x, their columns' numbers."""
    reserve = room(8 * LANES)

    @exact
    def gather(row, k, first, last, to):
        compact()
        rows = reserve()
        for lane in range(LANES):
            put_address(rows + 8 * lane, row + 4 * (n * min(first + lane, last) % k))
        for i in range(0, n, LANES):
            transpose(rows, 4 * i, to + ROW * i)

    return gather


@intrinsic
def transpose(_: Any, rows: Any, offset: Any, to: Any) -> Any:
    """16 numbers from `offset` bytes after each of 16 addresses, to 16 vectors of one number of each."""

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        rows, offset, to = values
        i64, kind = ir.IntType(64), ir.VectorType(ir.FloatType(), LANES)

        def at(address: Any, shift: int, of: Any) -> Any:
            return builder.inttoptr(builder.add(address, ir.Constant(i64, shift)), of.as_pointer())

        vectors = []
        for lane in range(LANES):
            row = builder.load(at(rows, 8 * lane, i64))
            vectors.append(builder.load(at(builder.add(row, offset), 0, kind), align=4))
        # exchange halves of blocks of 16, 8, 4 and 2 lanes between rows that lie as far apart
        for half in (8, 4, 2, 1):
            low = [i if not i & half else i - half + LANES for i in range(LANES)]
            high = [i + half if not i & half else i + LANES for i in range(LANES)]
            index = [ir.Constant(ir.VectorType(ir.IntType(32), LANES), lanes) for lanes in (low, high)]
            for r in range(LANES):
                if not r & half:
                    a, b = vectors[r], vectors[r + half]
                    vectors[r], vectors[r + half] = (builder.shuffle_vector(a, b, i) for i in index)
        for i in range(LANES):
            builder.store(vectors[i], at(to, ROW * i, kind), align=64)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), emit


# ---- weights of a batch


def weights_of(n: int, kind: str) -> Any:
    """(x, w): the weights of a batch without an importance matrix."""

    @exact
    def average(x, w):
        compact()
        total = spread(ZERO)
        for i in range(n):
            v = load(x + ROW * i)
            total = total + v * v
        mean = root(total / np.float32(n))
        for i in range(n):
            write(w + ROW * i, mean + absolute(load(x + ROW * i)))

    @exact
    def magnitude(x, w):
        for i in range(n):
            write(w + ROW * i, absolute(load(x + ROW * i)))

    @exact
    def square(x, w):
        for i in range(n):
            v = load(x + ROW * i)
            write(w + ROW * i, v * v)

    return {"average": average, "magnitude": magnitude, "square": square}[kind]


def matrix_weights(n: int) -> Any:
    """(x, w, spread of squares): w, which holds the importance matrix, times sqrt(spread + x^2); their sums."""

    @exact
    def weigh(x, w, sigma):
        compact()
        total = spread(ZERO)
        for i in range(n):
            v = load(x + ROW * i)
            weight = load(w + ROW * i) * root(sigma + v * v)
            write(w + ROW * i, weight)
            total = total + weight
        return total

    return weigh
