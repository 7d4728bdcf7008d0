"""A lane's share of a product: a decoded unit times x, and the sums of a warp's lanes."""

from collections.abc import Sequence
from typing import Any

from trueno_cuda.kernels.operands import power
from trueno_cuda.kernels.quant.activations import Seen
from trueno_cuda.kernels.quant.blocks import Blocks
from trueno_cuda.kernels.quant.units import Decoded
from trueno_cuda.ptx import Value, f32, s8x4, s16x2, s32, u8x4, u32


class Weights:
    """A decoded unit of a matrix, to multiply by x."""

    def __init__(self, k: Any, w: Blocks, decoded: Decoded, activations: str) -> None:
        self.k, self.w, self.f, self.decoded = k, w, w.f, decoded
        self.codes: list[list[Value]] = []
        self.floats: list[list[Value]] = []
        if activations == "f32":
            self._as_floats()
            return
        for words in decoded.codes:
            if self.f.values or self.f.signed:
                self.codes.append([v.bits(s8x4) for v in w.values(words)])
            else:
                self.codes.append([v.bits(u8x4) for v in words])

    def _as_floats(self) -> None:
        f, unit = self.f, self.decoded
        for way, words in enumerate(unit.codes):
            numbers = [v for word in words for v in self.w.floats(word)]
            factor = unit.d * unit.scales[way].to(f32) if f.scales else unit.d
            if unit.m is not None:
                added = -(unit.m * unit.leasts[way].to(f32)) if f.mins else unit.m
                numbers = [self.k.fma(v, factor, added) for v in numbers]
            else:
                numbers = [v * factor for v in numbers]
            self.floats.append(numbers)

    def product(self, x: Seen) -> Value:
        """The unit's share of one sum."""
        k, f, unit = self.k, self.f, self.decoded
        if self.floats:
            sum_: Any = None
            for ws, xs in zip(self.floats, x.floats, strict=True):
                for w, v in zip(ws, xs, strict=True):
                    sum_ = w * v if sum_ is None else k.fma(w, v, sum_)
            return sum_  # type: ignore[no-any-return]
        total: Any = None
        for way, (ws, xs) in enumerate(zip(self.codes, x.codes, strict=True)):
            dot = total if total is not None and not f.scales else k.const(s32, 0)
            if f.bias:
                dot = k.mad(x.sums[way], -f.bias, dot)
            for w, v in zip(ws, xs, strict=True):
                dot = k.dp4a(w, v, dot)
            if not f.scales:
                total = dot
            else:
                total = dot * unit.scales[way] if total is None else k.mad(dot, unit.scales[way], total)
        value = total.to(f32)
        if f.e8m0:  # a large power of two would overflow before a small scale of x brought it back
            return x.d * value * unit.d  # type: ignore[no-any-return]
        value = unit.d * value
        if unit.m is not None:
            if unit.pair is not None:
                both = k.prmt(x.sums[0].bits(u32), x.sums[1].bits(u32), 0x5410).bits(s16x2)
                least = k.dp2a_lo(both, unit.pair.bits(s8x4), k.const(s32, 0))
            else:
                least = x.sums[0] * unit.leasts[0] if f.mins else x.sums[0]
                for way in range(1, len(x.sums)):
                    least = k.mad(x.sums[way], unit.leasts[way], least) if f.mins else least + x.sums[way]
            value = k.fma(-unit.m if f.mins else unit.m, least.to(f32), value)
        return x.d * value  # type: ignore[no-any-return]


def folded(k: Any, values: Sequence[Value]) -> tuple[Value, Any, Value]:
    """Sums over the warp of some values, each in some lanes.

    values: up to 32.  Half of them go to the other half of the lanes, and so on: 31 exchanges sum 32, and not 160.
    Gives a sum, whose it is (a number, or one of each lane), and which lanes are to write it, one for each value.
    """
    several, distance = list(values), 16
    several += [k.const(f32, 0.0)] * (power(len(values)) - len(values))
    each = 32 // len(several)
    while len(several) > 1:
        half, upper = len(several) // 2, (k.lane & distance) != 0
        pairs = zip(several[:half], several[half:], strict=True)
        several = [k.select(upper, b, a) + k.shuffle(k.select(upper, a, b), "xor", distance) for a, b in pairs]
        distance //= 2
    total = several[0]
    while distance:
        total = total + k.shuffle(total, "xor", distance)
        distance //= 2
    return total, k.lane // each, ((k.lane & (each - 1)) == 0) & (k.lane < each * len(values))
