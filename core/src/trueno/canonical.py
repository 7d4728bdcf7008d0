"""Canonical form: any operands of a row program as one row, or as rows × elements.

Axes along which all operands behave alike merge.  What is left is at most two: rows and elements; an
operand then varies along both (`e`), along elements (`w`), along rows (`r`) or not at all (`u`), and is
passed without being expanded.  Only what cannot merge is copied.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.ops.op import Op

Array = npt.NDArray[Any]


@dataclass(slots=True)
class Form:
    """Operands in canonical form; `layout` holds their kinds, `size` the extent of one `e` operand."""

    arrays: list[Array]
    layout: str
    rank: int
    rows: int
    n: int

    @property
    def size(self) -> int:
        return self.rows * self.n

    def shape(self, element: bool) -> tuple[int, ...]:
        """Canonical shape of a result."""
        if element:
            return (self.n,) if self.rank == 1 else (self.rows, self.n)
        return () if self.rank == 1 else (self.rows,)

    def result(self, op: Op, k: int, view: Array, *, fresh: bool) -> Array:
        """Where a kernel writes result `k`: the user's memory if it is compact, else a fresh array."""
        shape = self.shape(_element(op, k))
        if not fresh and view.flags.c_contiguous and view.flags.aligned and view.dtype.isnative:
            return view.reshape(shape)
        return np.empty(shape, view.dtype.newbyteorder("="))

    def store(self, op: Op, k: int, target: Array, view: Array) -> None:
        """Copy a result home unless it was written in place."""
        if target.__array_interface__["data"] != view.__array_interface__["data"]:
            view[...] = target.reshape(view.shape)


def _element(op: Op, k: int) -> bool:
    return op.over is None or op.over in op.signature.outputs[k].dims


def canonical(op: Op, arrays: list[Array], sizes: dict[str, int], leading: tuple[int, ...]) -> Form:
    """Bring `arrays`, whose shapes the signature has bound, to canonical form."""
    if op.over is None:
        groups = _groups([_full(a.shape, leading) for a in arrays], leading)
        if len(groups) <= 1:
            n = prod(leading)
            kinds = "".join("e" if a.size == n else "u" for a in arrays)
            return Form([_flat(a, (n,) if k == "e" else ()) for a, k in zip(arrays, kinds, strict=True)], kinds, 1, 1, n)
        n = prod(leading[i] for i in groups[-1])
        rows = prod(leading[i] for g in groups[:-1] for i in g)
        split = groups[-1][0]
        return _rows(arrays, [leading[:split]] * len(arrays), [leading[split:]] * len(arrays), rows, n)
    n = sizes[op.over]
    rows = prod(leading)
    if rows == 1:
        kinds = op.layout
        shapes = {"e": (n,), "w": (n,), "r": (), "u": ()}
        return Form([_flat(a, shapes[k]) for a, k in zip(arrays, kinds, strict=True)], kinds, 1, 1, n)
    tails = [(n,) if op.over in s.dims else () for s in op.signature.inputs]
    return _rows(arrays, [leading] * len(arrays), tails, rows, n)


def _full(shape: tuple[int, ...], whole: tuple[int, ...]) -> tuple[bool, ...]:
    """Along which axes of the broadcast shape an operand varies."""
    padded = (1,) * (len(whole) - len(shape)) + shape
    return tuple(size != 1 for size in padded)


def _groups(patterns: list[tuple[bool, ...]], whole: tuple[int, ...]) -> list[list[int]]:
    """Runs of axes along which every operand behaves alike; axes of size 1 join any run."""
    groups: list[list[int]] = []
    before: tuple[bool, ...] | None = None
    for axis, size in enumerate(whole):
        now = tuple(p[axis] for p in patterns)
        if size == 1 and groups:
            groups[-1].append(axis)
        elif now == before or (before is not None and not any(before)):
            groups[-1].append(axis)
            before = now
        else:
            groups.append([axis])
            before = now
    return groups


def _rows(
    arrays: list[Array], heads: list[tuple[int, ...]], tails: list[tuple[int, ...]], rows: int, n: int
) -> Form:
    """Rows × elements: an operand that varies along only some of the row axes is expanded over all of them."""
    found, kinds = [], ""
    for a, head, tail in zip(arrays, heads, tails, strict=True):
        inner = a.shape[max(a.ndim - len(tail), 0) :]
        outer = a.shape[: a.ndim - len(inner)]
        along_row = prod(inner) == n and (n > 1 or bool(tail))
        if prod(outer) == 1:
            kinds += "w" if along_row else "u"
            found.append(_flat(a, (n,) if along_row else ()))
            continue
        if prod(outer) != rows:
            a = np.broadcast_to(a, head + inner)
        kinds += "e" if along_row else "r"
        found.append(_flat(a, (rows, n) if along_row else (rows,)))
    return Form(found, kinds, 2, rows, n)


def _flat(a: Array, shape: tuple[int, ...]) -> Array:
    return np.require(a, a.dtype.newbyteorder("="), ("C", "A")).reshape(shape)
