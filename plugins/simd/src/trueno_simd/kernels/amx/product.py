"""c[m,n] = a[m,k] b[k,n] on AMX's tiles.

Operands are packed into strips (`pack`) for a slab of k at a time, then blocks of C are multiplied 32 by 32: four
tiles of sums, two of A and two of B.  A float32 product is six of bfloat16, the small ones first:

    h·l' + h·m' + m·m' + m·h' + l·h' + h·h'

What is left out, m·l' + l·m' + l·l', is below 1.01 u |a||b| with u = 2⁻²⁴.  A term passes through at most 16 additions
in its tile and 6 per 32 steps of k in C, so that the error is at most (1.02 (16 + 6 ⌈k / 32⌉) + 1.01) u Σ|a||b|, which
is less than the (k + 4) u Σ|a||b| of any order of float32 operations if k is 32 or more.  With bfloat16 operands it is
(16 + ⌈k / 32⌉) u, before the one rounding of the result.

Where an operand has magnitudes for which this does not hold (`pack.exact`), infinities or NaN, nothing is multiplied,
and the caller takes its other way.
"""

from functools import cache
from typing import Any

from numba import types

from trueno_simd.kernels import tile
from trueno_simd.kernels.amx import pack as packing
from trueno_simd.kernels.amx.pack import LIMITS, STEP, STRIP_STEP16, STRIP_STEP32, exact
from trueno_simd.kernels.operands import reader
from trueno_simd.llvm.amx import HARDWARE, ROW, ROWS, TILE, Tiles
from trueno_simd.llvm.calls import call_finish, pack
from trueno_simd.llvm.jit import inner, outer, special
from trueno_simd.llvm.memory import stack
from trueno_simd.llvm.streaming import at
from trueno_simd.llvm.vectors import Vector, converted, number_reader, write
from trueno_simd.llvm.vectors import reader as vector_reader
from trueno_simd.threads.pool import parallel_for

SIDE = 2 * ROWS  # rows and columns of C that one micro-kernel makes
COPIED = 4  # strips of A in one chunk of packing
GROUP = 16  # strips of B in one chunk of packing

_words, _short, get_float = (
    vector_reader(Vector(types.uint32, 16)),
    converted(types.uint16),
    number_reader(types.float32),
)
_corner, _row = stack(types.float32, SIDE * SIDE), stack(types.float32, ROWS)

# One form of the instructions: `product` gives the functions below copies over the form that is asked for.
reserve, configure, release = HARDWARE.reserve, HARDWARE.configure, HARDWARE.release
zero, load, store, dot = HARDWARE.zero, HARDWARE.load, HARDWARE.store, HARDWARE.dot


@inner
def begin(file, c, c_row, accumulate):
    if accumulate:
        load(file, 0, c, c_row)
        load(file, 1, c + ROW, c_row)
        load(file, 2, c + ROWS * c_row, c_row)
        load(file, 3, c + ROWS * c_row + ROW, c_row)
    else:
        zero(file, 0)
        zero(file, 1)
        zero(file, 2)
        zero(file, 3)


@inner
def end(file, c, c_row):
    store(file, 0, c, c_row)
    store(file, 1, c + ROW, c_row)
    store(file, 2, c + ROWS * c_row, c_row)
    store(file, 3, c + ROWS * c_row + ROW, c_row)


@outer
def micro32(file, a, a_strip, b, b_strip, c, c_row, steps, accumulate):
    """32 by 32 numbers of C from two strips of A and two of B, in three parts each."""
    begin(file, c, c_row, accumulate)
    for step in range(steps):
        high, high2 = a + step * STRIP_STEP32, a + a_strip + step * STRIP_STEP32
        right, right2 = b + step * STRIP_STEP32, b + b_strip + step * STRIP_STEP32
        load(file, 4, high, ROW)
        load(file, 6, right + 2 * TILE, ROW)
        dot(file, 0, 4, 6)
        load(file, 7, right2 + 2 * TILE, ROW)
        dot(file, 1, 4, 7)
        load(file, 5, high2, ROW)
        dot(file, 2, 5, 6)
        dot(file, 3, 5, 7)
        load(file, 6, right + TILE, ROW)
        dot(file, 0, 4, 6)
        dot(file, 2, 5, 6)
        load(file, 7, right2 + TILE, ROW)
        dot(file, 1, 4, 7)
        dot(file, 3, 5, 7)
        load(file, 4, high + TILE, ROW)
        dot(file, 0, 4, 6)
        dot(file, 1, 4, 7)
        load(file, 5, high2 + TILE, ROW)
        dot(file, 2, 5, 6)
        dot(file, 3, 5, 7)
        load(file, 6, right, ROW)
        dot(file, 0, 4, 6)
        dot(file, 2, 5, 6)
        load(file, 7, right2, ROW)
        dot(file, 1, 4, 7)
        dot(file, 3, 5, 7)
        load(file, 4, high + 2 * TILE, ROW)
        dot(file, 0, 4, 6)
        dot(file, 1, 4, 7)
        load(file, 5, high2 + 2 * TILE, ROW)
        dot(file, 2, 5, 6)
        dot(file, 3, 5, 7)
        load(file, 4, high, ROW)
        dot(file, 0, 4, 6)
        dot(file, 1, 4, 7)
        load(file, 5, high2, ROW)
        dot(file, 2, 5, 6)
        dot(file, 3, 5, 7)
    end(file, c, c_row)


@outer
def micro16(file, a, a_strip, b, b_strip, c, c_row, steps, accumulate):
    """The same in one part."""
    begin(file, c, c_row, accumulate)
    for step in range(steps):
        left, right = a + step * STRIP_STEP16, b + step * STRIP_STEP16
        load(file, 4, left, ROW)
        load(file, 6, right, ROW)
        dot(file, 0, 4, 6)
        load(file, 7, right + b_strip, ROW)
        dot(file, 1, 4, 7)
        load(file, 5, left + a_strip, ROW)
        dot(file, 2, 5, 6)
        dot(file, 3, 5, 7)
    end(file, c, c_row)


# What differs between float32 and bfloat16 operands.
micro, strip_of_a, strips_of_b = micro32, packing.strip32, packing.strips32
SIZE, STRIP_STEP = 4, STRIP_STEP32


@outer
def pack_piece(args, index):
    """A group of B's strips, or some strips of A."""
    a, a_row, b, b_row, m, n, depth, a_packed, b_packed, strip, limits = PACK_JOB(args)
    of_b = limits + index * LIMITS * 8
    tile.clear(of_b, LIMITS * 8)
    groups = (n + GROUP * ROWS - 1) // (GROUP * ROWS)
    if index < groups:
        first = index * GROUP
        count = min((n + SIDE - 1) // SIDE * 2 - first, GROUP)
        strips_of_b(
            b + first * ROWS * SIZE, b_row, n - first * ROWS, depth, count, b_packed + first * strip, strip, of_b
        )
        return 0
    first = (index - groups) * COPIED
    for i in range(first, min(first + COPIED, (m + SIDE - 1) // SIDE * 2)):
        strip_of_a(a + i * ROWS * a_row, a_row, m - i * ROWS, depth, a_packed + i * strip, of_b)
    return 0


@outer
def block_piece(args, index):
    """One block of C; blocks are counted down the rows first, so that neighbours share B's strips."""
    (a, b, strip, c, c_row, m, n, steps, depth, accumulate, rows, columns,
     result, finish, more, above) = BLOCK_JOB(args)  # fmt: skip
    down = (m + rows - 1) // rows
    top, left = index % down * rows, index // down * columns
    bottom, right = min(top + rows, m), min(left + columns, n)
    high, wide = (bottom - top + SIDE - 1) // SIDE, (right - left + SIDE - 1) // SIDE
    whole = result and not accumulate and depth >= steps  # C is visited once, and needs no sums in memory
    corner = at(_corner(), 0)
    file = reserve()
    configure(file)
    for step in range(0, steps, depth):
        count, adds = min(depth, steps - step), accumulate or step > 0
        for q in range(high * wide):
            i, j = top + q // wide * SIDE, left + q % wide * SIDE
            from_a = a + i // ROWS * strip + step * STRIP_STEP
            from_b = b + j // ROWS * strip + step * STRIP_STEP
            place = c + i * c_row + j * 4
            if whole:
                micro(file, from_a, strip, from_b, strip, corner, 2 * ROW, count, 0)
                round_corner(result + (i * n + j) * 2, n * 2, corner, min(SIDE, bottom - i), min(SIDE, right - j))
            elif i + SIDE <= bottom and j + SIDE <= right:
                micro(file, from_a, strip, from_b, strip, place, c_row, count, adds)
            else:
                micro(file, from_a, strip, from_b, strip, corner, 2 * ROW, count, 0)
                put_corner(place, c_row, corner, min(SIDE, bottom - i), min(SIDE, right - j), adds)
    release(file)
    if result and not whole:
        for i in range(top, bottom):
            round_row(c + i * c_row + left * 4, result + (i * n + left) * 2, right - left)
    if finish:
        call_finish(finish, more, above + top, bottom - top, left, right - left)
    return 0


@outer
def put_corner(c, c_row, corner, rows, columns, adds):
    """Put what exists of 32 by 32 numbers into C."""
    for i in range(rows):
        for j in range(0, columns * 4, 4):
            place = c + i * c_row + j
            value = get_float(corner + i * 2 * ROW + j)
            write(place, get_float(place) + value if adds else value)


@outer
def round_corner(c, c_row, corner, rows, columns):
    """Put what exists of 32 by 32 numbers into a bfloat16 C."""
    for i in range(rows):
        round_row(corner + i * 2 * ROW, c + i * c_row, columns)


@outer
def round_row(source, target, count):
    """Finite float32 to bfloat16, ties to even."""
    room = at(_row(), 0)
    for j in range(0, count, ROWS):
        place = target + j * 2
        if j + ROWS > count:
            tile.copy(room, source + j * 4, (count - j) * 4)
            words = _words(room)
        else:
            words = _words(source + j * 4)
        short = _short((words + 0x7FFF + ((words >> 16) & 1)) >> 16)
        if j + ROWS > count:
            write(room, short)
            tile.copy(place, room, (count - j) * 2)
        else:
            write(place, short)


PACK_JOB, BLOCK_JOB = reader(11), reader(16)


@inner
def places(size, step_bytes, m, n, slab, scratch):
    """Chunks of packing; where B's strips, A's and the sums of a bfloat16 C are in scratch; and its end."""
    chunks = (n + GROUP * ROWS - 1) // (GROUP * ROWS) + (m + COPIED * ROWS - 1) // (COPIED * ROWS)
    strip = strip_bytes(slab // STEP, step_bytes)
    b_packed = ((scratch + 63) // 64 + (chunks * LIMITS * 8 + 63) // 64) * 64
    a_packed = b_packed + (n + SIDE - 1) // SIDE * 2 * strip
    sums = a_packed + (m + SIDE - 1) // SIDE * 2 * strip
    return chunks, b_packed, a_packed, sums, sums + (0 if size == 4 else m * pitch(n)) + 64


@inner
def strip_bytes(steps, step_bytes):
    """From one strip to the next: no multiple of a page, as a line of each of many strips is written in turn."""
    return steps * step_bytes + ROW


@inner
def pitch(n):
    """Bytes of a row of sums: not a power of two, so that rows spread over the sets of a cache."""
    return (n * 4 + 63) // 64 * 64 + 64


@inner
def slab_of(most, k):
    return min(most, (k + STEP - 1) // STEP * STEP)


@inner
def all_exact(limits, groups, chunks, digits):
    """Whether what all chunks of packing met can be multiplied; their notes are joined in those of the first."""
    of_a, of_b = limits + groups * LIMITS * 8, limits
    for i in range(1, groups):
        join(of_b, limits + i * LIMITS * 8)
    for i in range(groups + 1, chunks):
        join(of_a, limits + i * LIMITS * 8)
    return exact(of_a, of_b, digits)


@inner
def join(limits, others):
    for i in range(LIMITS):
        tile.put_word(limits, i, max(tile.get_word(limits, i), tile.get_word(others, i)))


@inner
def multiply(size, step_bytes, pack_at, block_at, a, b, c, m, n, k, scratch, shape, finish, more, above):
    """The product, and 1; or 0 where magnitudes forbid it, with nothing finished (a float32 C may hold sums).

    size: bytes of an operand's number.  shape: numbers of k in a slab and between two visits of C, rows and columns of
    a block.
    """
    slab, depth, rows, columns = shape
    slab = slab_of(slab, k)
    chunks, b_packed, a_packed, sums, _ = places(size, step_bytes, m, n, slab, scratch)
    groups = (n + GROUP * ROWS - 1) // (GROUP * ROWS)
    limits = (scratch + 63) // 64 * 64
    rows = min(rows, ((m + 1) // 2 + SIDE - 1) // SIDE * SIDE)
    target, row = (c, n * 4) if size == 4 else (sums, pitch(n))
    for p in range(0, k, slab):
        numbers = min(slab, k - p)
        steps = (numbers + STEP - 1) // STEP
        strip, last = strip_bytes(steps, step_bytes), p + numbers == k
        job = pack(
            (a + p * size, k * size, b + p * n * size, n * size, m, n, numbers, a_packed, b_packed, strip, limits)
        )
        parallel_for(pack_at, job, chunks)
        if not all_exact(limits, groups, chunks, 23 if size == 4 else 7):
            return 0
        work = pack((a_packed, b_packed, strip, target, row, m, n, steps, depth // STEP, int(p > 0), rows, columns,
                     c if last and size == 2 else 0, finish if last else 0, more, above))  # fmt: skip
        parallel_for(block_at, work, (m + rows - 1) // rows * ((n + columns - 1) // columns))
    return 1


@cache
def over(tiles: Tiles, bits_: int) -> tuple[Any, Any]:
    """The pieces `(pack, block)` of products of float32 (32) or bfloat16 (16) operands over one form of the tiles."""
    word, namespace = f"{tiles.name}{bits_}", {name: getattr(tiles, name) for name in Tiles.__slots__ if name != "name"}
    namespace |= {
        "micro": micro32 if bits_ == 32 else micro16,
        "strip_of_a": packing.strip32 if bits_ == 32 else packing.strip16,
        "strips_of_b": packing.strips32 if bits_ == 32 else packing.strips16,
        "SIZE": bits_ // 8,
        "STRIP_STEP": STRIP_STEP32 if bits_ == 32 else STRIP_STEP16,
    }
    namespace["begin"] = inner(special(begin, f"begin_{word}", namespace))
    namespace["end"] = inner(special(end, f"end_{word}", namespace))
    namespace["micro"] = outer(special(namespace["micro"], f"micro_{word}", namespace))
    pieces = (
        outer(special(piece, f"{piece.py_func.__name__}_{word}", namespace)) for piece in (pack_piece, block_piece)
    )
    return tuple(pieces)  # type: ignore[return-value]
