"""Operands copied into the order in which tiles load them, float32 split into three bfloat16 parts on the way.

A strip is 16 rows of A, or 16 columns of B.  It holds, for each 32 steps of k, a tile of 1 KiB per part: of A 16 rows
of 32 numbers, of B 16 pairs of rows, the two numbers of a column side by side.  What is outside of the matrix is zero.

x = high + middle + low, each part rounded to the nearest bfloat16 of what is left, so that |middle| ≤ 2⁻⁸ |x| and
|low| ≤ 2⁻¹⁷ |x|, and nothing is left: 24 bits, at most 8 per part.  This is exact while no part is subnormal or
infinite, so the packers note the largest and the smallest magnitude that they meet, for `exact`.
"""

from numba import types

from trueno_simd.kernels import tile
from trueno_simd.llvm.amx import ROW, ROWS, TILE
from trueno_simd.llvm.jit import inner, outer
from trueno_simd.llvm.memory import stack
from trueno_simd.llvm.streaming import at
from trueno_simd.llvm.vectors import Vector, bits, converted, filled, larger_unsigned, most_unsigned, reader, write

STEP = 32  # numbers of k in one tile
PARTS = 3  # of a float32
STRIP_STEP32, STRIP_STEP16 = PARTS * TILE, TILE  # bytes of a strip per step
LIMITS = 2  # int64: bits of the largest magnitude; 2³² less bits of the smallest that is not zero, or 0

_WORDS, _SHORTS = Vector(types.uint32, 16), Vector(types.uint16, 16)
_words, _shorts, _zeros = reader(_WORDS), reader(_SHORTS), filled(_WORDS)
_short, _word = converted(types.uint16), converted(types.uint32)
_as_floats, _as_words = bits(Vector(types.float32, 16)), bits(_WORDS)
_room = stack(types.uint8, 2 * ROW)
_SIZE, _HIGH = 0x7FFFFFFF, 0xFFFF0000


@inner
def _rounded(words):
    """The nearest bfloat16 of these floats, as a float; ties away from zero."""
    return (words + 0x8000) & _HIGH


@inner
def _left(words, part):
    """What a part leaves of these floats, exactly."""
    return _as_words(_as_floats(words) - _as_floats(part))


@inner
def _note(limits, top, low):
    """Add the magnitudes that were met to LIMITS at an address: `top` as they are, `low` negated."""
    tile.put_word(limits, 0, max(tile.get_word(limits, 0), types.int64(most_unsigned(top))))
    tile.put_word(limits, 1, max(tile.get_word(limits, 1), types.int64(most_unsigned(low))))


@outer
def strip32(a, a_row, rows, depth, target, limits):
    """16 rows of A in float32, of which `rows` exist."""
    room = at(_room(), 0)
    top, low = _zeros(0), _zeros(0)
    for r in range(ROWS):
        place = target + r * ROW
        for p in range(0, depth, STEP):
            if r >= rows:
                for part in range(PARTS):
                    write(place + part * TILE, _zeros(0))
            else:
                source = a + r * a_row + p * 4
                if p + STEP > depth:
                    tile.clear(room, STEP * 4)
                    tile.copy(room, source, (depth - p) * 4)
                    source = room
                first, second = _words(source), _words(source + ROW)
                size, size2 = first & _SIZE, second & _SIZE
                top = larger_unsigned(larger_unsigned(top, size), size2)
                low = larger_unsigned(larger_unsigned(low, 0 - size), 0 - size2)
                for part in range(PARTS):
                    head, head2 = _rounded(first), _rounded(second)
                    write(place + part * TILE, _short(head >> 16))
                    write(place + part * TILE + ROW // 2, _short(head2 >> 16))
                    first, second = _left(first, head), _left(second, head2)
            place += STRIP_STEP32
    _note(limits, top, low)


@outer
def strip16(a, a_row, rows, depth, target, limits):
    """16 rows of A in bfloat16, of which `rows` exist."""
    room = at(_room(), 0)
    top, low = _zeros(0), _zeros(0)
    for r in range(ROWS):
        place = target + r * ROW
        for p in range(0, depth, STEP):
            if r >= rows:
                write(place, _zeros(0))
            else:
                source = a + r * a_row + p * 2
                if p + STEP > depth:
                    tile.clear(room, ROW)
                    tile.copy(room, source, (depth - p) * 2)
                    source = room
                words = _words(source)
                size, size2 = (words << 16) & _SIZE, words & (_SIZE & _HIGH)
                top = larger_unsigned(larger_unsigned(top, size), size2)
                low = larger_unsigned(larger_unsigned(low, 0 - size), 0 - size2)
                write(place, words)
            place += STRIP_STEP16
    _note(limits, top, low)


@outer
def strips32(b, b_row, columns, depth, count, target, strip, limits):
    """`count` strips of B in float32, of whose columns `columns` exist; a strip has `strip` bytes."""
    room = at(_room(), 0)
    top, low = _zeros(0), _zeros(0)
    for p in range(0, (depth + STEP - 1) // STEP * STEP, 2):
        place = target + p // STEP * STRIP_STEP32 + p % STEP // 2 * ROW
        for j in range(0, count * ROWS, ROWS):
            if p >= depth or j >= columns:
                for part in range(PARTS):
                    write(place + part * TILE, _zeros(0))
            else:
                above = b + p * b_row + j * 4
                below = above + b_row
                if p + 1 == depth or j + ROWS > columns:
                    tile.clear(room, 2 * ROW)
                    tile.copy(room, above, min(columns - j, ROWS) * 4)
                    if p + 1 < depth:
                        tile.copy(room + ROW, below, min(columns - j, ROWS) * 4)
                    above, below = room, room + ROW
                first, second = _words(above), _words(below)
                size, size2 = first & _SIZE, second & _SIZE
                top = larger_unsigned(larger_unsigned(top, size), size2)
                low = larger_unsigned(larger_unsigned(low, 0 - size), 0 - size2)
                for part in range(PARTS):
                    head, head2 = _rounded(first), _rounded(second)
                    write(place + part * TILE, (head >> 16) | head2)
                    first, second = _left(first, head), _left(second, head2)
            place += strip
    _note(limits, top, low)


@outer
def strips16(b, b_row, columns, depth, count, target, strip, limits):
    """`count` strips of B in bfloat16, of whose columns `columns` exist; a strip has `strip` bytes."""
    room = at(_room(), 0)
    top, low = _zeros(0), _zeros(0)
    for p in range(0, (depth + STEP - 1) // STEP * STEP, 2):
        place = target + p // STEP * STRIP_STEP16 + p % STEP // 2 * ROW
        for j in range(0, count * ROWS, ROWS):
            if p >= depth or j >= columns:
                write(place, _zeros(0))
            else:
                above = b + p * b_row + j * 2
                below = above + b_row
                if p + 1 == depth or j + ROWS > columns:
                    tile.clear(room, ROW)
                    tile.copy(room, above, min(columns - j, ROWS) * 2)
                    if p + 1 < depth:
                        tile.copy(room + ROW // 2, below, min(columns - j, ROWS) * 2)
                    above, below = room, room + ROW // 2
                words = _word(_shorts(above)) | (_word(_shorts(below)) << 16)
                size, size2 = (words << 16) & _SIZE, words & (_SIZE & _HIGH)
                top = larger_unsigned(larger_unsigned(top, size), size2)
                low = larger_unsigned(larger_unsigned(low, 0 - size), 0 - size2)
                write(place, words)
            place += strip
    _note(limits, top, low)


@inner
def _exponents(limits):
    """The least and the greatest exponent of what was met; zeros alone count as 1."""
    largest, smallest = tile.get_word(limits, 0), (1 << 32) - tile.get_word(limits, 1)
    if largest == 0:
        return 0, 0
    return (smallest >> 23) - 127, (largest >> 23) - 127


@inner
def exact(of_a, of_b, digits):
    """Whether tiles multiply what was met as float32 would: no part, product or sum is subnormal or overflows.

    digits: of an operand's last bit below its first; 23, or 7 of bfloat16.  All parts of a product are multiples of the
    product of the operands' last bits, and so are all sums.
    """
    least_a, most_a = _exponents(of_a)
    least_b, most_b = _exponents(of_b)
    if min(least_a, least_b) < -126 + digits or max(most_a, most_b) > 126:
        return False
    return least_a + least_b >= -126 + 2 * digits and most_a + most_b <= 100
