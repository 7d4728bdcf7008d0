"""Rotary position embedding: how far each pair of a head turns per position, and the cosines and sines of a position.

A turn is 2⁶⁴ units of a uint64.  So position · turns, which wraps around as integers do, is the exact angle of the
frequency in the table, whatever the position; the frequency itself is rounded to 2⁻⁶⁵ turns, which makes 2⁻⁴⁵ turns at
position 2²⁰.  A kernel multiplies, takes the nearest quarter off, and has a small angle whose sine is a polynomial.
"""

from decimal import Context, Decimal, localcontext
from functools import lru_cache
from math import pi
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SCALINGS: Final = ("none", "linear", "ntk", "yarn", "llama3")
FAST: Final = {"yarn": 32.0, "llama3": 4.0}
"""Turns within the original context from which a pair keeps its frequency, where the caller does not say."""
DIGITS: Final = 50
TWO_PI: Final = Decimal("6.283185307179586476925286766559005768394338798750211641949889")
UNIT: Final = 2 * pi / 2.0**64
"""The angle of one unit."""


@lru_cache(maxsize=256)
def rotation(
    pairs: int,
    theta: float,
    scaling: str = "none",
    factor: float = 1.0,
    context: float = 0.0,
    slow: float = 1.0,
    fast: float = 0.0,
    magnitude: float = 0.0,
) -> tuple[Array, float]:
    """Units per position of each pair (uint64, read-only), and the factor of cosines and sines.

    Pair i turns by θ^(−i/pairs) radians per position; `trueno.rope` says what the other parameters do to it.  A factor
    of 1 is no scaling.
    """
    with localcontext(Context(prec=DIGITS)):
        scaling = "none" if factor == 1 else scaling
        base, by = Decimal(theta), Decimal(factor)
        if scaling == "ntk" and pairs > 1:
            base *= (by.ln() * pairs / (pairs - 1)).exp()
        step = -base.ln() / max(pairs, 1)
        rates = [(step * i).exp() for i in range(pairs)]
        fastest = Decimal(fast or FAST.get(scaling, 1.0))
        if scaling == "linear":
            rates = [rate / by for rate in rates]
        elif scaling == "yarn":
            kept = _ramp(pairs, base, Decimal(context), Decimal(slow), fastest)
            rates = [rate * (share + (1 - share) / by) for rate, share in zip(rates, kept, strict=True)]
        elif scaling == "llama3":
            whole = [Decimal(context) * rate / TWO_PI for rate in rates]  # turns within the original context
            kept = [_share(turns, Decimal(slow), fastest) for turns in whole]
            rates = [rate * (share + (1 - share) / by) for rate, share in zip(rates, kept, strict=True)]
        own = float(1 + by.ln() / 10) if scaling == "yarn" and by > 1 else 1.0
        units = [int((rate / TWO_PI * 2**64).to_integral_value()) % 2**64 for rate in rates]
    table = np.array(units, np.uint64)
    table.flags.writeable = False
    return table, magnitude or own


def _share(value: Decimal, low: Decimal, high: Decimal) -> Decimal:
    """How far a value is between two others, from 0 to 1; a step where they are the same."""
    if high == low:
        return Decimal(int(value >= high))
    return min(max((value - low) / (high - low), Decimal(0)), Decimal(1))


def _ramp(pairs: int, base: Decimal, context: Decimal, slow: Decimal, fast: Decimal) -> list[Decimal]:
    """For each pair, the share of its own frequency that YaRN keeps: 1 for the fast ones, 0 for the slow ones."""

    def index(turns: Decimal) -> Decimal:
        return pairs * (context / (turns * TWO_PI)).ln() / base.ln()

    low = max(index(fast).to_integral_value("ROUND_FLOOR"), Decimal(0))
    high = min(index(slow).to_integral_value("ROUND_CEILING"), Decimal(2 * pairs - 1))
    high = max(high, low + Decimal("0.001"))
    return [1 - _share(Decimal(i), low, high) for i in range(pairs)]


def cosines(positions: Array, turns: Array, magnitude: float) -> tuple[Array, Array]:
    """Cosines and sines, times the magnitude, in float64: [..., pairs] for positions [...].

    The nearest quarter of a turn comes off exactly, so that both keep their digits where they are near 0.
    """
    units = (positions.astype(np.int64)[..., None].view(np.uint64) * turns).view(np.int64)
    quarter = (units + (1 << 61)) >> 62
    angles = (units - (quarter << 62)) * UNIT
    cos, sin = np.cos(angles) * magnitude, np.sin(angles) * magnitude
    odd = (quarter & 1).astype(bool)
    cos, sin = np.where(odd, sin, cos), np.where(odd, cos, sin)
    return np.where((quarter + 1) & 2, -cos, cos), np.where(quarter & 2, -sin, sin)


def _halves(x: Array, pairs: int, style: str) -> tuple[Array, Array]:
    """Views of the first and of the second number of each pair."""
    if style == "neox":
        return x[..., :pairs], x[..., pairs : 2 * pairs]
    return x[..., 0 : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2]


def rotated(x: Array, positions: Array, style: str, dims: int, sine: int, theta: float, **scaling: Any) -> Array:
    """y = rope(x); `sine` −1 and absolute values of x, cosines and sines give what the terms of y add up to."""
    pairs = (dims or x.shape[-1]) // 2
    cos, sin = cosines(positions, *rotation(pairs, theta, **scaling))
    cos, sin = (a[..., None, :].astype(x.dtype) for a in (cos, sin))
    if sine < 0:
        cos, sin = np.abs(cos), np.abs(sin)
    lead = np.broadcast_shapes(x.shape[:-2], positions.shape)
    y = np.array(np.broadcast_to(x, (*lead, *x.shape[-2:])))
    a, b = _halves(x, pairs, style)
    first, second = _halves(y, pairs, style)
    first[...] = a * cos - sine * (b * sin)
    second[...] = b * cos + a * sin
    if sine < 0:
        y[..., 2 * pairs :] = 0  # copied
    return y
