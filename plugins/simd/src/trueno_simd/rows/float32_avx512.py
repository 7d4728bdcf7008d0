"""Elementary functions of 16 float32 at once in AVX-512's own instructions: tables in registers, no division.

Each function is one straight line, and where it can be, special arguments are what its instructions make of them:
`vgetexp` is -Inf at 0 and Inf at Inf, `vgetmant` is NaN for what is negative, `vscalef` over- and underflows.
The polynomials are minimax fits by Lawson's iteration, each coefficient rounded to float32 and held before the next.
A table's argument is chosen so that its entry is a float32 to a hundredth of an ulp or better.  A docstring ends with
the largest error over all 2³² arguments, in ulps, oracle float64.
"""

import math
from typing import Any

from numba import types

from trueno_simd.llvm.bits import absolute, select
from trueno_simd.llvm.jit import inner
from trueno_simd.llvm.wide import EXACT, LOG_EDGES, NOT_NEGATIVE, ROOT_EDGES, RSQRT_EDGES, Words, wide
from trueno_simd.rows import float32_tables as tables
from trueno_simd.rows.avx512_tables import EXP_32, ROOT
from trueno_simd.rows.float32_trig import (
    HALF_PI_1,
    HALF_PI_2,
    HALF_PI_3,
    LIMIT,
    cos_beyond,
    sin_beyond,
    tan_beyond,
)

MAGIC = 1.5 * 2.0**23  # t = x + MAGIC holds the nearest integer in its low bits, and t - MAGIC is it
MAGIC_16 = 1.5 * 2.0**19  # the same for sixteenths
LN2_HIGH, LN2_LOW = 0.693359375, math.log(2) - 0.693359375
EXPM1 = (0.49999994, 0.16666521, 0.041668274, 0.008368683, 0.0013820052)
EXP2 = (1.0, 0.6931472, 0.2402265, 0.055503596, 0.0096180625, 0.0013391011, 0.00015462885)
LOG10_2_HIGH = 1233 / 4096
SIN = (-0.1666666, 0.008333062, -0.00019809193, 2.6049727e-06)
TAN = (0.33333156, 0.13338834, 0.05340844, 0.024440153, 0.0031040586, 0.009394671)
PI_1, PI_2, PI_3 = 3.1415927410125732, -8.742277657347586e-08, -3.430249016600334e-15


def _reduced(w: Words, x: Any, magic: float) -> tuple[Any, Any, Any]:
    """(t, n, r): x = n ln 2 + r, n the nearest integer or sixteenth, whose digits are the low bits of t = n + magic."""
    t = w.fma(x, w.number(1 / math.log(2)), w.number(magic))
    n = w.sub(t, w.number(magic))
    return t, n, w.fma(n, w.number(-LN2_LOW), w.fma(n, w.number(-LN2_HIGH), x))


@wide(types.float32)
def exp(w: Words, x: Any) -> Any:
    """2^(n/16) e^r, |r| <= ln 2 / 32, a root from a table, degree 3.  Error 0.99 at -22.03."""
    t, n, r = _reduced(w, w.at_most(89, w.at_least(-104, x)), MAGIC_16)
    root = w.lookup(ROOT, w.bits(t))
    p = w.fma(w.mul(r, r), w.polynomial(r, *EXP_32), r)
    return w.scaled(w.fma(root, p, root), n)


@wide(types.float32)
def exp2(w: Words, x: Any) -> Any:
    """2ⁿ 2^r, |r| <= 1/2, degree 6; exact at integers.  Error 0.88 at -126.5."""
    r = w.rest(x)
    return w.scaled(w.polynomial(r, *EXP2), w.sub(x, r))


@wide(types.float32)
def expm1(w: Words, x: Any) -> Any:
    """2ⁿ ((e^r - 1) + (1 - 2⁻ⁿ)), |r| <= ln 2 / 2, degree 6.  Error 1.46 at 0.381."""
    t, n, r = _reduced(w, w.at_most(89, w.at_least(-18, x)), MAGIC)
    p = w.fma(w.mul(r, r), w.polynomial(r, *EXPM1), r)
    twice = w.from_bits(w.builder.sub(w.bits(w.number(2)), w.shifted(w.bits(t), 23)))  # 2^(1 - n), or 0 for n = 128
    return w.copysign(w.scaled(w.add(p, w.fma(twice, w.number(-0.5), w.number(1))), n), x)


def _parts(w: Words, x: Any, factors: Any, terms: Any) -> tuple[Any, Any, Any, Any]:
    """(e, r, factor, term) of x = 2^e m, 3/4 <= m < 3/2: r = m · factor - 1, |r| <= 1/16, term = -log(factor)."""
    e, m = w.parts(x, NOT_NEGATIVE)
    index = w.shifted(w.bits(m), -19)  # the top four digits after the point
    factor = w.lookup(factors, index)
    return e, w.fma(m, factor, w.number(-1)), factor, w.lookup(terms, index)


@wide(types.float32)
def log(w: Words, x: Any) -> Any:
    """e ln 2 - ln(factor) + ln(1 + r), degree 5.  Error 0.997 at 0.9663."""
    e, r, _, term = _parts(w, x, tables.LOG_FACTOR, tables.LOG_TERM)
    p = w.fma(w.mul(r, r), w.polynomial(r, *tables.LOG), r)
    return w.fma(e, w.number(math.log(2)), w.add(term, p))


@wide(types.float32)
def log2(w: Words, x: Any) -> Any:
    """e - log₂(factor) + log₂(1 + r), degree 5; e and the term add exactly.  Error 1.23 at 1.063."""
    e, r, _, term = _parts(w, x, tables.LOG2_FACTOR, tables.LOG2_TERM)
    return w.add(w.add(e, term), w.fma(r, w.polynomial(r, *tables.LOG2), r))


@wide(types.float32)
def log10(w: Words, x: Any) -> Any:
    """e log₁₀2 - log₁₀(factor) + log₁₀(1 + r), degree 5.  Error 1.08 at 1.130.

    The term and e times the first eleven digits of log₁₀2 add exactly: both are multiples of 2⁻¹⁸.
    """
    e, r, _, term = _parts(w, x, tables.LOG10_FACTOR, tables.LOG10_TERM)
    p = w.fma(r, w.polynomial(r, *tables.LOG10), w.mul(r, w.number(0.5)))
    p = w.fma(e, w.number(math.log10(2) - LOG10_2_HIGH), p)
    return w.add(w.fma(e, w.number(LOG10_2_HIGH), term), p)


@wide(types.float32)
def log1p(w: Words, x: Any) -> Any:
    """As ln u, u = 1 + x, but with r = x f + (f - 1) and f = factor · 2^-e: x itself.  Error 1.01 at 0.0639."""
    u = w.add(x, w.number(1))
    e, _, factor, term = _parts(w, u, tables.LOG_FACTOR, tables.LOG_TERM)
    f = w.scaled(factor, w.sub(w.number(0), e))
    r = w.fma(x, f, w.sub(f, w.number(1)))
    p = w.fma(w.mul(r, r), w.polynomial(r, *tables.LOG), r)
    y = w.fma(e, w.number(math.log(2)), w.add(term, p))
    return w.repaired(w.copysign(y, x), u, LOG_EDGES)


@wide(types.float32)
def log1p_unit(w: Words, u: Any) -> Any:
    """ln(1 + u) for 0 <= u <= 1: r = (1 + u) factor - 1, a factor for each fifteenth.  Error 1.05 at 0.034."""
    index = w.bits(w.fma(u, w.number(15), w.number(MAGIC)))
    factor = w.lookup(tables.UNIT_FACTOR, index)
    r = w.fma(u, factor, w.sub(factor, w.number(1)))
    p = w.fma(w.mul(r, r), w.polynomial(r, *tables.UNIT), r)
    return w.add(w.lookup(tables.UNIT_TERM, index), p)


@wide(types.float32)
def rsqrt(w: Words, x: Any) -> Any:
    """A guess of 14 digits and one step of Newton's; ±Inf at ±0.  Error 1.05 at 1.2e-38."""
    y = w.reciprocal_root(x)
    e = w.fma(w.negative(w.mul(x, y)), y, w.number(1))
    return w.repaired(w.fma(w.mul(y, w.number(0.5)), e, y), x, RSQRT_EDGES)


@wide(types.float32)
def sqrt(w: Words, x: Any) -> Any:
    """Correctly rounded (Markstein): s = √x and h = 1/(2√x) to a step of Newton's, then s + h (x - s²).

    For CPUs whose own root is slow (`isa.slow_root`); it computes what x - s² would be subnormal for.  Error 0.5.
    """
    guess = w.reciprocal_root(x)
    s, h = w.mul(x, guess), w.mul(guess, w.number(0.5))
    e = w.fma(w.negative(s), h, w.number(0.5))
    s, h = w.fma(s, e, s), w.fma(h, e, h)
    y = w.repaired(w.fma(w.fma(w.negative(s), s, x), h, s), x, ROOT_EDGES)
    small = w.builder.and_(w.compare(x, ">", 0), w.compare(x, "<", 2.0**-100))
    return w.unless_any(small, y, "trueno_simd_sqrt", lambda words, v: words.root(v), x)


@wide(types.float32)
def tanh(w: Words, x: Any) -> Any:
    """A polynomial of degree 5 around the middle of a quarter of |x|'s binade, or around 0.  Error 1.02 at 0.125."""
    a = w.at_most(10, w.absolute(x))  # where the table says 1
    index = w.shifted(w.bits(a), -21)
    low = w.whole(tables.TANH_BASE)
    index = w.select(w.builder.icmp_signed("<", index, low), low, index)
    r = w.sub(a, w.lookup(tables.TANH_CENTRES, index))
    return w.copysign(w.polynomial(r, *(w.lookup(c, index) for c in tables.TANH)), x)


@wide(types.float32)
def erf(w: Words, x: Any) -> Any:
    """A polynomial of degree 5 around the nearest eighth; around 0 it begins with x, exactly.  Error 1.07 at 0.0625."""
    a = w.at_most(3.93, w.absolute(x))
    index = w.bits(w.fma(a, w.number(8), w.number(MAGIC)))
    r = w.sub(a, w.lookup(tables.ERF_CENTRES, index))
    first, *others = [w.lookup(c, index) for c in tables.ERF]
    first = w.select(w.compare(a, "<=", 1 / 16), a, first)
    return w.copysign(w.polynomial(r, first, *others), x)


@wide(types.float32)
def sin_near(w: Words, x: Any) -> Any:
    """±sin r, |x| = nπ + r, for |x| <= 2¹⁶."""
    a = w.absolute(x)
    t = w.fma(a, w.number(1 / math.pi), w.number(MAGIC))
    n = w.sub(t, w.number(MAGIC))
    return w.flip_sign(_half_wave(w, a, n), w.builder.xor(w.shifted(w.bits(t), 31), w.bits(x)))


@wide(types.float32)
def cos_near(w: Words, x: Any) -> Any:
    """±sin r, |x| = (n + 1/2)π + r, for |x| <= 2¹⁶."""
    a = w.absolute(x)
    odd = w.number(MAGIC + 1)  # cos(r + π/2) is -sin r
    t = w.add(w.fma(a, w.number(1 / math.pi), w.number(-0.5)), odd)
    n = w.add(w.sub(t, odd), w.number(0.5))
    return w.flip_sign(_half_wave(w, a, n), w.shifted(w.bits(t), 31))


def _half_wave(w: Words, a: Any, n: Any) -> Any:
    """sin(a - nπ), which is at most π/2 from 0; rounding takes it no further than ±1."""
    r = w.fma(n, w.number(-PI_1), a)
    r = w.fma(n, w.number(-PI_3), w.fma(n, w.number(-PI_2), r))
    s = w.mul(r, r)
    return w.at_least(-1, w.at_most(1, w.fma(w.mul(s, r), w.polynomial(s, *SIN), r)))


@wide(types.float32)
def tan_near(w: Words, x: Any) -> Any:
    """tan r or -1 / tan r, |x| = nπ/2 + r, for |x| <= 2¹⁶."""
    a = w.absolute(x)
    t = w.fma(a, w.number(2 / math.pi), w.number(MAGIC))
    n = w.sub(t, w.number(MAGIC))
    r = w.fma(n, w.number(-float(HALF_PI_1)), a)
    r = w.fma(n, w.number(-float(HALF_PI_3)), w.fma(n, w.number(-float(HALF_PI_2)), r))
    s = w.mul(r, r)
    p = w.fma(w.mul(s, r), w.polynomial(s, *TAN), r)
    odd = w.builder.icmp_unsigned("!=", w.builder.and_(w.bits(t), w.whole(1)), w.whole(0))
    y = w.builder.fdiv(w.select(odd, w.number(-1), p), w.select(odd, p, w.number(1)), flags=EXACT)
    return w.flip_sign(y, w.bits(x))


@inner
def sin(x: Any) -> Any:
    """Sine; NaN at ±Inf.  Error 1.73 at 868.6."""
    beyond = sin_beyond(x)
    return select(absolute(x) > LIMIT, beyond, sin_near(x))


@inner
def cos(x: Any) -> Any:
    """Cosine; NaN at ±Inf.  Error 1.77 at 0.303."""
    beyond = cos_beyond(x)
    return select(absolute(x) > LIMIT, beyond, cos_near(x))


@inner
def tan(x: Any) -> Any:
    """Tangent; NaN at ±Inf."""
    beyond = tan_beyond(x)
    return select(absolute(x) > LIMIT, beyond, tan_near(x))
