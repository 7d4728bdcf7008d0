"""Which kernel attends, over how many splits of the keys, and in how many dispatches.

A dispatch ends where a binding does, where the loop budget of a CPU adapter would, and where it would keep a slow GPU
busy for longer than an operating system allows.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from trueno.errors import KernelError

from trueno_wgpu.device.gpu import Groups, Limits
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.attention import few, tile
from trueno_wgpu.kernels.attention.text import Form
from trueno_wgpu.kernels.memory import Band, bands
from trueno_wgpu.kernels.stacked import Stack, parts
from trueno_wgpu.kernels.store import PARTIAL, Store

FILLING = 528
"""Workgroups that fill a large GPU: four on each of 132 multiprocessors."""
LEAST = 64
"""Keys of a split, at least."""
MOST_SPLITS = 64
WORK = 1 << 36
"""Multiply-adds of one dispatch: a tenth of a second at a teraflop a second."""
SPARE = 0.8
"""Of the loop budget of a CPU adapter, which loops that naga adds may share."""
BANDED = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a problem: queries, keys, heads of both, and the width of a head of keys and of values."""

    t: int
    s: int
    hq: int
    hk: int
    d: int
    e: int

    @property
    def group(self) -> int:
        """Heads of queries that share one of keys."""
        return self.hq // self.hk


@dataclass(frozen=True, slots=True)
class Extra:
    """What else attention takes.  sinks: whether parts are joined with sinks.  mask: the shape of a mask's problem."""

    sinks: bool = False
    mask: tuple[int, int, int] | None = None

    def words(self) -> list[int]:
        """The uniforms of a mask."""
        if self.mask is None:
            return []
        heads, height, width = self.mask
        return [height * width if heads > 1 else 0, width if height > 1 else 0, 0, 0]


PLAIN = Extra()


@dataclass(frozen=True, slots=True)
class Pass:
    """One dispatch.  uniforms: all but scale, cap and after.  reads: which rows of q, k and v; None for all."""

    shader: Shader
    uniforms: bytes
    groups: Groups
    reads: tuple[Band | None, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """Dispatches that write to the same rows of the result: `parts` parts of each, joined if there are several."""

    passes: tuple[Pass, ...]
    out: Band | None
    rows: int
    parts: int


def _choose(sizes: Sizes, problems: int, form: Form, limits: Limits) -> tuple[few.Lanes | tile.Tile, int]:
    """The kernel, and in how many splits of the keys it fills the GPU, or keeps to the loop budget."""
    rows = sizes.t * sizes.group
    lanes = few.lanes_for(rows, sizes.d, sizes.e, form)
    chosen = lanes or tile.tile_for(rows, sizes.d, sizes.e)
    if limits.trips:
        if isinstance(chosen, few.Lanes):
            chunk, trips = chosen.chunk, chosen.trips()
        else:
            chunk, trips = tile.KEYS, chosen.trips(sizes.d)
        reach = max(int(limits.trips * SPARE) // trips - 2, 1) * chunk
        return chosen, -(-sizes.s // reach)
    blocks = -(-rows // chosen.rows) * _wide(chosen, sizes.e)
    return chosen, max(min(FILLING // (blocks * sizes.hk * problems), sizes.s // LEAST, MOST_SPLITS), 1)


def _wide(chosen: few.Lanes | tile.Tile, e: int) -> int:
    """Blocks of the columns of the result."""
    return 1 if isinstance(chosen, few.Lanes) else -(-e // (chosen.columns * tile.ACROSS * 4))


def steps(
    sizes: Sizes, whole: Stack, causal: bool, window: int, capped: bool, guarded: bool, limits: Limits,
    extra: Extra = PLAIN,
) -> list[Step]:  # fmt: skip
    """What computes all problems of a stack, none of whose sizes is 0."""
    t, s, hq, hk, d, e = sizes.t, sizes.s, sizes.hq, sizes.hk, sizes.d, sizes.e
    form = Form(4 if d % 4 == 0 else 1, 4 if e % 4 == 0 else 1, capped, Store(guarded), extra.mask is not None)
    chosen, splits = _choose(sizes, whole.count, form, limits)
    far = s + t
    back = min(window - 1, far) if window else far
    ahead = 0 if causal else back

    def build(part: Stack, queries: BANDED, keys: list[BANDED]) -> Step:
        """One step: all problems of `part`, these queries (first, count), keys in these bands."""
        shares = [min(-(-count // (splits * LEAST)) * LEAST, count) for _, count in keys]
        counts = [-(-count // share) for (_, count), share in zip(keys, shares, strict=True)]
        several = sum(counts) > 1 or extra.sinks
        own = replace(form, store=PARTIAL) if several else form
        rows = part.count * queries[1] * hq
        passes, more = [], part.words() + extra.words()
        for top, some in _ranges(chosen, sizes, queries[1], part.count, limits):
            for i, (first, count) in enumerate(keys):
                blocks = 1 if isinstance(chosen, few.Lanes) else -(-some * sizes.group // chosen.rows)
                wide = _wide(chosen, e)
                groups = blocks * hk * counts[i] * wide * part.count
                numbers = (
                    t, s, hq, hk, d, e, sizes.group, queries[1], queries[0], top, some, first, first, first + count,
                    shares[i], counts[i], sum(counts[:i]), back, ahead, groups, blocks, wide, rows, 0, *more,
                )  # fmt: skip
                words = struct.pack(f"<17I2i{5 + len(more)}I", *numbers)
                q, k, v, *mask = part.operands
                if len(keys) > 1:
                    k, v = Band(first, count, hk * d * 4), Band(first, count, hk * e * 4)
                if queries[1] != t:
                    q = Band(*queries, hq * d * 4)
                used = few.shader(chosen, own) if isinstance(chosen, few.Lanes) else tile.shader(chosen, own)
                passes.append(Pass(used, struct.pack("<I", 0) + words, fold(groups, limits.groups), (q, k, v, *mask)))
        out = Band(*queries, hq * e * 4) if queries[1] != t else part.out
        return Step(tuple(passes), out, rows, sum(counts))

    of_mask = () if extra.mask is None else (prod(extra.mask) * 4,)
    if of_mask and of_mask[0] > limits.binding:
        raise KernelError(
            f"attention_masked: a mask of shape {extra.mask} has {of_mask[0]} bytes, and this adapter binds "
            f"{limits.binding}; call it for some of the queries, or use another backend"
        )
    if whole.count == 1:
        keys = bands("attention", "k", s, (hk * d * 4, hk * e * 4), limits)
        scratch = splits * len(keys) * hq * e * 4
        row = (hq * d * 4, hq * e * 4, *((scratch,) if splits * len(keys) > 1 or extra.sinks else ()))
        return [build(whole, queries, keys) for queries in bands("attention", "q", t, row, limits)]
    problem = (t * hq * d * 4, s * hk * d * 4, s * hk * e * 4, *of_mask)
    scratch = splits * t * hq * e * 4 if splits > 1 or extra.sinks else 0
    most = 0 if limits.trips else max(WORK // (t * s * hq * (d + e)), 1)
    return [
        build(part, (0, t), [(0, s)])
        for part in parts("attention", whole, problem, t * hq * e * 4, limits, most, (scratch,))
    ]


def _ranges(
    chosen: few.Lanes | tile.Tile, sizes: Sizes, queries: int, problems: int, limits: Limits
) -> Iterator[BANDED]:
    """Queries of each dispatch: (first, count), whole blocks of rows where there are several."""
    most = queries
    if isinstance(chosen, tile.Tile) and not limits.trips:
        each = sizes.s * sizes.hq * (sizes.d + sizes.e) * problems
        most = max(WORK // each // chosen.rows, 1) * chosen.rows
    for first in range(0, queries, most):
        yield first, min(most, queries - first)
