"""Element kinds for which NumPy has no ufunc, or only a slow one.

Each is `f(*args, out, *scratch) -> out`, safe where `out` is one of its arguments.  `out` and scratch may be
None: then they are allocated, as for small arrays.  `SCRATCH` lists the scratch that a tape must provide: "s" a tile
of the call's float, "j" of integers of the same width, "d" of float64.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from trueno.backend import fma

Array = Any  # ndarray or NumPy scalar: both carry dtype, size, view

INTEGER: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(np.float32): np.dtype(np.int32),
    np.dtype(np.float64): np.dtype(np.int64),
}
SIGN = {d: np.array(np.iinfo(i).min, i) for d, i in INTEGER.items()}
MAGNITUDE = {d: np.array(np.iinfo(i).max, i) for d, i in INTEGER.items()}
BITS_FROM = 4096
"""Elements from which three integer ufuncs beat one that branches: with random masks NumPy's `where` and
`copysign` take 4 and 0.7 ns per element, integer arithmetic 0.1 each; below, the calls cost more than the misses."""

# P(a) with erf(a) = 1 − e^(−a·P(a)): P is smooth, so one range serves, and an error of P reaches erf damped by
# g·e^−g/(1−e^−g), g = a·P.  Weighted minimax (Remez in 50 digits, that damping as weight) on [0, cut]: relative
# error of erf 4e-9 and 7e-17.  Stored negated, highest degree first, because expm1 wants −a·P(a).
ERF: dict[np.dtype[Any], tuple[Any, tuple[Any, ...]]] = {}
for _type, _cut, _coefficients in (
    (
        np.float32,
        4.0,
        (1.1283791715996605, 0.6366193814558145, 0.10277783735822107, -0.019153100356254063, -0.00016030663267395,
         0.0016669170496895430, -0.00063276606810348228, 0.00011761883802458755, -9.2535002346869991e-06),
    ),
    (
        np.float64,
        6.0,
        (1.128379167095512494, 0.6366197723676116231, 0.102772603300057723, -0.01912844696302460407,
         -0.0002091952306601367054, 0.001696210531925516099, -0.000590146820517203022, 0.00002595522771012061999,
         0.00006428996593490052938, -0.00002932346032974183116, 2.79575472675608105e-6, 3.564804267598691319e-6,
         -2.429898500479764413e-6, 8.537813600783573114e-7, -1.741270462874220335e-7, 8.384027108914452374e-9,
         7.778751989318868065e-9, -3.152309762447802964e-9, 6.809610238246322787e-10, -9.546630491022694151e-11,
         8.719746938683961651e-12, -4.754207097173734997e-13, 1.179852414965255572e-14),
    ),
):  # fmt: skip
    ERF[np.dtype(_type)] = (
        np.array(_cut, _type),
        tuple(np.array(-c, _type) for c in reversed(_coefficients)),
    )


def erf(x: Array, out: Array, a: Array, p: Array) -> Array:
    """−expm1(−a·P(a)) for a = min(|x|, cut), with the sign of x put in as a bit."""
    dtype = x.dtype
    cut, (highest, *rest) = ERF[dtype]
    a = np.absolute(x, a)
    a = np.minimum(a, cut, out=a)  # NaN passes; beyond the cut erf rounds to 1
    p = np.multiply(a, highest, p)
    for c in rest[:-1]:
        np.add(p, c, p)
        np.multiply(p, a, p)
    np.add(p, rest[-1], p)
    np.multiply(p, a, p)
    np.expm1(p, p)  # −erf(a), whose sign bit is set also for −0
    if out is None:
        out = np.empty_like(p)
    integer = INTEGER[dtype]
    sign = a.view(integer)
    np.bitwise_and(x.view(integer), SIGN[dtype], sign)
    np.bitwise_xor(sign, SIGN[dtype], sign)
    np.bitwise_xor(p.view(integer), sign, out.view(integer))
    return out


def rsqrt(x: Array, out: Array) -> Array:
    out = np.sqrt(x, out)
    return np.divide(1.0, out, out)


def where(c: Array, x: Array, y: Array, out: Array, t: Array) -> Array:
    """x where c holds, else y, as y ^ ((x ^ y) · c) on the bits: no branch, and NaN needs no special case."""
    if c.ndim == 0:
        return np.positive(x if c else y, out)
    if out is None or c.size < BITS_FROM:
        chosen = np.where(c, x, y)
        if out is None:
            return chosen
        out[...] = chosen
        return out
    integer = INTEGER[out.dtype]
    bits = y.view(integer)
    t = np.bitwise_xor(x.view(integer), bits, t)
    if t.shape != out.shape:  # x and y are shared by rows that c distinguishes
        t = np.multiply(t, c)
    else:
        np.multiply(t, c, t)
    np.bitwise_xor(t, bits, out.view(integer))
    return out


def copysign(x: Array, sign: Array, out: Array, t: Array) -> Array:
    if out is None or out.size < BITS_FROM:
        return np.copysign(x, sign, out)
    dtype = out.dtype
    integer = INTEGER[dtype]
    t = np.bitwise_and(sign.view(integer), SIGN[dtype], t)
    bits = out.view(integer)
    np.bitwise_and(x.view(integer), MAGNITUDE[dtype], bits)
    np.bitwise_or(bits, t, bits)
    return out


def cast(x: Array, out: Array) -> Array:
    np.copyto(out, x, casting="unsafe")
    return out


LOW_DIGITS, HALF = 2**29 - 1, 2**28
"""The digits of a normal float64 that float32 drops, and the pattern there that is exactly half a step."""
NORMAL32 = 2.0**-126


def fma32(x: Array, y: Array, z: Array, out: Array, d: Array, t: Array) -> Array:
    """Products of float32 are exact in float64, so only the sum rounds: first there, then to float32.

    Rounding twice equals rounding once, unless the first rounding produces a tie: those sums are computed again.
    """
    if d is None:
        d, t = np.empty((2, *np.broadcast(x, y, z).shape))
    np.multiply(x, y, d, dtype=np.float64)
    np.add(d, z, d)
    tiny = np.minimum.reduce(np.absolute(d, t), None, initial=np.inf) < NORMAL32  # wider steps there, or 0
    digits = np.bitwise_and(d.view(np.int64), LOW_DIGITS, t.view(np.int64))
    tie = np.equal(digits, HALF)
    again = None
    if tiny or np.logical_or.reduce(tie, None):
        again = tie | ((np.absolute(d) < NORMAL32) & (d != 0))
        exact = _again(x, y, z, again)
    if out is None:
        out = d.astype(np.float32)
    else:
        np.copyto(out, d, casting="same_kind")
    if again is not None:
        out[again] = exact
    return out


def _again(x: Array, y: Array, z: Array, where: Array) -> Array:
    """Those elements by the core's own fma, which is correct for all numbers and takes 150 ns each."""
    return fma(*(np.broadcast_to(v, where.shape)[where] for v in (x, y, z)))


_SPLIT = 134217729.0  # 2²⁷ + 1: Veltkamp's constant
FRACTION = 2**52 - 1
LEAST = 2.0**-900
"""The least product whose rounding error is still a normal float64."""


def _halves(x: Array, high: Array, low: Array) -> tuple[Array, Array]:
    """x = high + low, 26 bits each."""
    high = np.multiply(x, _SPLIT, high)
    low = np.subtract(high, x, low)
    np.subtract(high, low, high)
    np.subtract(x, high, low)
    return high, low


def _two_sum(a: Array, b: Array, s: Array, t: Array) -> None:
    """s = a + b as rounded, and in b the rounding error (Knuth)."""
    np.add(a, b, s)
    np.subtract(s, a, t)
    np.subtract(b, t, b)
    np.subtract(s, t, t)
    np.subtract(a, t, t)
    np.add(b, t, b)


def fma64(
    x: Array, y: Array, z: Array, out: Array, p: Array, e: Array, a: Array, b: Array, c: Array, d: Array
) -> Array:
    """x·y is p + e exactly (Dekker), and z + p + e is s + r + rest (Knuth), of which s + (r + rest) is the answer.

    r + rest is rounded before it is added, which matters where it comes out as half a step of s: a power of two.
    Those sums are computed again, and so is everything near the ends of the exponent range: below, e is lost; above,
    an intermediate is Inf or NaN.
    """
    if p is None:
        p, e, a, b, c, d = np.empty((6, *np.broadcast(x, y, z).shape))
    np.multiply(x, y, p)
    _halves(x, a, b)
    _halves(y, c, d)
    np.multiply(a, c, e)
    np.subtract(e, p, e)
    np.add(e, np.multiply(a, d, a), e)
    np.add(e, np.multiply(b, c, c), e)
    np.add(e, np.multiply(b, d, b), e)
    _two_sum(z, e, a, b)  # a + e
    _two_sum(p, a, c, b)  # c + a + e
    np.add(e, a, e)
    size = np.absolute(p, p)
    digits = np.bitwise_and(e.view(np.int64), FRACTION, d.view(np.int64))
    again = None
    if (
        np.minimum.reduce(size, None, initial=np.inf) < LEAST
        or np.minimum.reduce(digits, None, initial=1) == 0
        or not math.isfinite(np.add.reduce(e, None))
    ):
        lost = (size < LEAST) & (((x != 0) & (y != 0)) | ((z == 0) & np.signbit(z)))  # −0 + −0, too
        again = lost | ((digits == 0) & (e != 0)) | ~np.isfinite(e)
        exact = _again(x, y, z, again)
    out = np.add(c, e, out)
    if again is not None:
        out[again] = exact
    return out


def product(x: Array) -> Any:
    """Product of one row, in 256 lanes: a single running product would wait for itself at every element."""
    n = x.size
    if n < 2048:
        return np.multiply.reduce(x)
    whole = n - n % 256
    lanes = np.multiply.reduce(x[:whole].reshape(-1, 256), 0)
    return np.multiply.reduce(lanes) * np.multiply.reduce(x[whole:])


UFUNC: dict[str, str] = {
    **{k: k for k in ("add", "maximum", "minimum", "floor", "ceil", "trunc", "rint", "isnan", "isinf")},
    **{k: k for k in ("sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "sin", "cos")},
    "neg": "negative", "abs": "absolute", "sub": "subtract", "mul": "multiply", "div": "divide",
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal",
    "and": "logical_and", "or": "logical_or", "not": "logical_not",
    "log1p_unit": "log1p", "atan": "arctan", "pow": "power",
}  # fmt: skip
"""Kinds that are one ufunc."""

SCRATCH: dict[str, tuple[str, Callable[..., Any]]] = {
    "erf": ("ss", erf),
    "rsqrt": ("", rsqrt),
    "where": ("j", where),
    "copysign": ("j", copysign),
    "cast": ("", cast),
    "fma32": ("dd", fma32),
    "fma64": ("ssssss", fma64),
}
"""The others: the scratch that they need, and the function (fma by the width of the float)."""

QUIET = frozenset({"neg", "abs", "maximum", "minimum", "copysign", "where", "not", "and", "or", "isnan", "isinf"})
"""Kinds that raise no floating-point flag, so that a program with only those needs no errstate."""
