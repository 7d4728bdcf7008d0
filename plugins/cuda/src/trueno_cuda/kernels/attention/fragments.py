"""Numbers in 16-bit parts, as registers of the tensor cores' operands: what `mma` and `wgmma` have in common.

Weights are float32.  Rounded to bfloat16 they would err by 2^-8, which a result in bfloat16 may show where values
cancel; so a weight is multiplied in two parts, its rounded value and what that leaves.  A float32 is the sum of three
bfloat16 (ADR 0024); of the products of parts those that count are summed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trueno_cuda.kernels.attention.planes import STEP
from trueno_cuda.ptx import Type, Value, f32
from trueno_cuda.ptx.types import PACKS

TOP = 14
"""Of float16 weights: the largest is 2^14, so that the smallest keep their bits."""


@dataclass(frozen=True, slots=True)
class Parts:
    """In how many 16-bit parts q and k, the weights, and v are multiplied."""

    keys: int = 1
    weights: int = 2
    values: int = 1

    def __str__(self) -> str:
        return f"{self.keys}{self.weights}{self.values}"


def products(left: int, right: int) -> list[tuple[int, int]]:
    """The products of parts that count, the smallest first."""
    pairs = [(i, j) for i in range(left) for j in range(right) if i + j < max(left, right)]
    return sorted(pairs, key=sum, reverse=True)


def split(k: Any, half: Type, a: Value, b: Value, count: int) -> list[Value]:
    """Two float32 side by side, in so many parts."""
    made = []
    for i in range(count):
        made.append(k.pack(PACKS[half.name], a, b))
        if i + 1 < count:
            x, y = k.unpack(made[-1], f32)
            a, b = a - x, b - y
    return made


def weights(k: Any, half: Type, pair: Sequence[Sequence[Any]], parts: Parts) -> dict[tuple[int, int], list[Any]]:
    """The left operand of sixteen keys: four registers of each part of the weights, for each part of the values.

    pair: sums of two products side by side, four numbers each: two of one row, two of the eighth row below it.
    """
    pack = PACKS[half.name]
    whole = [split(k, half, four[h], four[h + 1], parts.weights) for four in pair for h in (0, 2)]
    made = {(i, 0): [spot[i] for spot in whole] for i in range(parts.weights)}
    for i, j in sorted(products(parts.weights, parts.values), key=lambda of: of[1]):
        if j:  # a part of the values is STEP times too large
            less, zero = (k.pack(pack, *[k.const(half, x)] * 2) for x in (1 / STEP, -0.0))
            made[i, j] = [k.fma(x, less, zero) for x in made[i, j - 1]]
    return made
