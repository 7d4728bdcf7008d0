"""x^y for AVX-512, of both types: e^(y ln|x|) with the logarithm and the product as pairs, no division.

A register whose bases are all positive and finite, and whose exponents are not huge, needs no special case; one that
has any other lane takes a branch to a function that computes all lanes with the special cases, by the same steps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numba import types

from trueno_simd.llvm.wide import ABSOLUTE, Words, wide
from trueno_simd.rows import avx512_tables as tables

NOT_POSITIVE = 0b11011111  # `vfpclass`: NaN, ±0, ±Inf, negative
LAST_CELL = 1.46875 - 2.0**-23  # the sixteenths around 1.4375 and, up to 1.5, what is nearer to the next


@dataclass(frozen=True)
class Format:
    """What differs between the types."""

    mantissa: int
    """Digits after the point."""
    ln2: tuple[float, float]
    terms: tuple[tuple[float, ...], tuple[float, ...]]
    cubic: Sequence[float]
    exp: tuple[float, ...]
    past: float
    """e^±past over- and underflow."""
    largest: float
    """Larger |y| over- or underflow for every |x| but 1, as this one does, and are even."""

    @property
    def magic(self) -> float:
        """t = x + magic holds the nearest sixteenth in its low bits."""
        return 1.5 * 2.0 ** (self.mantissa - 4)


SINGLE = Format(
    23,
    (tables.LN2_HIGH_32, tables.LN2_LOW_32),
    (tables.TERM_32, tables.TERM_LOW_32),
    tables.CUBIC_32,
    tables.EXP_32,
    106.0,
    2147483520.0,
)
DOUBLE = Format(
    52,
    (tables.LN2_HIGH_64, tables.LN2_LOW_64),
    (tables.TERM_64, tables.TERM_LOW_64),
    tables.CUBIC_64,
    tables.EXP_64,
    750.0,
    2.0**66,
)


def split(w: Words, x: Any, f: Format, sign: int) -> tuple[Any, Any, Any]:
    """(e, m, index) of |x| = 2^e m, 3/4 <= m < 3/2; the index of m's nearest sixteenth (thirty-second below 1)."""
    e, m = w.parts(x, sign)
    cell = w.builder.add(w.bits(w.at_most(LAST_CELL, m)), w.whole(1 << (f.mantissa - 5)))
    return e, m, w.shifted(cell, 4 - f.mantissa)


def reduced(w: Words, m: Any, index: Any) -> tuple[Any, Any]:
    """m · factor - 1 as a pair, at most 1/30, exactly."""
    factor = w.lookup(tables.FACTOR, index)
    product = w.mul(m, factor)
    return w.sub(product, w.number(1)), w.fma(m, factor, w.negative(product))


def log_pair(w: Words, x: Any, f: Format) -> tuple[Any, Any]:
    """ln|x| as head + tail: e ln 2 - ln(factor) + ln(1 + r)."""
    e, m, index = split(w, x, f, ABSOLUTE)
    r, low = reduced(w, m, index)
    cubic = f.cubic
    square = w.mul(r, r)
    cube, less = w.mul(square, r), w.sub(w.number(1), r)
    half = w.mul(r, w.number(-0.5))
    sum_ = w.fma(r, half, r)  # r - r²/2, and what it lost
    lost = w.fma(r, half, w.sub(r, sum_))
    if f is DOUBLE:  # and the third term, without which the error would be 1.07
        (third, *cubic), two = cubic, sum_
        sum_ = w.fma(cube, w.number(third), two)
        lost = w.add(lost, w.fma(cube, w.number(third), w.sub(two, sum_)))
        cube = w.mul(cube, r)
    base = w.fma(e, w.number(f.ln2[0]), w.lookup(f.terms[0], index))
    rest = w.fma(e, w.number(f.ln2[1]), w.lookup(f.terms[1], index))
    head = w.add(base, sum_)
    rest = w.add(rest, w.sub(sum_, w.sub(head, base)))
    inverse = w.fma(less, square, less)  # 1 - r + r² - r³
    tail = w.fma(low, inverse, w.add(rest, lost))
    return head, w.fma(cube, w.polynomial(r, *cubic), tail)


def exp_pair(w: Words, x: Any, low: Any, f: Format) -> Any:
    """e^(x + low) for |x| <= f.past."""
    t = w.fma(w.add(x, low), w.number(1 / math.log(2)), w.number(f.magic))
    n = w.sub(t, w.number(f.magic))
    r = w.add(w.fma(n, w.number(-f.ln2[0]), x), w.fma(n, w.number(-f.ln2[1]), low))
    p = w.fma(w.mul(r, r), w.polynomial(r, *f.exp), r)
    root = w.lookup(tables.ROOT, w.bits(t))
    if f is SINGLE:
        return w.scaled(w.fma(root, p, root), n)
    return w.scaled(w.add(root, w.fma(root, p, w.lookup(tables.ROOT_LOW, w.bits(t)))), n)


def usual(w: Words, x: Any, y: Any, f: Format) -> tuple[Any, Any]:
    """(|x|^y, its exponent) where x is not 0, infinite or NaN, and |y| <= f.largest."""
    head, tail = log_pair(w, x, f)
    p = w.mul(y, head)
    near = w.at_most(f.past, w.at_least(-f.past, p))
    low = w.fma(y, tail, w.fma(y, head, w.negative(p)))
    low = w.select(w.compare(near, "==", p), low, w.number(0))
    return exp_pair(w, near, low, f), near


def unusual(w: Words, x: Any, y: Any, f: Format) -> Any:
    """x^y in every case, as C99 has them."""
    z, near = usual(w, x, w.at_most(f.largest, w.at_least(-f.largest, y)), f)
    both, zero = w.builder.and_, w.number(0)
    whole = w.compare(w.rest(y), "==", zero)
    odd = both(whole, w.compare(w.rest(w.mul(y, w.number(0.5))), "!=", zero))
    z = w.flip_sign(z, w.select(odd, w.bits(x), w.whole(0)))
    negative = both(w.compare(x, "<", zero), w.compare(x, ">", -math.inf))
    z = w.select(both(negative, w.builder.not_(whole)), w.number(math.nan), z)
    z = w.select(w.compare(near, "uno", near), w.add(x, y), z)
    return w.select(w.builder.or_(w.compare(x, "==", 1), w.compare(y, "==", zero)), w.number(1), z)


def power(w: Words, x: Any, y: Any, f: Format) -> Any:
    """x^y; a branch for registers in which an x is not positive and finite, or a y huge."""
    z, _ = usual(w, x, y, f)
    huge = w.builder.not_(w.compare(w.absolute(y), "<", f.largest))
    rare = w.builder.or_(huge, w.is_class(x, NOT_POSITIVE))
    return w.unless_any(rare, z, f"trueno_simd_{w.kind.name}_pow_unusual", lambda w, x, y: unusual(w, x, y, f), x, y)


@wide(types.float32)
def pow32(w: Words, x: Any, y: Any) -> Any:
    """x^y of float32.  Error 1.001 at 0.9835 ** -5182.7, of 347 million samples: any bits, integers, bases near 1."""
    return power(w, x, y, SINGLE)


@wide(types.float64)
def pow64(w: Words, x: Any, y: Any) -> Any:
    """x^y of float64.  Error 0.79 at 1.0247 ** -29065.1, of 22 million samples against long double."""
    return power(w, x, y, DOUBLE)
