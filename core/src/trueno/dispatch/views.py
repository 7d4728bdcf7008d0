"""Which view of a device's arrays a row op along any axis needs: shapes and strides, found without touching an array.

Kernels take rows that lie together.  Another axis than the last, and an operand that broadcasts along some axes only,
are copied into that order first by the device itself (`DeviceBackend.strided`); results along the row are copied back.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

from trueno.dispatch.axes import Geometry, geometry
from trueno.ops.op import Op

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class View:
    """Elements of an array in C order, seen under another shape; strides in elements, 0 where an axis repeats."""

    shape: Shape
    strides: Shape

    @classmethod
    def whole(cls, shape: Shape) -> "View":
        return cls(shape, tuple(prod(shape[i + 1 :]) for i in range(len(shape))))

    @property
    def plain(self) -> bool:
        """Whether it shows the elements in the order in which they lie, each once."""
        usual = View.whole(self.shape).strides
        return all(n == 1 or s == u for n, s, u in zip(self.shape, self.strides, usual, strict=True))

    def ordered(self, order: Shape) -> "View":
        """With its axes in this order."""
        return View(tuple(self.shape[i] for i in order), tuple(self.strides[i] for i in order))

    def spread(self, shape: Shape) -> "View":
        """Broadcast to `shape`."""
        more = len(shape) - len(self.shape)
        pairs = zip(self.shape, self.strides, shape[more:], strict=True)
        return View(shape, (0,) * more + tuple(0 if n == 1 and wide != 1 else s for n, s, wide in pairs))


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """A call as kernels see it.

    operands: the view that each needs; results: of the array that the kernel fills, the view that the user gets.
    None where it lies so already.
    """

    rows: Geometry
    operands: tuple[View | None, ...]
    results: tuple[View | None, ...]

    @property
    def any(self) -> bool:
        """Whether there is any view to be made."""
        return any((*self.operands, *self.results))


def view_plan(op: Op, shapes: tuple[Shape, ...], axis: Any, keepdims: Any) -> ViewPlan:
    """Of a row program; ShapeError and ParameterError as the op itself has them."""
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
