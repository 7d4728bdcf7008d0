"""Activations to 8 bits, in the registers of the lanes that multiply them: nothing is stored, and nothing waits.

A lane holds the elements of x that belong to its unit of a block; the lanes of one block of activations, neighbours in
a warp, agree on its largest magnitude.  Blocks have 32 elements (`q8_0`, `q8_1`) or 256 (`q8_k`); codes times scales
are ggml's to the bit:

    q8_0, q8_1   d = amax / 127 rounded to float16, code = nearest even of x · (127 / amax)
    q8_k         code = nearest even of x · (−127 / amax), d = 1 / (−127 / amax)

ggml takes the sign of the first x of the largest magnitude in q8_k; with the other sign codes and d change theirs, and
products are the same bits.  A block that holds a NaN or an infinity gets d = NaN, and codes of 0.  Where the factor
overflows, ggml's d is 0; codes are 0 then.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

from trueno.backend import Format

from trueno_cuda.ptx import Pointer, Value, f16, f32, s8x4, s32, u32

TINY = 0x02FE0000
"""The bits of 127 / the largest float32: with a smaller amax the factor would overflow."""
INFINITE = 0x7F800000


@dataclass(frozen=True, slots=True)
class Seen:
    """A unit's elements of x, as a product sees them.

    d, codes (of each column four words of int8) and sums of each column's codes; or floats, sixteen a column.
    """

    d: Any
    codes: list[list[Value]]
    sums: list[Value]
    floats: list[list[Value]]


def columns(k: Any, x: Pointer, start: Any, run: int, ways: int, live: Value | None, wide: bool) -> list[Any]:
    """Sixteen floats of each column of the unit at element `start` of x; zeros where not `live`."""
    vec = 4 if wide else 1
    loaded = []
    for way in range(ways):
        at = x + k.multiple_of(start + way * run, 16)
        loaded.append([v for i in range(0, 16, vec) for v in at.load(i, vec=vec, where=live)])
    return loaded


def quantized(k: Any, floats: Sequence[Sequence[Value]], partner: Format) -> Seen:
    """Columns of a unit in 8 bits, as `partner` holds them."""
    lanes = partner.elements // (16 * len(floats))

    sizes = [v.bits(u32) & 0x7FFFFFFF for column in floats for v in column]  # as whole numbers, which no NaN escapes
    while len(sizes) > 1:
        sizes = [k.max(a, b) for a, b in zip(sizes[::2], sizes[1::2], strict=True)]
    bits = k.warp_reduce(sizes[0], "max", lanes) if lanes > 1 else sizes[0]
    finite = bits < INFINITE
    some, size = finite & (bits >= TINY), bits.bits(f32)
    if partner.elements == 256:
        factor = k.select(some, -(k.const(f32, 127.0) / size), 0.0)
        d = k.select(some, 1.0 / factor, 0.0)
    else:
        factor = k.select(some, k.const(f32, 127.0) / size, 0.0)
        d = (size / 127.0).to(f16).to(f32)
    d = k.select(finite, d, k.const(f32, nan))
    codes, sums, ones = [], [], k.const(u32, 0x01010101).bits(s8x4)
    for column in floats:
        whole = [(v * factor).to(s32, "rn") for v in column]
        words = [k.pack(s8x4, *whole[i : i + 4]) for i in range(0, 16, 4)]
        total = k.dp4a(words[0], ones, k.const(s32, 0))
        for word in words[1:]:
            total = k.dp4a(word, ones, total)
        codes.append(words)
        sums.append(total)
    return Seen(d, codes, sums, [])


def seen(k: Any, floats: Sequence[Sequence[Value]], partner: Format, activations: str) -> Seen:
    """Columns of a unit, by the op's `activations`."""
    if activations == "f32":
        return Seen(None, [], [], [list(c) for c in floats])
    return quantized(k, floats, partner)
