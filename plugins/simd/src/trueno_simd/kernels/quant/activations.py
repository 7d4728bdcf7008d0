"""Activations to 8 bits: the row functions that every product with a quantized matrix runs first.

A row x[k] of float32 becomes codes int8[k], one scale d a block, float32, and the sum of each 16 codes, int16[k / 16].
Blocks have 32 elements (`q8_0`, `q8_1`) or 256 (`q8_k`); k is a whole number of them.  Codes and scales are ggml's
(its CPU code's, which is not the `_ref` functions' for q8_0: d = amax/127 rounded to float16, code = nearest even of
x · (127/amax)).  For q8_k: v is the first x of the largest magnitude, code = nearest even of x · (-127/v), d = 1/that.

A block that holds a NaN or an infinity gets d = NaN, so no finite wrong number comes out of it; its codes say nothing.
Where the factor overflows (blocks of subnormal numbers) codes are 0; ggml's are -128 or undefined, times a d of 0.

Floor: 4k bytes read, 1.3k written: 0.1 us for 4096 elements in the first-level cache.  Measured there on one Zen 5
core: q8_0 0.65 us with AVX-512, 0.78 with AVX2, 1.6 with SSE2; q8_k 0.33, 0.53, 1.3.  q8_0 waits for a fold across the
lanes and two divisions for each 32 elements.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from trueno.backend import FORMATS

from trueno_simd.kernels.quant.halves import INFINITE, bits_float, float_bits, through_half
from trueno_simd.kernels.tile import VECTOR_BYTES
from trueno_simd.llvm import isa
from trueno_simd.llvm.isa import current
from trueno_simd.llvm.jit import exact, exact_outer
from trueno_simd.llvm.vectors import (
    Vector,
    bits,
    call,
    converted,
    larger,
    larger_unsigned,
    most,
    most_unsigned,
    number_reader,
    reader,
    write,
)

X86 = current().level in isa.X86

F32, I32 = types.float32, types.int32
LANES = 16
FLOATS, INTS, BITS = Vector(F32, LANES), Vector(types.int32, LANES), Vector(types.uint32, LANES)
floats = reader(FLOATS)
as_ints, as_bits, to_int8 = bits(INTS), bits(BITS), converted(types.int8)
number = number_reader(F32)

MAGIC = np.float32(12582912)  # 1.5 · 2²³: adding it rounds to the nearest even, and leaves the integer in the low bits


@intrinsic
def sums_of_16(_: Any, codes: Any) -> Any:
    """The sum of each 16 of some int8, as int16."""
    count = codes.count
    to = Vector(types.int16, count // 16)

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        def vector(width: int, n: int) -> Any:
            return ir.VectorType(ir.IntType(width), n)

        def take(a: Any, b: Any, lanes: Any) -> Any:
            lanes = list(lanes)
            return builder.shuffle_vector(a, b, ir.Constant(vector(32, len(lanes)), lanes))

        def pairs(a: Any) -> Any:
            n = a.type.count
            return builder.add(take(a, a, range(0, n, 2)), take(a, a, range(1, n, 2)))

        if not X86:
            wide = builder.sext(values[0], vector(16, count))
            return pairs(pairs(pairs(pairs(wide))))
        # psadbw adds each 8 unsigned bytes: shift the codes up by 128, and 16 · 128 off the sum
        up = builder.xor(values[0], ir.Constant(vector(8, count), [-128] * count))
        size = min(VECTOR_BYTES, count)
        name = {16: "llvm.x86.sse2.psad.bw", 32: "llvm.x86.avx2.psad.bw", 64: "llvm.x86.avx512.psad.bw.512"}
        if size == 32 and not current().has("avx2"):
            size = 16
        zero = ir.Constant(vector(8, size), [0] * size)
        parts = []
        for i in range(0, count, size):
            part = take(up, up, range(i, i + size)) if size < count else up
            parts.append(call(builder, name[size], vector(64, size // 8), [part, zero]))
        while len(parts) > 1:
            n = parts[0].type.count
            parts = [take(a, b, range(2 * n)) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        sums = builder.trunc(pairs(parts[0]), vector(16, count // 16))
        return builder.sub(sums, ir.Constant(sums.type, [2048] * (count // 16)))

    return to(codes), emit


codes64, codes32 = reader(Vector(types.int8, 64)), reader(Vector(types.int8, 32))


@exact
def add_codes(codes, sums, k):
    """The sums of a row's codes."""
    for i in range(0, k - 63, 64):
        write(sums + i // 8, sums_of_16(codes64(codes + i)))
    if k % 64:
        write(sums + (k - 32) // 8, sums_of_16(codes32(codes + k - 32)))


@exact_outer
def quantized_q8_0(x, k, codes, d, sums):
    """Blocks of 32: x[k] float32 -> codes int8[k], d float32[k / 32] (rounded to float16), sums int16[k / 16]."""
    for i in range(0, k, 32):
        a, b = floats(x + 4 * i), floats(x + 4 * i + 64)
        largest = most(larger(as_ints(a) & 0x7FFFFFFF, as_ints(b) & 0x7FFFFFFF))  # as floats: of one order
        amax = bits_float(largest)
        factor = np.float32(127) / amax
        if float_bits(factor) >= INFINITE:
            factor = np.float32(0)
        write(codes + i, to_int8(as_ints(a * factor + MAGIC)))
        write(codes + i + 16, to_int8(as_ints(b * factor + MAGIC)))
        scale = through_half(amax / np.float32(127))
        write(d + i // 8, np.float32(np.nan) if largest >= INFINITE else scale)
    add_codes(codes, sums, k)
    return 0


@exact
def first_of(x, n, value):
    """The first of n numbers that equals `value`: of numbers of one magnitude, or zeros of both signs, it decides."""
    for i in range(n):
        v = number(x + 4 * i)
        if abs(v) == value:
            return v
    return value


def signed_most(n: int) -> Any:
    """x -> the first of n numbers of the largest magnitude."""

    @exact
    def find(x):
        v = floats(x)
        up, down = as_ints(v), as_bits(v)
        for j in range(64, 4 * n, 64):
            v = floats(x + j)
            up, down = larger(up, as_ints(v)), larger_unsigned(down, as_bits(v))
        plus, below = most(up), I32(most_unsigned(down))
        minus = below & 0x7FFFFFFF if below < 0 else I32(-1)
        if plus <= 0 and minus <= 0:
            return np.float32(0)  # of zeros none is taken
        if plus == minus:
            return first_of(x, n, bits_float(plus))
        return bits_float(plus) if plus > minus else -bits_float(minus)

    return find


most_of_256 = signed_most(256)


@exact_outer
def quantized_q8_k(x, k, codes, d, sums):
    """Blocks of 256: x[k] float32 -> codes int8[k], d float32[k / 256], sums int16[k / 16]."""
    for i in range(0, k, 256):
        row = x + 4 * i
        value = most_of_256(row)
        factor = np.float32(-127) / value
        if (float_bits(factor) & 0x7FFFFFFF) >= INFINITE:
            factor = np.float32(0)
        for j in range(0, 256, 16):
            write(codes + i + j, to_int8(as_ints(floats(row + 4 * j) * factor + MAGIC)))
        scale = np.float32(1) / factor if factor != 0 else np.float32(0)
        write(d + i // 64, np.float32(np.nan) if (float_bits(value) & 0x7FFFFFFF) >= INFINITE else scale)
    add_codes(codes, sums, k)
    return 0


def quantized(partner: str) -> Any:
    """The row function of an activation format: (x, k, codes, d, sums), addresses and a count, for compiled code."""
    return {"absmax": quantized_q8_0, "signed_absmax": quantized_q8_k}[FORMATS[partner].encoder]
