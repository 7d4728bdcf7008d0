"""What the kernels of attention have in common: parameters, and which queries and keys a block works on.

A block takes some rows of one problem and one head of keys.  A row is a query of one of the heads that share these
keys: row n is query n // group of head n % group, so that a block of few queries is full all the same, and the rows of
neighbouring heads, which read the same keys, are side by side in memory too.

Grid: blocks of rows times parts of a result's columns, heads of keys, problems.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log2
from typing import Any

from trueno_cuda.kernels.store import Store
from trueno_cuda.ptx import Type, Value, f16, f16x2, f32, f64, ptr, s32, s64, u32, u64
from trueno_cuda.ptx.builder import ParamType
from trueno_cuda.rows import elementary32, elementary64

LOG2_E = log2(2.718281828459045)
OPERANDS = {"": (), "sinks": ("sinks",), "mask": ("mask",), "ragged": ("offsets_q", "offsets_k")}
"""Operands after q, k and v."""


@dataclass(frozen=True, slots=True)
class Form:
    """What changes the text of every kernel here.

    element: of q, mask, sinks and the result.  keys: of k and v in memory.  extra: a name in OPERANDS.  capped: whether
    scores have a cap.  raw: whether scores come without their scale, as tensor cores leave those of 16-bit operands.
    mapped: whether k and v are tensor maps; then the distances between problems count problems.
    """

    element: Type
    keys: Type
    extra: str = ""
    capped: bool = False
    raw: bool = False
    guarded: bool = False
    mapped: bool = False

    @property
    def wide(self) -> Type:
        """What is computed in."""
        return f64 if self.element is f64 else f32

    @property
    def late(self) -> bool:
        """Whether scores are multiplied by their scale in the exponent, which costs nothing."""
        return self.raw and not self.capped and self.extra not in ("sinks", "mask")

    @property
    def store(self) -> Store:
        return Store(self.guarded)

    @property
    def word(self) -> str:
        """Part of a kernel's name."""
        words = (self.extra, "capped" * self.capped, "raw" * self.raw, "guarded" * self.guarded)
        return "_".join(str(w) for w in (self.element, *words) if w)

    def params(self) -> dict[str, ParamType]:
        """The launch parameters.

        back, ahead: how far before and after its own position a query sees.  blocks: of rows; parts: of a result's
        columns.  together: heads whose blocks alternate.  n: offsets of each kind.  inner: problems along the inner
        leading axis; q_outer and its like: elements from one problem to the next along the outer and the inner one.
        k_pitch, v_pitch: elements of a head.  k_plane, v_plane: elements from one part of split operands to the next.
        before: what queries are multiplied by; factor: scores, then; inverse: 1 / cap; after: capped scores.
        """
        kind = ptr(self.element)
        more: dict[str, ParamType] = {name: ptr(s64) if "offsets" in name else kind for name in OPERANDS[self.extra]}
        sizes = ("t", "s", "hq", "hk", "d", "e", "group", "back", "ahead", "blocks", "parts", "together", "n")
        gaps = [f"{x}_{axis}" for x in "qkvm" for axis in ("outer", "inner")]
        pitches = ("k_pitch", "v_pitch", "mask_head", "mask_row")
        return {
            "q": kind, "keys": ptr(self.keys), "values": ptr(self.keys), **more, "out": kind,
            **self.store.pointers(f32),
            **dict.fromkeys(sizes, u32), **dict.fromkeys(pitches, u32), "inner": u32,
            **dict.fromkeys((*gaps, "k_plane", "v_plane"), u64),
            **dict.fromkeys(("before", "factor", "inverse", "after"), self.wide),
        }  # fmt: skip


@dataclass(slots=True)
class Part:
    """The part of the work that is one block's.

    q, k, v, mask: the problem's arrays, k and v of its head.  out: rows of the result before the problem's.  head: of
    keys.  first: its first row, of `height`; column: its first of the result.  low, high: the keys that any of its rows
    sees; offset: the position of query 0; nearest, farthest: the positions of its first and its last query.
    """

    q: Any
    k: Any
    v: Any
    mask: Any
    out: Any
    head: Value
    first: Value
    height: Value
    column: Value
    low: Value
    high: Value
    offset: Value
    nearest: Value
    farthest: Value


def part(k: Any, p: Any, form: Form, rows: int, columns: int, units: tuple[int, int, int] = (1, 1, 1)) -> Part:
    """Read a block's part from its place in the grid, for tiles of `rows` rows and `columns` columns of the result.

    units: what the launch promises to divide the pitches and the distances of q, k and v.
    """
    column = k.ctaid % p.parts * columns
    # Causal: blocks that see most begin first, of as many heads as stay in L2 together.
    number = k.ctaid_y * p.blocks + k.ctaid // p.parts
    several, within = number // (p.together * p.blocks), number % (p.together * p.blocks)
    beside = k.min(p.hk - several * p.together, p.together)
    block, head = p.blocks - 1 - within // beside, several * p.together + within % beside
    if form.extra == "ragged":
        first_query, queries, first_key, keys, block = _sequence(k, p, rows, p.blocks - 1 - block)
        out = first_query.to(u64) * p.hq.to(u64)
        q = p.q + k.multiple_of(out * p.d.to(u64), units[0])
        k_from, v_from = (
            (first_key.to(u64) * p.hk.to(u64) + head.to(u64)) * pitch.to(u64) for pitch in (p.k_pitch, p.v_pitch)
        )
        mask = None
    else:
        outer, inner = (k.ctaid_z // p.inner).to(u64), (k.ctaid_z % p.inner).to(u64)
        queries, keys = p.t, p.s
        out = k.ctaid_z.to(u64) * k.mul_wide(p.t, p.hq)

        def at(name: str) -> Any:
            return outer * getattr(p, f"{name}_outer") + inner * getattr(p, f"{name}_inner")

        q = p.q + k.multiple_of(at("q"), units[0])
        if form.mapped:
            keys_from, values_from = (at(name).to(u32).bits(s32) for name in "kv")
        k_from, v_from = (at(name) + head.to(u64) * getattr(p, f"{name}_pitch").to(u64) for name in "kv")
        mask = p.mask + at("m") if form.extra == "mask" else None
    height = queries * p.group
    first = block * rows
    offset = keys.bits(s32) - queries.bits(s32)
    nearest = offset + (first // p.group).bits(s32)
    farthest = offset + (k.min(first + (rows - 1), k.max(height, 1) - 1) // p.group).bits(s32)
    low = k.max(nearest - p.back.bits(s32), 0).bits(u32)
    high = k.max(k.min(keys.bits(s32), farthest + p.ahead.bits(s32) + 1), 0).bits(u32)
    high = k.select(first < height, high, 0)  # a block behind the last row
    if not form.mapped:
        keys_from, values_from = p.keys + k.multiple_of(k_from, units[1]), p.values + k.multiple_of(v_from, units[2])
    return Part(
        q, keys_from, values_from, mask, out, head, first, height, column, low, high, offset, nearest, farthest,
    )  # fmt: skip


def _sequence(k: Any, p: Any, rows: int, number: Value) -> tuple[Value, ...]:
    """A block's sequence: its first query, how many, its first key, how many; and the number of the block in it.

    The host does not know the offsets, so it starts as many blocks as there may be; what is too many has no queries.
    On a device offsets are not checked: what is out of range is cut to it, and no offset goes back, so every query is
    in one block, whatever they are.  Queries before the first offset and from the last one on are sequences without
    keys.
    """
    block, last, last_key = k.var(number), k.var(u32, 0), k.var(u32, 0)
    first, queries, first_key, keys = (k.var(u32, 0) for _ in range(4))

    def cut(offsets: Any, i: Value, inside: Value, most: Value, before: Value) -> Any:
        x = offsets.load(i, where=inside)
        x = k.min(k.max(x, 0), most.to(s64)).to(u32)
        return k.max(x, before)

    for i in k.range(0, p.n + 1):
        inside = i < p.n
        before, before_key = last.value, last_key.value
        end = k.select(inside, cut(p.offsets_q, i, inside, p.t, before), p.t)
        end_key = k.select(inside, cut(p.offsets_k, i, inside, p.s, before_key), before_key)
        own = ((end - before) * p.group + (rows - 1)) // rows
        here = (queries == 0) & (block < own)
        seen = here & inside & (i > 0)
        first.set(k.select(here, before, first))
        first_key.set(k.select(seen, before_key, first_key))
        keys.set(k.select(seen, end_key - before_key, keys))
        block.set(k.select(queries == 0, k.select(here, block.value, block - own), block.value))
        queries.set(k.select(here, end - before, queries))
        last.set(end)
        last_key.set(end_key)
    return first.value, queries.value, first_key.value, keys.value, block.value


@dataclass(slots=True)
class Row:
    """A row of a thread.  at: in its problem's result, of rows of e.  live: whether there is such a row.

    position: of its query.  mask: what is added to its scores.
    """

    number: Value
    live: Value
    query: Value
    head: Value
    position: Value
    mask: Any = None

    def at(self, p: Any) -> Any:
        """Its number among the rows of its problem's queries and result."""
        return self.query * p.hq + self.head


def row(k: Any, p: Any, form: Form, part: Part, number: Value) -> Row:
    """What is known of a row by its number."""
    query, head = number // p.group, part.head * p.group + number % p.group
    live, mask = number < part.height, None
    if form.extra == "mask":
        at = head.to(u64) * p.mask_head.to(u64) + query.to(u64) * p.mask_row.to(u64)
        mask = part.mask + k.select(live, at, 0)
    return Row(number, live, query, head, part.offset + query.bits(s32), mask)


def whole(k: Any, p: Any, part: Part, at: Value, keys: int) -> Any:
    """Whether every row sees all of the keys from `at` on, so that there is nothing to hide."""
    j = at.bits(s32)
    seen = (j >= part.farthest - p.back.bits(s32)) & (j + (keys - 1) <= part.nearest + p.ahead.bits(s32))
    return seen & (at + keys <= part.high)


def scaled(k: Any, p: Any, form: Form, score: Value) -> Any:
    """A score in powers of two, capped, but for its mask."""
    if not form.capped:
        return score if form.late or not form.raw else score * p.factor
    tanh = (elementary64 if form.wide is f64 else elementary32).tanh
    return tanh(k, score * p.inverse) * p.after


def masked(k: Any, form: Form, score: Value, row: Row, key: Value, where: Value) -> Any:
    """A score with its mask, -Inf where that hides the key."""
    added = row.mask.load(key, where=where)
    added = added if added.type is form.wide else added.to(form.wide)
    return k.select(added == -inf, -inf, k.fma(added, LOG2_E, score))


def queries(
    k: Any, p: Any, form: Form, part: Part, row: Row, column: Value, vectors: bool, split: Callable[..., list[Value]]
) -> list[list[Value]]:
    """Eight neighbours of a row of q, in four pairs of two, each in as many registers as `split` gives of two float32.

    Float16 is as it is; others have their scale, or, of bfloat16, its exponent.
    """
    unit = min(8, 16 // form.element.bytes) if vectors else 1
    line = part.q + k.multiple_of(k.select(row.live, row.at(p).to(u64) * p.d.to(u64), 0), unit)
    loaded: list[Value] = []
    for i in range(0, 8, unit):
        loaded += line.load(column + i, vec=unit, where=row.live & (column + i < p.d))
    if form.raw and form.element is f16:
        return [[k.pack(f16x2, *loaded[i : i + 2])] for i in range(0, 8, 2)]
    wide = [(x if x.type is f32 else x.to(f32)) * p.before for x in loaded]
    return [split(*wide[i : i + 2]) for i in range(0, 8, 2)]
