"""Logarithms of 8 float64 at once in AVX-512's own instructions: a factor from a table, no division.

A docstring ends with the largest error over 3.6 million arguments, in ulps, against 80-bit long double.
"""

import math
from typing import Any

from numba import types

from trueno_simd.llvm.wide import LOG_EDGES, NOT_NEGATIVE, Words, wide
from trueno_simd.rows import avx512_tables as tables
from trueno_simd.rows.avx512_pow import DOUBLE, reduced, split


@wide(types.float64)
def log(w: Words, x: Any) -> Any:
    """e ln 2 - ln(factor) + ln(1 + r), its three largest terms added exactly.  Error 0.52 at 1.0297."""
    e, m, index = split(w, x, DOUBLE, NOT_NEGATIVE)
    r, low = reduced(w, m, index)
    base = w.fma(e, w.number(tables.LN2_HIGH_64), w.lookup(tables.TERM_64, index))
    rest = w.fma(e, w.number(tables.LN2_LOW_64), w.lookup(tables.TERM_LOW_64, index))
    head = w.add(base, r)
    head_low = w.sub(r, w.sub(head, base))
    rest = w.fma(low, w.sub(w.number(1), r), rest)
    tail = w.fma(w.mul(r, r), w.polynomial(r, *tables.SQUARE_64), rest)
    return w.repaired(w.add(head, w.add(head_low, tail)), x, LOG_EDGES)


@wide(types.float64)
def log2(w: Words, x: Any) -> Any:
    """e - log₂(factor) + log₂(1 + r), its three largest terms added exactly; exact at powers of two.

    Error 0.53 at 1.0329.
    """
    e, m, index = split(w, x, DOUBLE, NOT_NEGATIVE)
    r, low = reduced(w, m, index)
    base = w.add(e, w.lookup(tables.TERM_LOG2, index))
    slope = w.number(1 / math.log(2))
    head = w.fma(r, slope, base)
    head_low = w.fma(r, slope, w.sub(base, head))
    rest = w.fma(low, w.fma(r, w.negative(slope), slope), w.lookup(tables.TERM_LOG2_LOW, index))
    tail = w.fma(r, w.polynomial(r, *tables.LINEAR_LOG2), rest)
    return w.repaired(w.add(head, w.add(head_low, tail)), x, LOG_EDGES)
