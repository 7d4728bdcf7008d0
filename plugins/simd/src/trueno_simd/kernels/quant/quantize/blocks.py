"""Encoders whose scale is the block's largest number: q4_0 q4_1 q5_0 q5_1 q8_0 q8_1 q8_k mxfp4.

One block at a time, its elements in vectors of 16, in their order.  Every step rounds as ggml's `_ref` functions do.
Where their C is undefined (a factor that overflows, in blocks of subnormal numbers, whose scale is 0) codes are what
x86's conversions make of it.
"""

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from llvmlite import ir
from numba import literal_unroll, types
from numba.extending import intrinsic
from trueno.backend import FORMATS

from trueno_simd.kernels.quant.activations import MAGIC, first_of, most_of_256, signed_most, sums_of_16
from trueno_simd.kernels.quant.halves import INFINITE, bits_float, float_bits, half_bits
from trueno_simd.kernels.quant.quantize.encoders import encodes
from trueno_simd.kernels.quant.quantize.store import codes_of, job, room
from trueno_simd.llvm.jit import exact, exact_outer
from trueno_simd.llvm.vectors import (
    Vector,
    absolute,
    bits,
    choose,
    converted,
    filled,
    larger,
    most,
    number_reader,
    reader,
    total,
    write,
)

F32, I32 = types.float32, types.int32
FLOATS, INTS, WORDS = Vector(F32, 16), Vector(I32, 16), Vector(types.uint32, 16)
floats, spread, as_ints = reader(FLOATS), filled(FLOATS), bits(INTS)
to_ints, to_bytes, to_floats = converted(I32), converted(types.uint8), converted(F32)
number, byte_reader = number_reader(F32), reader(Vector(types.int8, 32))
LOW, HIGH = np.float32(-(2.0**31)), np.float32(2.0**31)


@intrinsic
def as_half(_: Any, h: Any) -> Any:
    """The low 16 bits, to be written."""
    return types.int16(I32), lambda context, builder, sig, values: builder.trunc(values[0], ir.IntType(16))


@intrinsic
def as_byte(_: Any, h: Any) -> Any:
    return types.uint8(I32), lambda context, builder, sig, values: builder.trunc(values[0], ir.IntType(8))


def _fold(word: str) -> Any:
    """The least or the greatest lane, for finite numbers; of zeros of both signs, either."""

    @intrinsic
    def fold(_: Any, a: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            value = values[0]
            while (n := value.type.count // 2) > 0:
                index = ir.VectorType(ir.IntType(32), n)
                left = builder.shuffle_vector(value, value, ir.Constant(index, list(range(n))))
                right = builder.shuffle_vector(value, value, ir.Constant(index, list(range(n, 2 * n))))
                value = builder.select(builder.fcmp_ordered(word, left, right), left, right)
            return builder.extract_element(value, ir.Constant(ir.IntType(32), 0))

        return a.element(a), emit

    return fold


least, greatest = _fold("<"), _fold(">")


@exact
def truncated(v):
    """Toward zero, as int32; what does not fit is the smallest integer, as on x86."""
    return to_ints(choose((v >= LOW) & (v < HIGH), v, LOW))


most_of_32 = signed_most(32)


Block = Callable[[str], Any]


def _encodes_blocks(*names: str, weighted: tuple[bool, ...] = (False,)) -> Callable[[Block], Block]:
    """Decorate what makes, for a format with these encoders, the function block(x, w) that encodes one block."""

    def added(make: Block) -> Block:
        encodes(*names, weighted=weighted, searches=False)(lambda name, _: _encoder(make, name))
        return make

    return added


@cache
def _encoder(make: Block, format: str) -> Any:
    """The piece of a region that encodes some blocks, which looks at no importance matrix."""
    f = FORMATS[format]
    elements, nbytes = f.elements, f.nbytes
    block = make(format)

    @exact_outer
    def encode(args, index):
        x, _, w, _, first, stop = job(args, index)
        for i in range(first, stop):
            block(x + 4 * i * elements, w + i * nbytes)
        return 0

    return encode


@_encodes_blocks("symmetric")
def _symmetric(format: str) -> Any:
    """q4_0, q5_0: d = v / -half, code = x / d + half + 1/2, cut."""
    f, put = FORMATS[format], codes_of(format)
    half, top = f.bias, 2 * f.bias - 1
    reserve = room(32)

    @exact
    def block(x, w):
        d = most_of_32(x) / np.float32(-half)
        factor = np.float32(1) / d if d != 0 else np.float32(0)
        codes = reserve()
        for j in range(0, 32, 16):
            q = to_bytes(truncated(floats(x + 4 * j) * factor + np.float32(half + 0.5)))
            write(codes + j, choose(q < top, q, top))
        write(w, as_half(half_bits(d)))
        put(codes, w)

    return block


@_encodes_blocks("affine")
def _affine(format: str) -> Any:
    """q4_1, q5_1: m = least, d = (most - least) / top, code = (x - m) / d + 1/2, cut."""
    f, put = FORMATS[format], codes_of(format)
    top = (1 << f.code_bits) - 1
    m_at = f.fields[f.m].offset
    reserve = room(32)

    @exact
    def block(x, w):
        a, b = floats(x), floats(x + 64)
        low, high = least(choose(a < b, a, b)), greatest(choose(a > b, a, b))
        if low == 0:
            low = first_of(x, 32, np.float32(0))
        if high == low:  # −0 and 0 are equal, but −0 − 0 is −0: ggml subtracts the first number from itself
            high = low
        d = (high - low) / np.float32(top)
        factor = np.float32(1) / d if d != 0 else np.float32(0)
        codes = reserve()
        for j in range(0, 32, 16):
            q = to_bytes(truncated((floats(x + 4 * j) - low) * factor + np.float32(0.5)))
            write(codes + j, choose(q < top, q, top))
        write(w, as_half(half_bits(d)))
        write(w + m_at, as_half(half_bits(low)))
        put(codes, w)

    return block


@exact
def largest_of_32(x):
    """The largest magnitude of 32 numbers."""
    return bits_float(most(larger(as_ints(floats(x)) & 0x7FFFFFFF, as_ints(floats(x + 64)) & 0x7FFFFFFF)))


@exact
def away(v):
    """The nearest integer, halves away from zero, as int32."""
    t = truncated(v)
    rest = v - to_floats(t)
    t = choose(rest >= np.float32(0.5), t + 1, t)
    return choose(rest <= np.float32(-0.5), t - 1, t)


@_encodes_blocks("absmax", weighted=(False, True))  # it looks at no matrix, as in ggml
def q8_block(format: str) -> Any:
    """q8_0, q8_1: d = largest / 127, code = x / d to the nearest, halves away from zero."""
    f = FORMATS[format]
    at, summed = f.fields["qs"].offset, "s" in f.fields
    sum_at = f.fields["s"].offset if summed else 0

    @exact
    def block(x, w):
        d = largest_of_32(x) / np.float32(127)
        factor = np.float32(1) / d if d != 0 else np.float32(0)
        if float_bits(factor) >= INFINITE:
            factor = np.float32(0)
        write(w, as_half(half_bits(d)))
        a, b = away(floats(x) * factor), away(floats(x + 64) * factor)
        write(w + at, to_bytes(a))
        write(w + at + 16, to_bytes(b))
        if summed:
            write(w + sum_at, as_half(half_bits(np.float32(total(a + b)) * d)))

    return block


@_encodes_blocks("signed_absmax")
def _q8_k(format: str) -> Any:
    """q8_k: v = the first number of the largest magnitude, code = x * (-127 / v) to the nearest even, d = 1 / that."""
    f = FORMATS[format]
    at, sums_at = f.fields["qs"].offset, f.fields["bsums"].offset

    @exact
    def block(x, w):
        value = most_of_256(x)
        factor = np.float32(-127) / value
        d = np.float32(1) / factor if value != 0 else np.float32(0)
        if (float_bits(factor) & 0x7FFFFFFF) >= INFINITE:
            factor = np.float32(0)
        write(w, d)
        for j in range(0, 256, 16):
            write(w + at + j, to_bytes(as_ints(floats(x + 4 * j) * factor + MAGIC)))
        for j in range(0, 256, 32):
            write(w + sums_at + j // 8, sums_of_16(byte_reader(w + at + j)))

    return block


def early_powers() -> np.ndarray:
    """For each power of two from 2^-149 on, the bits of the least float32 whose float32 logarithm rounds up to it."""
    earliest = []
    for power in range(-149, 129):
        bits_ = int(np.float32(2.0**power).view(np.uint32)) if power < 128 else int(INFINITE)
        below = np.arange(max(1, bits_ - 64), bits_ + 1, dtype=np.uint32)
        logs = np.log2(below.view(np.float32).astype(np.float64)).astype(np.float32)
        earliest.append(below[np.argmax(logs >= power)])
    return np.array(earliest, np.int32)


@_encodes_blocks("shared_exponent", weighted=(False, True))  # as q8_0
def _e8m0(format: str) -> Any:
    """mxfp4: d = 2^(floor(log2 largest) - 2), halved as the values are doubled; code = the nearest value, ties to zero.

    The exponent goes through a float32 logarithm, which rounds up to a whole number a little below large powers of two.
    """
    f, put = FORMATS[format], codes_of(format)
    values = f.values[:8]
    limits = tuple(np.float32((a + b) / 2) for a, b in pairwise(values))
    assert values[0] == 0 and all(f.values[8 + i] == -v for i, v in enumerate(values))
    early, reserve = early_powers(), room(32)

    @exact
    def block(x, w):
        largest = largest_of_32(x)
        b = types.int64(float_bits(largest))
        e = types.int64(0)
        if b > 0:
            power = (b >> 23) - 127
            if power == -127:
                power = types.int64(float_bits(np.float32(b)) >> 23) - (127 + 149)
            power += b >= early[power + 150]
            e = (power + 125) & 255
        d = bits_float(I32((e - 1) << 23 if e >= 2 else 0x00200000 << e))
        codes = reserve()
        for j in range(0, 32, 16):
            v = floats(x + 4 * j)
            size = absolute(v)
            q = as_ints(v) & 0
            for i in literal_unroll(limits):
                q = choose(size > i * d, q + 1, q)
            q = choose((v < 0) & (q > 0), q + 8, q)
            write(codes + j, to_bytes(q))
        write(w, as_byte(I32(e)))
        put(codes, w)

    return block
