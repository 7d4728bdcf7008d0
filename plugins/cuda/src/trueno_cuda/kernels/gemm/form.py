"""What every kernel of a product C = A B has in common: its parameters, and which tile of which product a block makes.

Parameters, in order: a, b, out, what the store adds; m, n, depth (that is k); elements from one row of the result to
the next, n where these are all its columns; terms that one split sums, tiles along n, products along the inner leading
axis; elements from one product to the next, of a and b, along the outer and the inner leading axis.  Grid: tiles,
splits of k, products.
"""

from dataclasses import dataclass
from typing import Any

from trueno_cuda.kernels.store import Finish, Store
from trueno_cuda.ptx import Type, Value, f32, ptr, u32, u64
from trueno_cuda.ptx.builder import ParamType

GROUP = 8
"""Rows of tiles that neighbouring blocks share, so that what they read of B stays in L2."""

SKEW = 8
"""Words between rows of sums in shared memory, beyond their own: so pairs of eight rows lie in different banks."""


def params(element: Type, result: Type, store: Store) -> dict[str, ParamType]:
    """The launch parameters of a product."""
    return {
        "a": ptr(element), "b": ptr(element), "out": ptr(result), **store.pointers(result),
        "m": u32, "n": u32, "depth": u32, "pitch": u32, "share": u32, "across": u32, "inner": u32,
        "a_outer": u64, "a_inner": u64, "b_outer": u64, "b_inner": u64,
        **store.floats(result),
    }  # fmt: skip


@dataclass(slots=True)
class Part:
    """The part of the work that is one block's.

    a, b: this product's matrices; row, column: the tile's first; begin, end: of k.
    """

    a: Any
    b: Any
    row: Value
    column: Value
    begin: Value
    end: Value


@dataclass(slots=True)
class Place:
    """Where a block's sums go.

    row, column: the tile's first; lead: rows of the result before this product's; base: elements before it.
    """

    row: Value
    column: Value
    lead: Value
    base: Value


def part(k: Any, p: Any, rows: int, columns: int, a_unit: int = 1, b_unit: int = 1, share: int = 1) -> Part:
    """Read a block's part from its place in the grid, for tiles of `rows` x `columns`.

    a_unit, b_unit, share: what the launch promises to divide the distance between products, and a split's terms.
    """
    tile, product = k.ctaid, k.ctaid_z
    down = (p.m + (rows - 1)) // rows
    group, within = tile // (p.across * GROUP), tile % (p.across * GROUP)
    height = k.min(down - group * GROUP, GROUP)
    row, column = (group * GROUP + within % height) * rows, within // height * columns
    begin = k.multiple_of(k.ctaid_y * p.share, share)
    outer, inner = (product // p.inner).to(u64), (product % p.inner).to(u64)
    a = p.a + k.multiple_of(outer * p.a_outer + inner * p.a_inner, a_unit)
    b = p.b + k.multiple_of(outer * p.b_outer + inner * p.b_inner, b_unit)
    return Part(a, b, row, column, begin, k.min(p.depth, begin + p.share))


def place(k: Any, p: Any, store: Store, row: Value, column: Value) -> Place:
    """Where a tile's sums go; those of splits lie one after the other, a product's together."""
    number = k.ctaid_z.to(u64)
    if store.partial:
        number = number * k.nctaid_y.to(u64) + k.ctaid_y.to(u64)
    lead = number * p.m.to(u64)
    return Place(row, column, lead, lead * p.pitch.to(u64))


def keep(k: Any, part: Part) -> Any:
    """Put a tile's row and column where they take no registers during the sum; a k.sync() must follow."""
    kept = k.shared(u32, 2)
    with k.when(k.tid == 0):
        kept.store(0, part.row)
        kept.store(1, part.column)
    return kept


def returned(k: Any, p: Any, store: Store, kept: Any, rows: int, columns: int) -> Place:
    """The place of a tile that `keep` put away, of tiles of `rows` x `columns`."""
    row, column = k.multiple_of(kept.load(0), rows & -rows), k.multiple_of(kept.load(1), columns & -columns)
    return place(k, p, store, row, column)


def shares(rows: int, columns: int, ring: int, blocks: int) -> bool:
    """Whether the blocks of a cluster can share a tile: they divide its rows, and `ring` bytes hold its sums."""
    return blocks == 1 or (rows % blocks == 0 and 4 * rows * (columns + SKEW) <= ring)


def add_up(
    k: Any, p: Any, finish: Finish, place: Place, sums: Any, shape: tuple[int, int, int], blocks: int, result: Type,
    width: int, threads: int,
) -> None:  # fmt: skip
    """Store this block's rows of a tile whose sums are spread over the shared memory of a cluster's blocks.

    shape: rows, columns, and words from one row of `sums` to the next.  width: neighbours that a thread stores at once.
    threads: of those that come here, numbered from 0.  The barriers of the cluster before and after are the caller's.
    """
    rows, columns, pitch = shape
    share, per = rows // blocks, columns // width
    rank = k.ctaid_y
    others = [k.in_block(sums, b) for b in range(blocks)]
    for first in range(0, share * per, threads):
        number = k.tid + first
        row, column = rank * share + number // per, number % per * width
        live = (number < share * per) if first + threads > share * per else None
        spot = row * pitch + column
        total = [k.var(v) for v in others[0].load(spot, vec=width, where=live)]
        for other in others[1:]:
            for sum_, part in zip(total, other.load(spot, vec=width, where=live), strict=True):
                sum_ += part
        row, column = place.row + row, place.column + column
        inside = (row < p.m) & (column < p.n)
        inside = inside if live is None else inside & live
        at = k.multiple_of(row.to(u64) * p.pitch.to(u64) + place.base, width) + column.to(u64)
        values = [v.value if result is f32 else v.value.to(result) for v in total]
        p.out.store(at, finish(values, at, place.lead + row.to(u64), column, inside), where=inside)
