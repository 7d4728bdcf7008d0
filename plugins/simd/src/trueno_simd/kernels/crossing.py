"""Where the sum of a row's weights, in descending order of its numbers, passes a level, without sorting the row.

The numbers' keys (`topk`) are read from their highest bits on, eleven at a time.  The first pass adds the weight of
each number to the sum of its eleven bits; from the largest on, these sums tell in which of them the level is passed.
The next pass looks at the numbers with those bits alone, at eleven bits more: three passes for float32, six for
float64.  Numbers that are left have equal keys, and follow one another in order of position.

Floor: a pass over the row with an exponential each.  `benchmarks` has the rows (`language`, against PyTorch; `regret`,
against the other backends, which sort).
"""

import math
from typing import Any

import numpy as np
from numba import types

from trueno_simd.kernels.topk import key_of
from trueno_simd.llvm import vectors
from trueno_simd.llvm.bits import from_bits
from trueno_simd.llvm.jit import inner, outer

BITS = 11
SUMS = 1 << BITS
"""The sums that `crossing` keeps in memory, in float64."""
HALF = SUMS >> 1
MAGIC = 1.5 * 2.0**52
LOG2_E = 1 / math.log(2)
LN2_HIGH = float(np.float32(math.log(2)))
LN2_LOW = math.log(2) - LN2_HIGH
LEAST = -700.0  # below, an exponential counts as 0
C2, C3, C4, C5, C6, C7, C8, C9, C10, C11, C12, C13 = (1 / math.factorial(k) for k in range(2, 14))


@inner
def exponential(x):
    """e^x for x ≤ 0 and above `LEAST`, within 2 ulp; 0 below."""
    c = max(x, LEAST)
    t = c * LOG2_E + MAGIC
    whole = t - MAGIC
    z = (c - whole * LN2_HIGH) - whole * LN2_LOW
    p = C13 * z + C12
    p = p * z + C11
    p = p * z + C10
    p = p * z + C9
    p = p * z + C8
    p = p * z + C7
    p = p * z + C6
    p = p * z + C5
    p = p * z + C4
    p = p * z + C3
    p = p * z + C2
    p = (p * z + 1.0) * z + 1.0
    power = from_bits((np.int64(whole) + np.int64(1023)) << np.int64(52))
    return p * power if x > LEAST else 0.0


@inner
def weight(value, most, cold):
    """e^((value − most) · cold): 1 for the largest, which may be infinite."""
    return 1.0 if value == most else exponential((np.float64(value) - np.float64(most)) * cold)


def crossing_of(kind: Any) -> Any:
    """A function crossing(row, most, cold, fraction, beyond, count, last, last_at, least, sums).

    It returns the place of the first number at which the sum of weights e^((number − most) · cold) reaches `fraction`
    of the whole sum, or with `beyond` exceeds it; with `count` it is the place of the count-th number.  It looks at
    numbers down to the key `last`, at `last` itself up to place `last_at`, and of a weight of at least `least` before
    it is made cold.  sums: the address of `SUMS` words.
    """
    key, width = key_of(kind), kind.bitwidth
    load = vectors.number_reader(types.float64)

    @inner
    def kept(own, i, value, most, last, last_at, least):
        inside = own > last or (own == last and i <= last_at)
        return inside and (least <= 0.0 or weight(value, most, 1.0) >= least)

    @inner
    def passes(total, level, beyond):
        return total > level if beyond else total >= level

    @outer
    def crossing(row, most, cold, fraction, beyond, count, last, last_at, least, sums):
        level, before = np.float64(count), 0.0
        bits, prefix = width, 0
        while bits > 0:
            step = min(BITS, bits)
            first, bits = bits == width, bits - step
            for b in range(SUMS):
                vectors.write(sums + 8 * b, 0.0)
            for i in range(row.size):
                own = np.int64(key(row[i]))
                here = first or own >> (bits + step) == prefix
                if here and kept(own, i, row[i], most, last, last_at, least):
                    b = (own >> bits) + HALF if first else (own >> bits) & ((1 << step) - 1)
                    more = 1.0 if count else weight(row[i], most, cold)
                    vectors.write(sums + 8 * b, load(sums + 8 * b) + more)
            if first and not count:
                level = 0.0
                for b in range(SUMS):
                    level += load(sums + 8 * b)
                level *= fraction
            lowest, lowest_before, b = SUMS - 1, before, SUMS - 1
            while b >= 0:
                own_sum = load(sums + 8 * b)
                if own_sum > 0.0:
                    lowest, lowest_before = b, before
                    before += own_sum
                    if passes(before, level, beyond):
                        break
                b -= 1
            before = lowest_before  # rounding may leave the last level out of reach: the last number passes it then
            prefix = lowest - HALF if first else (prefix << step) | lowest
        place = 0
        for i in range(row.size):
            if key(row[i]) == prefix and kept(np.int64(prefix), i, row[i], most, last, last_at, least):
                place = i
                before += 1.0 if count else weight(row[i], most, cold)
                if passes(before, level, beyond):
                    break
        return place

    return crossing


crossing32, crossing64 = crossing_of(types.float32), crossing_of(types.float64)
