"""x for products of many rows that keep float32's precision: each number as three of bfloat16, rows scaled near one.

A product of float32 numbers is that of their parts, of which six of nine count: high by high, high by middle and high
by low, both ways, and middle by middle.  Laid side by side along k they are one product of bfloat16 on tensor
cores: six times the work of one, and still twice as fast as fma.  Rows are scaled by powers of two, so that no part is
lost below the range of bfloat16; the factor that takes this back multiplies the sums as they are stored.

With "q8" the numbers are first rounded as the core's `rounded_activations` does: to codes of 8 bits times the scale of
32 elements (float16) or 256 (float32), of which a warp does one at a time.  A NaN or an Inf makes all of its group NaN.

Floor: 4 m k bytes read, and read again from L2, 12 m k written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import inf, nan
from typing import Any

from trueno.backend import FORMATS, Format

from trueno_cuda.device.protocol import Device, Launch
from trueno_cuda.kernels.epilogue import Epilogue
from trueno_cuda.kernels.quant.decoding import in_parts
from trueno_cuda.kernels.source import build
from trueno_cuda.ptx import Kernel, Value, bf16, f16, f32, ptr, s32, u32, u64
from trueno_cuda.ptx.builder import ParamType

LEFT, RIGHT = (2, 1, 0, 1, 0, 0), (0, 1, 2, 0, 1, 0)
"""Which parts of x and of w meet, slot by slot: the smallest first, for tensor cores cut what a sum has no bits for."""
THREADS = 256
WARPS = THREADS // 32
SMALL, LARGE = 32, 256
MOST_SCALE = 126
"""The largest exponent of a row's factor: it and its inverse are normal numbers."""


@dataclass(frozen=True, slots=True)
class ByRow:
    """What follows the sums (see `kernels.epilogue`): each is multiplied by the number of its row, and then `inner`."""

    inner: Epilogue | None = None

    @property
    def name(self) -> str:
        return f"by_row{'_' + self.inner.name if self.inner else ''}"

    @property
    def beside(self) -> str:
        return "r" + (self.inner.beside if self.inner else "")

    @property
    def numbers(self) -> int:
        return self.inner.numbers if self.inner else 0

    def write(self, k: Any, made: Value, beside: Sequence[Value], numbers: Sequence[Value]) -> Value:
        made = made * beside[0]
        return self.inner.write(k, made, beside[1:], numbers) if self.inner else made


def coded(k: Any, partner: Format, numbers: list[Value]) -> tuple[list[Value], Value]:
    """A warp's group, 1 or 8 numbers a lane in order, as `partner` holds them: codes, whole float32, and the scale.

    A group with a NaN or an Inf has codes of 0 and a scale of NaN.
    """
    size, good = k.const(f32, 0.0), None
    for x in numbers:
        finite = abs(x) < inf
        good = finite if good is None else good & finite
        size = k.max(size, abs(x))
    good, largest = k.vote("all", good), k.warp_max(size)
    if partner.elements == SMALL:
        d = (largest / 127.0).to(f16).to(f32)
        factor = k.select(largest != 0.0, 127.0 / largest, 0.0)
        codes = [k.max(k.min(k.round(x * factor), 127.0), -128.0) for x in numbers]
    else:
        factor = (
            k.const(f32, -127.0) / largest
        )  # ggml has the sign of the first; with another one products are the same
        some = abs(factor) < inf  # else all are zero, or as good as that
        d = k.select(some, k.const(f32, 1.0) / factor, 0.0)
        codes = [k.select(some, k.min(k.round(x * factor), 127.0), 0.0) for x in numbers]
    return [k.select(good, c, 0.0) for c in codes], k.select(good, d, nan)


def _rounded(k: Any, partner: Format, numbers: list[Value]) -> list[Value]:
    """The same group's numbers: codes times the scale."""
    codes, d = coded(k, partner, numbers)
    return [c * d for c in codes]


@cache
def parts(arch: str, partner: str) -> Kernel:
    """out[r, slot, :] = the part LEFT[slot] of row r of x, scaled by a power of two; factors[r] takes that back.

    partner: the format whose numbers x is rounded to first, or "".  Grid: a row each.
    """
    each = LARGE // 32 if partner and FORMATS[partner].elements == LARGE else 1

    def body(k: Any, p: Any) -> None:
        row = k.ctaid
        line = p.x + row.to(u64) * p.depth.to(u64)
        largest, odd = k.var(f32, 0.0), k.var(u32, 0)
        for i in k.range(k.tid, p.depth, THREADS):
            size = abs(line.load(i))
            largest.update("max", size)
            odd.set(k.select(size < inf, odd, 1))
        top = k.block_max(largest)
        beyond = k.block_max(odd) != 0
        exponent = (top.bits(u32) >> 23).bits(s32) - 127  # of a subnormal number -127, which is cut as well
        exponent = k.max(k.min(exponent, MOST_SCALE), -MOST_SCALE)
        exponent = k.select(beyond | (top == 0.0), k.const(s32, 0), exponent)
        up, down = (((127 + e).bits(u32) << 23).bits(f32) for e in (-exponent, exponent))
        with k.when(k.tid == 0):
            p.factors.store(row, down)
        target = p.out + row.to(u64) * (p.depth.to(u64) * len(LEFT))
        for start in k.range(0, p.depth, THREADS * each):
            first = start + (k.tid * each if each > 1 else k.tid)
            live = first < p.depth  # whole warps agree: depth is a whole number of groups
            numbers = [line.load(first + i, where=live) for i in range(each)]
            if partner:
                numbers = _rounded(k, FORMATS[partner], numbers)
            for i, x in enumerate(numbers):
                split = in_parts(k, x * up)
                for slot, part in enumerate(LEFT):
                    at = p.depth.to(u64) * slot + (first + i).to(u64)
                    target.store(at, split[part].to(bf16), where=live)

    params: dict[str, ParamType] = {"x": ptr(f32), "factors": ptr(f32), "out": ptr(bf16), "depth": u32}
    return build(f"quant_parts_{partner or 'f32'}", arch, params, body, THREADS)


@cache
def rounded(arch: str, partner: str) -> Kernel:
    """out = x as `partner` holds it, or rounded to "bf16", in float32.  Grid: groups of THREADS, or WARPS of LARGE."""
    each = LARGE // 32 if partner != "bf16" and FORMATS[partner].elements == LARGE else 1

    def body(k: Any, p: Any) -> None:
        first = (k.ctaid * THREADS + k.tid) * each
        live = first < p.count  # whole warps agree, but for bfloat16
        numbers = [p.x.load(first + i, where=live) for i in range(each)]
        if partner == "bf16":
            numbers = [x.to(bf16).to(f32) for x in numbers]
        else:
            numbers = _rounded(k, FORMATS[partner], numbers)
        for i, x in enumerate(numbers):
            p.out.store(first + i, x, where=live)

    params: dict[str, ParamType] = {"x": ptr(f32), "out": ptr(f32), "count": u32}
    return build(f"quant_rounded_{partner}", arch, params, body, THREADS)


def rounding(device: Device, f: Format, activations: str, count: int) -> Launch:
    """The launch that rounds so many numbers as a product with blocks of `f` sees them: x, out."""
    partner = "bf16" if activations == "bf16" else f.activations
    each = LARGE // 32 if partner != "bf16" and FORMATS[partner].elements == LARGE else 1
    return device.prepare(rounded(device.arch, partner), (-(-count // (THREADS * each)), 1, 1), (count,))
