"""Canonical form: any operands of a row program as one row, or as rows × elements.

Axes along which all operands behave alike are merged.  At most two remain: rows and elements; an
operand then varies along both (`e`), along elements (`w`), along rows (`r`) or not at all (`u`), and is
passed without being expanded.  Only operands whose axes cannot be merged are copied.  The form depends on shapes alone,
so it is computed once per combination of shapes.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from trueno.ops import TABLE
from trueno.ops.op import Op

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Form:
    """How operands of given shapes are passed to a kernel, and the shapes of its results.

    layout: the kind of each operand, one letter each.  expand: the shape to which an operand is broadcast first, if it
    varies along only some of the rows' axes.  operands, results: the kernels' shapes.  shapes: those of the results,
    with the row axis last.
    """

    layout: str
    rank: int
    rows: int
    n: int
    expand: tuple[Shape | None, ...]
    operands: tuple[Shape, ...]
    results: tuple[Shape, ...]
    shapes: tuple[Shape, ...]


@lru_cache(maxsize=8192)
def canonical(name: str, shapes: tuple[Shape, ...]) -> Form:
    """The form of op `name` for operands of `shapes`; ShapeError if they do not fit its signature."""
    op = TABLE[name]
    sizes, leading = op.signature.bind(name, shapes)
    final = op.signature.result_shapes(sizes, leading)
    if op.over is None:
        runs = groups([varies(s, leading) for s in shapes], leading)
        if len(runs) <= 1:
            n = prod(leading)
            kinds = "".join("e" if prod(s) == n else "u" for s in shapes)
            return _form(op, kinds, 1, 1, n, (None,) * len(shapes), final)
        split = runs[-1][0]
        return _rows(op, shapes, leading[:split], [leading[split:]] * len(shapes), final)
    n, rows = sizes[op.over], prod(leading)
    if rows == 1:
        return _form(op, op.layout, 1, 1, n, (None,) * len(shapes), final)
    return _rows(op, shapes, leading, [(n,) if op.over in s.dims else () for s in op.signature.inputs], final)


def _form(
    op: Op, kinds: str, rank: int, rows: int, n: int, expand: tuple[Shape | None, ...], final: tuple[Shape, ...]
) -> Form:
    if rank == 1:
        shape: dict[str, Shape] = {"e": (n,), "w": (n,), "r": (), "u": ()}
    else:
        shape = {"e": (rows, n), "w": (n,), "r": (rows,), "u": ()}
    results = tuple(shape["e" if op.over is None or op.over in o.dims else "r"] for o in op.signature.outputs)
    return Form(kinds, rank, rows, n, expand, tuple(shape[k] for k in kinds), results, final)


def varies(shape: Shape, whole: Shape) -> tuple[bool, ...]:
    """The axes of the broadcast shape along which an operand varies."""
    return tuple(size != 1 for size in (1,) * (len(whole) - len(shape)) + shape)


def groups(patterns: list[tuple[bool, ...]], whole: Shape) -> list[list[int]]:
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


def _rows(op: Op, shapes: tuple[Shape, ...], head: Shape, tails: list[Shape], final: tuple[Shape, ...]) -> Form:
    """Rows × elements: an operand that varies along only some of the row axes is expanded over all of them."""
    rows, n = prod(head), max(map(prod, tails))
    kinds, expand = "", []
    for shape, tail in zip(shapes, tails, strict=True):
        inner = shape[max(len(shape) - len(tail), 0) :]
        outer = shape[: len(shape) - len(inner)]
        along_row = bool(tail) and prod(inner) == n
        varies = prod(outer) != 1
        kinds += {(True, True): "e", (False, True): "w", (True, False): "r", (False, False): "u"}[varies, along_row]
        expand.append(head + inner if varies and prod(outer) != rows else None)
    return _form(op, kinds, 2, rows, n, tuple(expand), final)
