"""x·y + z rounded once, for libraries without such an instruction, such as NumPy.

Rounding a sum to more digits and then again to fewer is wrong where the first lands on a tie of the second.  It is
right where the first rounds *to odd*: an inexact result takes the neighbour whose last digit is 1, which is never
such a tie and stays on its side of it (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).

float32 and below: the product is exact in float64, the sum is rounded there to odd.  float64: product and sum are
each split into two floats that hold them exactly (Dekker, Knuth), in a frame whose exponents are about 0, so that
nothing in between overflows or loses digits below the normal numbers.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

FAR = -200
"""Exponent in the frame below which a term matters only for which side of a tie the sum is on."""


def fma(x: Array, y: Array, z: Array) -> Array:
    """x·y + z of one float dtype, shapes broadcast; rounded once up to float64, twice in wider types."""
    dtype = np.result_type(x, y, z)
    with np.errstate(all="ignore"):
        if dtype.itemsize < 8:
            odd = to_odd(*two_sum(np.multiply(x, y, dtype=np.float64), np.asarray(z, np.float64)))
            return narrowed(odd, dtype)
        return _fma64(x, y, z) if dtype == np.float64 else np.asarray(x * y + z)


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """s = a + b as rounded, and the rounding error e: s + e is a + b (Knuth)."""
    s = np.add(a, b)
    v = s - a
    return s, (a - (s - v)) + (b - v)


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """p = a·b as rounded and its rounding error (Dekker), for factors far from both ends of their type's range."""
    p = a * b
    (a, c), (b, d) = _halves(a), _halves(b)
    return p, ((a * b - p) + a * d + c * b) + c * d


def _halves(x: Array) -> tuple[Array, Array]:
    high = x * x.dtype.type((1 << (np.finfo(x.dtype).nmant + 2) // 2) + 1)  # Veltkamp: 26 digits each of a float64
    high = high - (high - x)
    return high, x - high


def to_odd(s: Array, e: Array) -> Array:
    """s + e rounded to odd, from s, their nearest float64: truncate towards 0, and set the last digit if inexact."""
    inexact = np.abs(e) > 0  # False for NaN, which is Inf − Inf
    cut = s.view(np.int64) - (inexact & ((e < 0) != (s < 0)))
    return np.asarray(cut | inexact).view(np.float64)


def narrowed(x: Array, dtype: np.dtype[Any]) -> Array:
    """float64 in another type, rounded once.  `ml_dtypes` gets to bfloat16 through float32: that one to odd, then."""
    if dtype.name != "bfloat16":
        return x.astype(dtype)
    near = x.astype(np.float32)
    bits = near.view(np.uint32) - (np.abs(near) > np.abs(x))  # towards 0; for Inf the largest number
    odd = bits | (near != x)
    return np.where(np.isfinite(x), odd.astype(np.uint32).view(np.float32), near).astype(dtype)


def _fma64(x: Array, y: Array, z: Array) -> Array:
    mx, ex = np.frexp(x)
    my, ey = np.frexp(y)
    mz, ez = np.frexp(z)
    ep = ex + ey
    ez = np.where(z == 0, ep, ez)
    frame = np.maximum(ep, ez)
    high, low = two_product(mx, np.ldexp(my, np.maximum(ep - frame, FAR)))
    t, rest = two_sum(np.ldexp(mz, np.maximum(ez - frame, FAR)), low)
    s, more = two_sum(high, t)
    rest = to_odd(*two_sum(rest, more))
    # s + rest is now rounded once.  Below 2⁻¹⁰²² float64's step is 2⁻¹⁰⁷⁴: beside 2⁵² such steps, to that.
    whole = s + rest
    small = np.frexp(whole)[1] + frame <= -1022
    anchor = np.copysign(np.where(small, np.ldexp(1.0, np.minimum(-1022 - frame, 900)), 0.0), whole)
    a, b = two_sum(anchor, s)
    result = np.ldexp((a + to_odd(*two_sum(b, rest))) - anchor, frame)
    # Where no term is to be split, the plain form is exact; of finite factors it must not see an infinite product.
    finite = np.isfinite(x) & np.isfinite(y)
    plain = np.where(finite & ~np.isfinite(z), z, x * y + z)
    return np.where(finite & np.isfinite(z) & (x != 0) & (y != 0), np.copysign(result, whole), plain)
