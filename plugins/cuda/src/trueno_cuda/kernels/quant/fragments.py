"""x for products by int8 tensor cores: codes in the order in which mma.sync wants them, scales, and sums.

A matrix reads x in one of two orders of k, and may need sums of groups of x, which its mins are multiplied by; matrices
that disagree get both from one launch (`Layout`).

Floor: 4 m k bytes read and m k written for each order: some 2 us of latency for the few rows that it is for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from trueno.backend import COLUMN, FORMATS, Format

from trueno_cuda.device.protocol import Device
from trueno_cuda.kernels.quant.parts import SMALL, coded
from trueno_cuda.kernels.quant.task import aligned
from trueno_cuda.kernels.source import build
from trueno_cuda.ptx import Kernel, Value, f32, ptr, s8x4, s32, u8, u32
from trueno_cuda.ptx.builder import ParamType
from trueno_cuda.rows.elementary32 import rsqrt

EIGHT = 8
"""Rows of x in one mma."""
WARPS = 8
THREADS = 32 * WARPS
TURNS = 4
"""Loads of a thread that are on their way at once while squares are added up: all of a row of 4096."""
ROUNDING = 8
"""Blocks that a multiprocessor is to have while x is rounded: all of its threads."""


def grain_of(f: Format) -> int:
    """Elements of x whose sum a group's min is multiplied by; 0 where there is none."""
    return 0 if not f.m else COLUMN if f.mins and f.group == COLUMN else SMALL


def in_order(f: Format) -> bool:
    """Whether lane t has 8 neighbours of 32 elements, and not words t and t + 4 of them.

    The order of k within an mma is free, if x has the same.  Where all 32 lie in one run of every plane, 8 neighbours
    are one load of 8 bytes, if blocks begin at multiples of 8.  In a run of 16 the halves are the high and low bits of
    the same bytes, so that one word has what a lane needs of both.  Groups of 16 are an mma each.
    """
    return f.group != COLUMN and all(p.run == 1 or p.run % SMALL == 0 for p in f.planes)


def pairs_of(f: Format) -> int:
    """Elements of x whose sums tensor cores multiply by the numbers of a block, each of them a byte; 0 where none do.

    Eight mins are multiplied by sums of 32, and sixteen scales by sums of 16, which the codes' bias is taken from: a
    sum is 128 times one signed byte and another one.
    """
    if f.mins and f.elements // f.group == EIGHT and grain_of(f) == SMALL:
        return SMALL
    return COLUMN if f.bias and f.scale_signed and f.group == COLUMN and f.elements // f.group == 2 * EIGHT else 0


@dataclass(frozen=True, slots=True)
class Layout:
    """What is written of x.

    partner: the format of its codes.  orders: of k, as `in_order` says of each matrix.  grains: of sums.
    pairs: grains of sums in two bytes, as `pairs_of` says.
    """

    partner: str
    orders: tuple[bool, ...]
    grains: tuple[int, ...]
    pairs: tuple[int, ...]

    @classmethod
    def of(cls, formats: Sequence[Format]) -> "Layout":
        """For matrices of formats with the same activations."""
        (partner,) = {f.activations for f in formats}
        grains = {grain_of(f) for f in formats if not pairs_of(f)} - {0}
        orders, pairs = {in_order(f) for f in formats}, {pairs_of(f) for f in formats} - {0}
        return cls(partner, tuple(sorted(orders)), tuple(sorted(grains)), tuple(sorted(pairs)))

    @property
    def pointers(self) -> dict[str, ParamType]:
        """Parameters: codes by the order, scales, and sums by the grain."""
        codes: dict[str, ParamType] = {f"codes{int(order)}": ptr(u32) for order in self.orders}
        sums: dict[str, ParamType] = {f"sums{grain}": ptr(s32) for grain in self.grains}
        return codes | {"scales": ptr(f32)} | sums | {f"pairs{grain}": ptr(u32) for grain in self.pairs}

    def strides(self, k: int) -> list[int]:
        """Bytes of each of them, for eight rows of k elements."""
        scales = 4 * EIGHT * (k // FORMATS[self.partner].elements)
        sums = [4 * EIGHT * (k // grain) for grain in self.grains]
        pairs = [2 * EIGHT * (k // grain) for grain in self.pairs]
        return [k * EIGHT for _ in self.orders] + [scales] + sums + pairs


@cache
def fragments(arch: str, layout: Layout, wide: bool, norm: bool = False, once: bool = False) -> Kernel:
    """x in codes, as mma.sync reads them; zeros for rows behind the last.  norm: x is normalized first, and the blocks
    that share a row add up its squares themselves.  once: a warp has one block at most, and asks for it first.

    Grid: rows, in whole eights, and the blocks that share a row (`sharing`).  wide: x allows accesses of 16 bytes.

    codes: for 8 rows and 32 elements 64 words, two for each lane, of row lane / 4: words t and t + 4, where t is
    lane % 4; or 2 t and the next one, where `in_order`.
    scales: for 8 rows and a block 8 floats; sums: for 8 rows and each grain 8 whole numbers.
    pairs: for 8 rows and a block the lower bytes of a row's eight sums, and then the higher ones; of sixteen sums four
    bytes of each in turn.
    """
    f = FORMATS[layout.partner]
    each = f.elements // 32
    vec = 4 if wide and each > 1 else 1

    def body(k: Any, p: Any) -> None:
        if k.early:
            k.launch_next_grid()  # which may read its matrices meanwhile: what wrote them is done
        lane, eight, g = k.lane, k.ctaid // EIGHT, k.ctaid % EIGHT
        there = k.ctaid < p.m
        line = p.x + k.multiple_of(k.mul_wide(k.select(there, k.ctaid, 0), p.depth), f.elements)
        groups, blocks = p.depth // SMALL, p.depth // f.elements

        def read(block: Value, here: Value | None = None) -> tuple[list[Value], list[Value]]:
            """The lane's numbers of a block of x, and their weights."""
            at, live = block * f.elements + lane * each, there if here is None else there & here
            numbers = [v for i in range(0, each, vec) for v in (line + at).load(i, vec=vec, where=live)]
            if not norm:
                return numbers, []
            return numbers, [v for i in range(0, each, vec) for v in (p.norm + at).load(i, vec=vec, where=here)]

        def write(block: Value, numbers: list[Value], weights: list[Value], factor: Value | None) -> None:
            if factor is not None:
                numbers = [v * factor * w for v, w in zip(numbers, weights, strict=True)]
            codes, d = coded(k, f, numbers)
            whole = [c.to(s32, "rn") for c in codes]
            p.scales.store((eight * blocks + block) * EIGHT + g, d, where=lane == 0)
            for ordered in layout.orders:
                to = getattr(p, f"codes{int(ordered)}")
                if each == 1:
                    place = lane if ordered else lane % COLUMN // 4 * 8 + lane // COLUMN * 4 + lane % 4
                    at = ((eight * groups + block) * 32 + g * 4) * 8 + place
                    to.cast(u8).store(at, whole[0].bits(u32))
                    continue
                group = block * (f.elements // SMALL) + lane // 4
                words = [k.pack(s8x4, *whole[i : i + 4]).bits(u32) for i in range(0, each, 4)]
                first = (eight * groups + group) * 32 + g * 4  # of the row's four lanes
                if ordered:
                    to.store((first + lane % 4) * 2, words)
                else:
                    for i, word in enumerate(words):
                        to.store((first + lane % 2 * 2 + i) * 2 + lane % 4 // 2, word)
            totals: dict[int, Value] = {}
            for grain in {*layout.grains, *layout.pairs}:
                total = whole[0]
                for number in whole[1:]:
                    total = total + number
                totals[grain] = k.warp_sum(total, grain // each)
            for grain in layout.grains:
                lanes = grain // each
                at = (eight * (p.depth // grain) + (block * (f.elements // grain) + lane // lanes)) * EIGHT + g
                getattr(p, f"sums{grain}").store(at, totals[grain], where=lane % lanes == 0)
            for grain in layout.pairs:
                lanes = grain // each
                group, low = lane // lanes, ((totals[grain] + 64) & 127) - 64
                place, higher = (group, EIGHT) if grain == SMALL else (group // 4 * 8 + group % 4, 4)
                at = ((eight * blocks + block) * EIGHT + g) * (2 * f.elements // grain) + place
                for more, part in ((0, low), (higher, (totals[grain] - low) >> 7)):
                    getattr(p, f"pairs{grain}").cast(u8).store(at + more, part.bits(u32), where=lane % lanes == 0)

        first = k.ctaid_y * WARPS + k.warp
        asked = read(first, first < blocks) if once else None
        factor = _factor(k, p, line, there, wide) if norm else None
        if asked is not None:
            with k.when(first < blocks):
                write(first, *asked, factor)
            return
        for block in k.range(first, blocks, k.nctaid_y * WARPS):
            write(block, *read(block), factor)

    own: tuple[dict[str, ParamType], ...] = ({"norm": ptr(f32)}, {"eps": f32}) if norm else ({}, {})
    params: dict[str, ParamType] = {"x": ptr(f32), **own[0], **layout.pointers, "m": u32, "depth": u32, **own[1]}
    words = [*("ordered" if order else "words" for order in layout.orders), *map(str, layout.grains)]
    words += [f"pairs{grain}" for grain in layout.pairs]
    name = "_".join(["quant_fragments", *["normed"] * norm, layout.partner, *words, *["unaligned"] * (not wide),
                     *["once"] * once])  # fmt: skip
    return build(name, arch, params, body, THREADS)


def _factor(k: Any, p: Any, line: Any, there: Value, wide: bool) -> Value:
    """What `rms_norm` multiplies the elements of a row by, beside weights."""
    total = k.var(f32, 0.0)
    for first in k.range(k.tid * 4, p.depth, THREADS * 4 * TURNS):
        loaded: list[Value] = []
        for at in (first + turn * THREADS * 4 for turn in range(TURNS)):
            four, here = line + k.multiple_of(at, 4), there & (at < p.depth)
            loaded += four.load(0, vec=4, where=here) if wide else [four.load(i, where=here) for i in range(4)]
        for v in loaded:
            total.fma(v, v)
    return rsqrt(k, k.block_sum(total) / p.depth.to(f32) + p.eps)


def sharing(sms: int, rows: int, blocks: int) -> int:
    """How many thread blocks share a row of so many blocks of x, of which a warp rounds one at a time."""
    return max(min(-(-blocks // WARPS), sms * ROUNDING // rows), 1)


class Fragments:
    """x[m, k] as `fragments` writes it.  nbytes: of all; at: where each of `Layout.pointers` begins."""

    def __init__(self, device: Device, layout: Layout, m: int, k: int, wide: bool, norm: bool = False) -> None:
        padded, blocks = -(-m // EIGHT) * EIGHT, k // FORMATS[layout.partner].elements
        grid = padded, sharing(device.sms, padded, blocks), 1
        kernel = fragments(device.arch, layout, wide, norm, once=norm and blocks <= grid[1] * WARPS)
        self.launch = device.prepare(kernel, grid, (m, k))
        self.strides = layout.strides(k)
        self.at, self.nbytes = list[int](), 0
        for stride in self.strides:
            self.at.append(self.nbytes)
            self.nbytes += aligned(padded // EIGHT * stride)

    def places(self, scratch: int, first: int = 0) -> list[int]:
        """Addresses of what there is of the rows from number `first` on, in whole eights."""
        return [scratch + at + first // EIGHT * stride for at, stride in zip(self.at, self.strides, strict=True)]
