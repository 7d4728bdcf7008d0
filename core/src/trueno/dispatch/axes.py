"""The axis of its operands along which an op works, and the layout of its arrays for the user and for a kernel.

A kernel's row axis is the last.  `geometry` computes the order of an operand's axes for that, the shape to which it is
broadcast, and the shape of a result for the user.  It depends on shapes alone, so it is computed once per combination.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from trueno.dispatch.canonical import Form, canonical
from trueno.dispatch.coerce import shown
from trueno.errors import GuardError, ParameterError, ShapeError, dimensions
from trueno.ops import TABLE
from trueno.ops.op import Op

Shape = tuple[int, ...]
BESIDE = 16
"""The fewest rows beside one another for which rows are not copied: a vector."""


class OperandView(NamedTuple):
    """An operand for a kernel: its axes in `order`, broadcast to `expand` (each None: as they are), then as `shape`."""

    order: Shape | None
    expand: Shape | None
    shape: Shape


class ResultView(NamedTuple):
    """How a kernel, which fills `shape`, returns a result of shape `final`; its axes in `order` have shape `ordered`.

    order None: the result's own order.
    """

    final: Shape
    order: Shape | None
    ordered: Shape
    shape: Shape


Views = tuple[tuple[OperandView, ...], tuple[ResultView, ...]]


@dataclass(frozen=True, slots=True)
class Geometry:
    """A call along one axis.

    form: the canonical form of a row program's operands, with the row axis last.  across: the views that need no copy,
    for kernels of rows that lie across memory; None where rows lie along memory, or too few beside one another.
    """

    op: Op
    axis: int | None
    keepdims: bool
    rank: int
    form: Form
    operands: tuple[OperandView, ...]
    results: tuple[ResultView, ...]
    across: Views | None = None

    @property
    def final(self) -> tuple[Shape, ...]:
        """Shapes of the results as the user sees them."""
        return tuple(result.final for result in self.results)

    def user_shape(self, shape: Shape, k: int) -> Shape:
        """The user's shape of result `k`, whose shape in the kernel's order is `shape`."""
        return _user_shape(self.op, self.axis, self.keepdims, self.rank, shape, k)


def geometry(op: Op, shapes: tuple[Shape, ...], axis: Any = -1, keepdims: Any = False) -> Geometry:
    """The geometry of a call on operands of these shapes; ShapeError and ParameterError as the call raises them."""
    if op.over is None or (axis.__class__ is int and axis == -1 and keepdims is False):
        return _geometry(op.name, shapes, -1, False)
    return _geometry(op.name, shapes, row_axis(op, shapes, axis, keepdims), bool(keepdims))


@lru_cache(maxsize=8192)
def _geometry(name: str, shapes: tuple[Shape, ...], axis: int | None, keepdims: bool) -> Geometry:
    op = TABLE[name]
    rank = max(map(len, shapes))
    orders: list[Shape | None] = [None] * len(shapes)
    if axis is None:
        sizes, leading = op.signature.bind(name, shapes)
        whole = (*leading, *sizes.values())
        form = canonical(name, ((prod(whole),),) * len(shapes))
        expand = [None if shape == whole else whole for shape in shapes]
    else:
        if axis != -1:
            orders = [_order(op, i, shape, axis) for i, shape in enumerate(shapes)]
        form = canonical(name, tuple(_ordered(s, order) for s, order in zip(shapes, orders, strict=True)))
        expand = list(form.expand)
    results = []
    for k, (spec, shape) in enumerate(zip(op.signature.outputs, form.shapes, strict=True)):
        order = _last(axis, len(shape)) if axis not in (-1, None) and op.over in spec.dims else None
        results.append(ResultView(_user_shape(op, axis, keepdims, rank, shape, k), order, shape, form.results[k]))
    operands = map(OperandView, orders, expand, form.operands)
    across = None if axis in (-1, None) else _across(op, shapes, axis, form.layout, tuple(r.final for r in results))
    return Geometry(op, axis, keepdims, rank, form, tuple(operands), tuple(results), across)


def _across(op: Op, shapes: tuple[Shape, ...], axis: int, layout: str, final: tuple[Shape, ...]) -> Views | None:
    """Views of operands in C order as [outer, n, inner]."""
    whole, at = shapes[0], len(shapes[0]) + axis
    outer, n, inner = prod(whole[:at]), whole[at], prod(whole[at + 1 :])
    kinds = {"e": (outer, n, inner), "w": (n,), "r": (outer, inner)}
    if layout != op.layout or layout[0] != "e" or set(layout) - {"e", "w"} or inner < BESIDE or not outer * n:
        return None
    if any(kind == "e" and shape != whole for kind, shape in zip(layout, shapes, strict=True)):
        return None
    operands = tuple(OperandView(None, None, kinds[kind]) for kind in layout)
    filled = [kinds["e" if op.over in spec.dims else "r"] for spec in op.signature.outputs]
    return operands, tuple(ResultView(f, None, shape, shape) for f, shape in zip(final, filled, strict=True))


def structured(op: Op, shapes: tuple[Shape, ...], final: tuple[Shape, ...]) -> Views:
    """The views of a structured op's arrays: the leading axes of its operands are broadcast together."""
    expand: list[Shape | None] = [None] * len(shapes)
    inputs = op.signature.inputs
    if op.shapes is None and sum(spec.leading for spec in inputs) > 1:
        leads = (s[: len(s) - len(spec.dims)] for spec, s in zip(inputs, shapes, strict=True) if spec.leading)
        leading = np.broadcast_shapes(*leads)
        whole = [(*leading, *s[len(s) - len(spec.dims) :]) for spec, s in zip(inputs, shapes, strict=True)]
        expand = [w if spec.leading and w != s else None for spec, s, w in zip(inputs, shapes, whole, strict=True)]
    operands = tuple(OperandView(None, e, e or s) for s, e in zip(shapes, expand, strict=True))
    return operands, tuple(ResultView(s, None, s, s) for s in final)


def _ordered(shape: Shape, order: Shape | None) -> Shape:
    return shape if order is None else tuple(shape[i] for i in order)


def _order(op: Op, i: int, shape: Shape, axis: int) -> Shape | None:
    """The axes of operand `i` with the row axis last; None if the operand does not vary along rows."""
    spec = op.signature.inputs[i]
    if not spec.leading or op.over not in spec.dims:
        return None
    if -axis > len(shape):
        raise ParameterError(f"{op.name}: axis is {shown(axis)}, but {spec.name} has {dimensions(len(shape))}")
    return _last(axis, len(shape))


def _last(axis: Any, rank: int) -> Shape:
    """The axes of an array of `rank` dimensions, with `axis` last."""
    axes = list(range(rank))
    axes.append(axes.pop(axis % rank))
    return tuple(axes)


def _user_shape(op: Op, axis: int | None, keepdims: bool, rank: int, shape: Shape, k: int) -> Shape:
    if op.over is None or op.over in op.signature.outputs[k].dims:
        if axis in (-1, None):
            return shape
        at = axis % len(shape)
        return (*shape[:at], shape[-1], *shape[at:-1])
    if not keepdims:
        return shape
    if axis is None:
        return (1,) * rank
    at = axis % (len(shape) + 1)
    return (*shape[:at], 1, *shape[at:])


def result_shapes(
    op: Op, shapes: tuple[Shape, ...], static: dict[str, Any], axis: Any = -1, keepdims: Any = False
) -> tuple[Shape, ...]:
    """The shapes of a call's results, computed before the call; it raises the call's errors for shapes and axis."""
    if op.structured:
        return op.result_shapes(shapes, static)
    geom = geometry(op, shapes, axis, keepdims)
    refuse_empty(op, geom.form, shapes)
    return geom.final


def refuse_empty(op: Op, form: Form, shapes: tuple[Shape, ...]) -> None:
    """Raise ShapeError if rows are empty and the op has no value for an empty row."""
    if form.n == 0 and op.empty_is_error:
        raise ShapeError(f"{op.name}: {op.operands[0]} has an empty row (shape {shapes[0]}), which has no value")


def row_axis(op: Op, shapes: tuple[Shape, ...], axis: Any, keepdims: Any) -> int | None:
    """The row axis of the broadcast operands, counted from the end; ParameterError for an invalid axis or keepdims."""
    if not isinstance(keepdims, (bool, np.bool_)):
        raise ParameterError(f"{op.name}: keepdims is {shown(keepdims)}; it must be True or False")
    if axis is None and op.reduces:
        return None
    if not isinstance(axis, (int, np.integer)) or isinstance(axis, bool):
        other = ", a tuple of integers, or None" if op.reduces else ""
        raise ParameterError(f"{op.name}: axis is {shown(axis)}; it must be an integer{other}")
    ranks = [
        len(s) for spec, s in zip(op.signature.inputs, shapes, strict=True) if spec.leading and op.over in spec.dims
    ]
    if axis != -1 and not -max(ranks) <= axis < max(ranks):
        raise ParameterError(f"{op.name}: axis is {shown(axis)}, but {op.operands[0]} has {dimensions(max(ranks))}")
    return int(axis - max(ranks) if axis >= 0 else axis)


def located(
    error: GuardError, op: Op, shapes: tuple[Shape, ...], user_shape: Callable[[Shape, int], Shape] | None = None
) -> None:
    """Convert index and shape in a guard's error to those of the results that the caller sees."""
    from trueno.guards.health import locate  # start-up

    locate(error, [spec.name for spec in op.signature.outputs], shapes, user_shape)
