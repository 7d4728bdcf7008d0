"""The views of a device's arrays that a row op along any axis needs: shapes and strides, computed from shapes alone.

Kernels accept contiguous rows.  If the axis is not the last, or an operand broadcasts along only some axes, the device
itself copies operands into that order first (`DeviceBackend.strided`), and copies results along the row back.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

from trueno.dispatch.axes import Geometry, geometry
from trueno.ops.op import Op

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class View:
    """An array in C order, viewed in another shape; strides count elements, and are 0 where an axis repeats."""

    shape: Shape
    strides: Shape

    @classmethod
    def whole(cls, shape: Shape) -> "View":
        return cls(shape, tuple(prod(shape[i + 1 :]) for i in range(len(shape))))

    @property
    def plain(self) -> bool:
        """Whether the view has the elements in memory order, each once."""
        usual = View.whole(self.shape).strides
        return all(n == 1 or s == u for n, s, u in zip(self.shape, self.strides, usual, strict=True))

    def ordered(self, order: Shape) -> "View":
        """The view with its axes in this order."""
        return View(tuple(self.shape[i] for i in order), tuple(self.strides[i] for i in order))

    def spread(self, shape: Shape) -> "View":
        """The view broadcast to `shape`."""
        more = len(shape) - len(self.shape)
        pairs = zip(self.shape, self.strides, shape[more:], strict=True)
        return View(shape, (0,) * more + tuple(0 if n == 1 and wide != 1 else s for n, s, wide in pairs))


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """The views for a call.

    operands: the view of each that the kernel needs; results: the user's view of each array that the kernel fills.
    None for an array that needs no other view.
    """

    rows: Geometry
    operands: tuple[View | None, ...]
    results: tuple[View | None, ...]

    @property
    def any(self) -> bool:
        """Whether any array needs a view."""
        return any((*self.operands, *self.results))


def view_plan(op: Op, shapes: tuple[Shape, ...], axis: Any, keepdims: Any) -> ViewPlan:
    """The views for a row program; ShapeError and ParameterError as the op itself raises them."""
    rows = geometry(op, shapes, axis, keepdims)
    operands = tuple(_view(shape, *wanted) for shape, wanted in zip(shapes, rows.operands, strict=True))
    results = []
    for result in rows.results:
        inverse = None if result.order is None else tuple(map(result.order.index, range(len(result.order))))
        results.append(_view(result.ordered, inverse))
    return ViewPlan(rows, operands, tuple(results))


def _view(shape: Shape, order: Shape | None, expand: Shape | None = None, _: Shape = ()) -> View | None:
    if order is None and expand is None:
        return None
    view = View.whole(shape)
    view = view if order is None else view.ordered(order)
    view = view if expand is None else view.spread(expand)
    return None if view.plain else view
