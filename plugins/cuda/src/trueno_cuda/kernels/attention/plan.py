"""Which kernel attends, with which tile, and with which numbers."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product as combinations
from math import prod
from typing import Any

from trueno.backend import stacked

from trueno_cuda.device.protocol import Device, Launch
from trueno_cuda.kernels.attention import planes, simt, wgmma
from trueno_cuda.kernels.attention.form import LOG2_E, Form
from trueno_cuda.kernels.attention.fragments import Parts
from trueno_cuda.kernels.attention.mma import Tile, mma, widened
from trueno_cuda.kernels.attention.planes import UNIT
from trueno_cuda.kernels.operands import build
from trueno_cuda.ptx import Type, bf16, f16, f32, f64

Shape = tuple[int, ...]
MOST = 1 << 29
"""Below this lie tokens, and rows of each operand, so that positions fit into 32 bits."""
GRID = 65535
"""Blocks along the second and third axis of a grid."""
FEW = 32
"""Rows of queries for which tensor cores are not tried."""
LITTLE = 4096
"""Scores of a head of keys for which they are not tried."""
ROUGH = 512
"""Keys from which on weights and values of float32 are multiplied in two parts: of each weight times value, 2^-15 or
512 u is lost at most, where sums of so many terms may err by (s + 16) u."""
SOME = 128
"""The same of bfloat16, where only weights have two parts, of which 2^-17 or 128 u is lost."""
FILLING = 3
"""Blocks of 128 rows that each multiprocessor should have; of fewer, halves take less time: in float32 at 1024 tokens
of 28 heads 74 us in place of 91, at 2048 246 in place of 230."""
NEAR = 32 << 20
"""Bytes of keys and values that blocks side by side read, which L2 holds."""
LARGEST, SMALLEST = float.fromhex("0x1.fffffep127"), 2.0**-126
SWIZZLE = 128
NO_CAP = 1e30
"""A cap from which scores below 10^27 keep every digit."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a problem: queries, keys, heads of both, and the width of a head of keys and of values.

    lead: leading axes, neighbours merged; gaps: of q, k, v and mask, the problems from one to the next along each.
    mask: heads and queries of a mask.  n: offsets of each kind.
    """

    t: int
    s: int
    hq: int
    hk: int
    d: int
    e: int
    lead: Shape = ()
    gaps: tuple[Shape, ...] = ((), (), (), ())
    mask: tuple[int, int] = (1, 1)
    n: int = 0

    @property
    def group(self) -> int:
        """Heads of queries that share one of keys."""
        return self.hq // max(self.hk, 1)


def sizes_of(extra: str, q: Shape, k: Shape, v: Shape, more: Sequence[Shape], out: Shape) -> Sizes | None:
    """The sizes of a call; None for shapes that do not agree."""
    if min(map(len, (q, k, v, *more[: extra == "mask"]))) < 3:
        return None
    (t, hq, d), (s, hk, e) = q[-3:], v[-3:]
    if k[-3:] != (s, hk, d) or out[-3:] != (t, hq, e) or hq % max(hk, 1) or (hq and not hk):
        return None
    leads, mask, n = [q[:-3], k[:-3], v[:-3]], (1, 1), 0
    if extra == "sinks" and more[0] != (hq,):
        return None
    if extra == "ragged":
        if more[0] != more[1] or len(more[0]) != 1 or not more[0][0] or any(leads):
            return None
        n = more[0][0]
    if extra == "mask":
        m, r, width = more[0][-3:]
        if m not in (1, hq) or r not in (1, t) or width != s:
            return None
        leads.append(more[0][:-3])
        mask = m, r
    common = stacked(out[:-3], leads, (1,) * len(leads))
    if common is None:
        return None
    if max(t + s, prod(q[:-1]), prod(k[:-1]), prod(out[:-1])) >= MOST or hk > GRID:
        return None
    lead, gaps = common
    gaps += ((0,) * len(lead),) * (4 - len(gaps))
    if 0 in (*k, d):  # every result is 0, as if there were no keys
        s = 0
    return Sizes(t, s, hq, hk, d, e, lead, gaps, mask, n)


def numbers(scale: float, softcap: float, d: int, form: Form) -> tuple[float, ...]:
    """before, factor, inverse and after.  Weights are powers of two.

    Raw scores of bfloat16 have the scale's exponent before they are summed, so that they overflow where scaled ones do.
    """
    scale = scale or (d or 1) ** -0.5
    most, least = (LARGEST, SMALLEST) if form.wide is f32 else (math.inf, 2.0**-1022)
    whole = min(scale * (1.0 if softcap else LOG2_E), most)
    before, factor = whole, 1.0
    if form.raw:
        before = 2.0 ** max(math.floor(math.log2(whole)), -126) if form.element is bf16 and whole > 0 else 1.0
        factor = max(whole / before, least)
    inverse = factor / max(softcap, least) if softcap else 1.0
    return before, factor, min(inverse, most), softcap * LOG2_E if softcap else 1.0


@dataclass(frozen=True, slots=True)
class Step:
    """One launch.  offsets: elements of q, k, v, mask and the result before what it works on."""

    launch: Any
    offsets: tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Mapped:
    """A launch that is given the addresses of k and v where its kernel takes maps."""

    device: Device
    launch: Launch
    element: str
    shapes: tuple[Shape, ...]
    box: Shape

    def __call__(self, pointers: Sequence[int], floats: Sequence[float] = ()) -> None:
        q, *both = pointers[:3]
        maps = [
            self.device.tensor_map(address, self.element, shape, self.box, SWIZZLE)
            for address, shape in zip(both, self.shapes, strict=True)
        ]
        self.launch((q, *maps, *pointers[3:]), floats)


@dataclass(frozen=True, slots=True)
class Plan:
    """The launches of a call.  split: makes 16-bit planes of k and v in `scratch` elements, v's from `second` on."""

    form: Form
    steps: tuple[Step, ...]
    split: Launch | None = None
    scratch: int = 0
    second: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """A kernel by its tile: of `simt`, or of `mma` and `wgmma`, with how many parts their operands have."""

    tile: simt.Tile | Tile | wgmma.Tile
    parts: Parts = Parts()  # noqa: RUF009 - it is frozen


def parts_for(element: Type, s: int) -> Parts:
    """As many parts as sums of s products in float32 deserve."""
    if element is f32:
        return Parts(3, 2, 2) if s >= ROUGH else Parts(3, 3, 3)
    return Parts(1, 2 if element is f16 or s >= SOME else 3, 1)


def choose(
    device: Device, sizes: Sizes, element: Type, extra: str = "", window: int = 0, parts: Parts | None = None
) -> Choice:
    """Tensor cores for many rows of 16 bits or float32, if a tile fits; else fma."""
    rows = sizes.t * sizes.group
    fallback = Choice(simt.tile_for(rows if not sizes.n else rows // max(sizes.n - 1, 1), sizes.e))
    if element is f64 or max(sizes.d, sizes.e) > 256 or rows <= FEW or rows * sizes.s < LITTLE or not sizes.e:
        return fallback
    parts = parts or parts_for(element, min(sizes.s, window or sizes.s))
    # A map would bring keys of the next sequence, whose NaN a weight of 0 keeps.
    mapped = device.arch == "sm_90a" and extra != "ragged" and rows > 64
    tiles = _mapped(element, sizes, device.sms) if mapped else ()
    for tile in (*tiles, *_tiles(element, sizes.d, sizes.e, rows)):
        if tile.shared_bytes(parts) <= device.shared:
            return Choice(tile, parts)
    return fallback


def _mapped(element: Type, sizes: Sizes, sms: int) -> Iterator[wgmma.Tile]:
    """Those of sm_90a, the quickest first."""
    d, e = (-(-n // wgmma.WIDE) * wgmma.WIDE for n in (sizes.d, sizes.e))
    if element is f32:
        blocks = -(-sizes.t * sizes.group // 128) * sizes.hk * prod(sizes.lead)
        if blocks < FILLING * sms:
            yield wgmma.Tile(1, 64, 2, d, e)
            yield wgmma.Tile(1, 64, 1, d, e)
        yield wgmma.Tile(2, 48, 2, d, e)
    elif e <= 128:
        yield wgmma.Tile(2, 128, 2, d, e)
    yield wgmma.Tile(2, 64, 2, d, e)
    yield wgmma.Tile(2, 64, 1, d, e)


def _tiles(element: Type, d: int, e: int, rows: int) -> Iterator[Tile]:
    """Those of mma.sync, the quickest first: on an H200, bfloat16 of 4096 tokens, 32 heads of 128, two blocks of four
    warps with 16 rows each reach 257 TFLOP/s, eight warps 241, four with 32 rows 228; in float32 eight warps are best.
    """
    d, e = widened(d), widened(e)
    wide = max(d, e)
    if rows > 64 and element is f32:
        yield Tile(8, 1, 64 if wide <= 128 else 32, d, e)
    for keys in (64, 32, 16):
        if keys * wide <= 64 * 128:
            yield Tile(4, 1, keys, d, e, 2 if wide <= 128 and element is not f32 else 1)


def form_for(choice: Choice, element: Type, extra: str, capped: bool, guarded: bool) -> Form:
    fast = not isinstance(choice.tile, simt.Tile)
    keys = bf16 if fast and element is f32 else element
    mapped = isinstance(choice.tile, wgmma.Tile)
    return Form(element, keys, extra, capped, fast and element is not f32, guarded, mapped)


def plan(
    device: Device, sizes: Sizes, element: Type, extra: str, causal: bool, window: int, *,
    capped: bool = False, guarded: bool = False, aligned: bool = True, choice: Choice | None = None,
    parts: Parts | None = None,
) -> Plan:  # fmt: skip
    """The launches of a call of these sizes.  aligned: q, k, v and the result begin at multiples of 16 bytes.

    parts: in place of those that keep an op's bound.
    """
    choice = choice or choose(device, sizes, element, extra, window, parts)
    form = form_for(choice, element, extra, capped, guarded)
    tile, d, e, s = choice.tile, sizes.d, sizes.e, sizes.s
    split, scratch, second = None, 0, 0
    k_pitch, v_pitch, k_plane, v_plane = d, e, 0, 0
    if not isinstance(tile, simt.Tile):
        unit = 16 // element.bytes
        if element is f32 or not aligned or d % UNIT or e % UNIT:
            k_rows, v_rows = (s * sizes.hk * _stacked(sizes, i) for i in (1, 2))
            k_pitch, v_pitch, k_plane, v_plane = tile.d, tile.e, k_rows * tile.d, v_rows * tile.e
            second = k_plane * choice.parts.keys
            scratch = second + v_plane * choice.parts.values
            wide = aligned and d % unit == 0 and e % unit == 0
            constants = {"PX": choice.parts.keys, "PY": choice.parts.values, "V": unit if wide else 1}
            kernel = build(planes.source(_name(element)), device.arch, tuple(constants.items()))
            most = max(k_rows * tile.d, v_rows * tile.e) // UNIT
            split = device.prepare(kernel, (-(-most // planes.THREADS), 2, 1), (k_rows, v_rows, d, e, tile.d, tile.e))
        vectors, pair = aligned and d % unit == 0, 2 if e % 2 == 0 and aligned else 1
        if isinstance(tile, Tile):
            kernel = mma(device.arch, tile, form, choice.parts, vectors, pair)
        else:
            kernel = wgmma.wgmma(tile, form, choice.parts, vectors, pair)
        columns = tile.e
    else:
        fours = min(4, 16 // element.bytes)
        kernel = simt.simt(device.arch, tile, form, aligned and d % fours == 0 and e % fours == 0)
        columns = tile.wide
    rows = sizes.t * sizes.group
    blocks = -(-rows // tile.rows) if extra != "ragged" else rows // tile.rows + sizes.n + 1
    across = max(-(-e // columns), 1)
    together = min(
        max(NEAR // max(s * (k_pitch * choice.parts.keys + v_pitch * choice.parts.values) * 2, 1), 1), sizes.hk
    )
    back = min(window - 1, s + sizes.t) if window else s + sizes.t
    per = (sizes.t * sizes.hq * d, s * sizes.hk * k_pitch, s * sizes.hk * v_pitch, prod(sizes.mask) * s)
    heads, queries = sizes.mask
    steps = []
    for count, inner, first, number, strides in _problems(sizes):
        sizes_of_gaps = (per[0], 1, 1, per[3]) if form.mapped else per
        gaps = [g * size for axes, size in zip(strides, sizes_of_gaps, strict=True) for g in axes]
        words = (
            sizes.t, s, sizes.hq, sizes.hk, d, e, sizes.group, back, 0 if causal else back, blocks, across, together,
            sizes.n, k_pitch, v_pitch, queries * s if heads > 1 else 0, s if queries > 1 else 0, inner, *gaps,
            k_plane, v_plane,
        )  # fmt: skip
        launch: Any = device.prepare(kernel, (blocks * across, sizes.hk, count), words)
        if isinstance(tile, wgmma.Tile):
            shapes = tuple(
                (many if split else 1, _stacked(sizes, i), s, sizes.hk, pitch)
                for i, many, pitch in ((1, choice.parts.keys, k_pitch), (2, choice.parts.values, v_pitch))
            )
            launch = Mapped(device, launch, form.keys.name, shapes, wgmma.boxes(tile))
        before = [f * size for f, size in zip(first, per, strict=True)]
        steps.append(Step(launch, (*before, number * sizes.t * sizes.hq * e)))  # type: ignore[arg-type]
    return Plan(form, tuple(steps), split, scratch, second)


def _stacked(sizes: Sizes, operand: int) -> int:
    """How many problems an operand really has."""
    return prod(n for n, gap in zip(sizes.lead, sizes.gaps[operand], strict=True) if gap)


def _problems(sizes: Sizes) -> Iterator[tuple[int, int, tuple[int, ...], int, tuple[tuple[int, int], ...]]]:
    """Launches: problems, how many along the inner axis, the first of each operand and of the result, strides.

    A launch knows two leading axes; more are walked here, and so is what one grid cannot hold.
    """
    lead, gaps = sizes.lead, sizes.gaps
    if not lead:
        yield 1, 1, (0, 0, 0, 0), 0, ((0, 0),) * 4
        return
    inner = lead[-1]
    own = 2 if len(lead) > 1 and lead[-2] * inner <= GRID else 1
    outer = lead[-2] if own == 2 else 1
    strides = tuple((g[-2] if own == 2 else 0, g[-1]) for g in gaps)
    for number, place in enumerate(combinations(*map(range, lead[:-own]))):
        at = [sum(i * g for i, g in zip(place, gap[:-own], strict=True)) for gap in gaps]
        for first in range(0, inner, GRID):
            count = min(inner - first, GRID)
            begin = tuple(a + first * gap[-1] for a, gap in zip(at, gaps, strict=True))
            yield outer * count, count, begin, number * outer * inner + first, strides


def _name(element: Type) -> str:
    return {f32: "float32", f16: "float16", bf16: "bfloat16"}[element]
