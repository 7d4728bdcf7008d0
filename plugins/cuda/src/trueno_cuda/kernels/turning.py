"""Turning pairs of a head by a position's angles, for every kernel that does it.

An angle is position · turns modulo 2⁶⁴, a turn being 2⁶⁴: exact, whatever the position.  The nearest quarter comes off
in integers, what remains is rounded once to the type that is computed in, and two polynomials follow.
"""

from collections.abc import Sequence
from math import nan, pi
from typing import Any

from trueno.backend import rotation

from trueno_cuda.device.protocol import Device
from trueno_cuda.ptx import Builder, Value, f32, s64, u64
from trueno_cuda.rows import elementary32_trig, elementary64_trig
from trueno_cuda.rows.elementary32 import horner

SMALL = 512
"""Pairs an SM, up to which a thread takes one."""
QUARTER = 1 << 29
"""Half a quarter of a turn, in the upper word of an angle."""

TABLES = 4096
"""Tables that are kept: they are never dropped, because a recording may have their addresses."""


class Turns:
    """Turns of each pair on the device, and the factor of the result, by (pairs, theta, numbers of the scaling)."""

    def __init__(self, device: Device, scaling: str) -> None:
        self.device, self.scaling = device, scaling
        self._kept: dict[tuple[Any, ...], tuple[Any, float]] = {}

    def __call__(self, *key: Any) -> tuple[Any, float]:
        kept = self._kept.get(key)
        if kept is None:
            pairs, theta, *scaled = key
            turns, magnitude = rotation(pairs, theta, self.scaling, *scaled)
            kept = self.device.to_device(turns), magnitude
            if len(self._kept) < TABLES:
                self._kept[key] = kept
        return kept


def _waves(k: Builder, r: Value, quarter: Value) -> tuple[Value, Value]:
    """Cosine and sine of r + quarter · π/2, |r| <= π/4."""
    z = r * r
    if r.type is f32:
        sine = k.fma(r, z * horner(k, z, *elementary32_trig.SIN), r)
        cosine = horner(k, z, *elementary32_trig.COS)
    else:
        sine = k.fma(z * r, horner(k, z, *elementary64_trig.SIN), r)
        half = z * 0.5
        whole = k.sub(1.0, half)
        cosine = whole + (k.sub(1.0, whole) - half + z * z * horner(k, z, *elementary64_trig.COS))
    odd = (quarter & 1) != 0
    cosine, sine = k.select(odd, sine, cosine), k.select(odd, cosine, sine)
    down, left = (quarter & 2) != 0, ((quarter + 1) & 2) != 0
    return k.select(left, -cosine, cosine), k.select(down, -sine, sine)


def angle_waves(k: Builder, position: Value, turns: Value, magnitude: Value) -> tuple[Value, Value]:
    """Cosine and sine, times the magnitude, of position · turns, both u64; NaN for a negative position."""
    low, high = k.unpack(position * turns)
    quarter = k.shr(high + QUARTER, 30)
    left = k.pack(u64, low, high - k.shl(quarter, 30)).bits(s64)
    r = left.to(magnitude.type) * (2 * pi / 2.0**64)
    cosine, sine = _waves(k, k.select(position.bits(s64) < 0, nan, r), quarter)
    return cosine * magnitude, sine * magnitude


def turned(
    k: Builder, waves: Sequence[tuple[Value, Value]], numbers: Sequence[Value], interleaved: bool
) -> list[Value]:
    """Pairs, turned by cosines and sines: both lie side by side, or all first ones before all second ones."""
    count = len(waves)
    a, b = (numbers[0::2], numbers[1::2]) if interleaved else (numbers[:count], numbers[count:])
    y, z = [], []
    for (cosine, sine), p, q in zip(waves, a, b, strict=True):
        y.append(k.fma(p, cosine, -(q * sine)))
        z.append(k.fma(q, cosine, p * sine))
    return [v for both in zip(y, z, strict=True) for v in both] if interleaved else y + z
