"""rope: pairs of numbers turned by an angle that is the token's position times the pair's frequency.

An angle is position · turns in uint64, which wraps around and so is exact (`trueno.rotary`).  Its nearest quarter comes
off as an integer, and what remains, at most π/4, goes through two polynomials: Cephes' sinf and cosf, or sin and cos.
The cosines and sines of 16 numbers (8 in float64) stay in registers while every head of the token passes, so a token
costs one table, however many heads it has.

Floor: every byte read once and written once.  Measured on two cores of a Zen 5, float32, 512 tokens of 14 heads of 64:
32 µs, as long as a copy.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from trueno.backend import Call, Kernel, Rates, rotation

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels import tile
from trueno_simd.kernels.operands import F32, F64, adapted, number, overlaps, reader, source, target
from trueno_simd.kernels.table import KERNELS
from trueno_simd.kernels.tile import address, get_word, masks
from trueno_simd.llvm import vectors
from trueno_simd.llvm.calls import address_of, pack
from trueno_simd.llvm.jit import inner, outer
from trueno_simd.llvm.vectors import Vector, choose, write
from trueno_simd.threads.pool import parallel_for

LANES = {types.float32: 16, types.float64: 8}
MOST_LANES = 16
SMALL = 1 << 14  # numbers below which one thread is faster
CHUNKS = 64  # at most
QUARTER = 62  # the bit from which a word counts quarters of a turn
RADIANS = 2 * np.pi / 2.0**64
SIN_32 = (-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4)
COS_32 = (4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5)
SIN_64 = (-1.66666666666666307295e-1, 8.33333333332211858878e-3, -1.98412698295895385996e-4,
          2.75573136213857245213e-6, -2.50507477628578072866e-8, 1.58962301576546568060e-10)  # fmt: skip
COS_64 = (4.16666666666665929218e-2, -1.38888888888730564116e-3, 2.48015872888517045348e-5,
          -2.75573141792967388112e-7, 2.08757008419747316778e-9, -1.13585365213876817300e-11)  # fmt: skip


def _polynomial(coefficients: tuple[float, ...]) -> Any:
    """A function z -> c₀ + c₁ z + …, of vectors."""
    c0, c1, c2, *rest = coefficients
    if not rest:

        @inner
        def short(z):
            return (z * c2 + c1) * z + c0

        return short
    c3, c4, c5 = rest

    @inner
    def long(z):
        return ((((z * c5 + c4) * z + c3) * z + c2) * z + c1) * z + c0

    return long


def _edges(kind: Vector) -> tuple[Any, Any]:
    """Functions that read and write only the first n lanes at an address."""

    def parts(builder: Any, place: Any, count: Any) -> tuple[Any, ...]:
        floats = ir.VectorType(ir.FloatType() if kind.element == types.float32 else ir.DoubleType(), kind.count)
        size = kind.element.bitwidth // 8
        pointer = builder.inttoptr(place, floats.as_pointer())
        return floats, pointer, ir.Constant(ir.IntType(32), size), masks(builder, count, kind.count, 1)[0]

    @intrinsic
    def read_some(_: Any, place: Any, count: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            floats, pointer, align, mask = parts(builder, *values)
            zeros = ir.Constant(floats, [0.0] * kind.count)
            name = f"llvm.masked.load.{vectors.suffix(floats)}.p0"
            return vectors.call(builder, name, floats, [pointer, align, mask, zeros])

        return kind(types.intp, types.intp), emit

    @intrinsic
    def write_some(_: Any, place: Any, value: Any, count: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            place, value, count = values
            floats, pointer, align, mask = parts(builder, place, count)
            name = f"llvm.masked.store.{vectors.suffix(floats)}.p0"
            vectors.call(builder, name, ir.VoidType(), [value, pointer, align, mask])
            return context.get_dummy_value()

        return types.void(types.intp, kind, types.intp), emit

    return read_some, write_some


def _swapped(kind: Vector) -> Any:
    """A function that exchanges neighbours: (x₁, x₀, x₃, x₂, …)."""

    @intrinsic
    def swap(_: Any, x: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            order = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [i ^ 1 for i in range(kind.count)])
            return builder.shuffle_vector(values[0], ir.Constant(values[0].type, ir.Undefined), order)

        return kind(kind), emit

    return swap


def _rotator(element: Any, sine_of: Any, cosine_of: Any) -> Any:
    """A function rotate(job, index): some tokens of that type."""
    lanes, size = LANES[element], element.bitwidth // 8
    floats, words = Vector(element, lanes), Vector(types.int64, lanes)
    read, read_words, to_float = vectors.reader(floats), vectors.reader(words), vectors.converted(element)
    fill, fill_words = vectors.filled(floats), vectors.filled(words)
    read_some, write_some = _edges(floats)
    swap = _swapped(floats)
    alternating = vectors.constant(floats, tuple((-1.0, 1.0)[i % 2] for i in range(lanes)))
    read_magnitude = vectors.number_reader(types.float64)

    @inner
    def angle(position, turns, magnitude):
        """Cosines and sines of as many numbers as there are lanes, times the magnitude."""
        units = fill_words(position) * read_words(turns)
        quarter = (units + (1 << (QUARTER - 1))) >> QUARTER
        r = to_float(units - (quarter << QUARTER)) * RADIANS
        z = r * r
        sine = sine_of(z) * z * r + r
        cosine = cosine_of(z) * z * z - z * 0.5 + 1.0
        odd = (quarter & 1) == fill_words(1)
        c, s = choose(odd, sine, cosine), choose(odd, cosine, sine)
        # quarters 1 and 2 have negative cosines, 2 and 3 negative sines
        c = choose(((quarter + 1) & 2) == fill_words(2), fill(0.0) - c, c)
        s = choose((quarter & 2) == fill_words(2), fill(0.0) - s, s)
        return c * magnitude, s * magnitude

    @outer
    def rotate(job, index):
        x, positions, table, out, tokens, heads, d, pairs, interleaved, share = job
        row, magnitude = heads * d * size, read_magnitude(table)
        turns, width = table + 8, 2 * pairs if interleaved else pairs
        for t in range(index * share, min((index + 1) * share, tokens)):
            position = get_word(positions, t)
            for i in range(0, width, lanes):
                c, s = angle(position, turns + i * 8, magnitude)
                left = width - i
                if interleaved:
                    s = s * alternating()
                for head in range(heads):
                    shift = t * row + (head * d + i) * size
                    other = shift + pairs * size
                    if interleaved and left >= lanes:
                        a = read(x + shift)
                        write(out + shift, a * c + swap(a) * s)
                    elif interleaved:
                        a = read_some(x + shift, left)
                        write_some(out + shift, a * c + swap(a) * s, left)
                    elif left >= lanes:
                        a, b = read(x + shift), read(x + other)
                        write(out + shift, a * c - b * s)
                        write(out + other, b * c + a * s)
                    else:
                        a, b = read_some(x + shift, left), read_some(x + other, left)
                        write_some(out + shift, a * c - b * s, left)
                        write_some(out + other, b * c + a * s, left)
            if 2 * pairs < d:
                for head in range(heads):
                    shift = t * row + (head * d + 2 * pairs) * size
                    tile.copy(out + shift, x + shift, (d - 2 * pairs) * size)

    return rotate


rotate32 = _rotator(types.float32, _polynomial(SIN_32), _polynomial(COS_32))
rotate64 = _rotator(types.float64, _polynomial(SIN_64), _polynomial(COS_64))
ROPE_JOB = reader(10)


@outer
def tokens32(args, index):
    rotate32(ROPE_JOB(args), index)
    return 0


@outer
def tokens64(args, index):
    rotate64(ROPE_JOB(args), index)
    return 0


@inner
def rope_all(like, piece, x, positions, table, out, pairs, interleaved):
    tokens, heads, d = x.shape
    if positions.size != tokens or overlaps(out, x) or overlaps(out, positions):
        return -1
    negative = 0
    for t in range(tokens):
        negative |= positions[t] < 0
    if negative:
        return -1
    if x.size == 0:
        return 0
    chunks = 1 if x.size < SMALL else min(tokens, CHUNKS)
    share = (tokens + chunks - 1) // chunks
    job = pack((address(x), address(positions), address(table), address(out), tokens, heads, d, pairs,
                interleaved, share))  # fmt: skip
    parallel_for(address_of(piece), job, (tokens + share - 1) // share)
    return 0


def _rope32(x, positions, table, out, pairs, interleaved):
    return rope_all(F32, tokens32, x, positions, table, out, pairs, interleaved)


def _rope64(x, positions, table, out, pairs, interleaved):
    return rope_all(F64, tokens64, x, positions, table, out, pairs, interleaved)


@lru_cache(maxsize=256)
def _table(pairs: int, interleaved: bool, *parameters: Any) -> Any:
    """The magnitude as a float64, then the turns of each number that a vector takes, filled up to whole vectors."""
    turns, magnitude = rotation(pairs, *parameters)
    turns = np.repeat(turns, 1 + interleaved).view(np.int64)
    return np.concatenate([np.array([magnitude]).view(np.int64), turns, np.zeros(MOST_LANES, np.int64)])


@KERNELS.add("rope", rates=Rates(2.5e-6, 2e10, 4e10))
def rope(device: None, call: Call) -> Kernel:
    """x[...,h,d] positions[...] -> out[...,h,d]; a negative position: -1, and the core raises."""
    kind = number(call.dtype)
    signature = types.intp(source(kind, 3), source(types.int64, 1), source(types.int64, 1), target(kind, 3),
                           types.int64, types.int64)  # fmt: skip
    compiled = kernel_entry(signature)(_rope32 if kind == types.float32 else _rope64)
    given = dict(call.static)
    dims, scaling, interleaved = given["dims"], given["scaling"], given["style"] == "interleaved"

    def adapt(x: Any, positions: Any, theta: float, factor: float, context: float, slow: float, fast: float,
              magnitude: float, out: Any) -> tuple[Any, ...] | None:  # fmt: skip
        d = x.shape[-1] if x.ndim >= 2 else 0
        turned = dims or d
        if x.ndim < 2 or x.shape[:-2] != positions.shape or out.shape != x.shape or turned > d or turned % 2:
            return None
        if x.ndim != 3:
            if not (x.flags.c_contiguous and out.flags.c_contiguous and positions.flags.c_contiguous):
                return None
            tokens = positions.size
            x, out = (a.reshape(tokens, *a.shape[-2:]) for a in (x, out))
            positions = positions.reshape(tokens)
        table = _table(turned // 2, interleaved, theta, scaling, factor, context, slow, fast, magnitude)
        return x, positions, table, out, turned // 2, int(interleaved)

    return adapted(adapt, compiled)
