"""Which view of a device's arrays a row op along any axis needs: shapes and strides, found without touching an array.

Kernels take rows that lie together.  Another axis than the last, and an operand that broadcasts along some axes only,
are copied into that order first by the device itself (`DeviceBackend.strided`); results along the row are copied back.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from trueno.dispatch.axes import move_axis, row_axis, seen
from trueno.dispatch.canonical import Form, canonical
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

    def moved(self, source: int, target: int) -> "View":
        """With one axis in another place, both counted from the end."""
        order = list(range(len(self.shape)))
        order.insert(target % len(order), order.pop(source % len(order)))
        return View(tuple(self.shape[i] for i in order), tuple(self.strides[i] for i in order))

    def spread(self, shape: Shape) -> "View":
        """Broadcast to `shape`."""
        more = len(shape) - len(self.shape)
        pairs = zip(self.shape, self.strides, shape[more:], strict=True)
        return View(shape, (0,) * more + tuple(0 if n == 1 and wide != 1 else s for n, s, wide in pairs))


@dataclass(frozen=True, slots=True)
class Arranged:
    """A call as kernels see it.

    operands: the view that each needs; results: of the array that the kernel fills, the view that the user gets.
    None where it lies so already.  final: the results' shapes; seen: (shape, which result) → the user's shape for
    the kernel's, whose row axis is last.
    """

    form: Form
    operands: tuple[View | None, ...]
    results: tuple[View | None, ...]
    final: tuple[Shape, ...]
    seen: Callable[[Shape, int], Shape]


def arranged(op: Op, shapes: tuple[Shape, ...], axis: Any, keepdims: Any) -> Arranged:
    """Of a row program; ShapeError and ParameterError as the op itself has them."""
    views = [View.whole(s) for s in shapes]
    ghosts = [np.broadcast_to(np.float32(0), s) for s in shapes]  # shapes that hold nothing
    plain = op.over is None or (axis.__class__ is int and axis == -1 and keepdims is False)
    along = -1 if plain else row_axis(op, ghosts, axis, keepdims)
    if along is None:
        sizes, leading = op.signature.bind(op.name, shapes)
        whole = (*leading, *sizes.values())
        views = [v.spread(whole) for v in views]
        form = canonical(op.name, ((prod(whole),),) * len(shapes))
    else:
        rows = [spec.leading and op.over in spec.dims for spec in op.signature.inputs]
        if along != -1:
            move_axis(op, ghosts, along)  # which says what has no such axis
            views = [v.moved(along, -1) if row else v for v, row in zip(views, rows, strict=True)]
        form = canonical(op.name, tuple(v.shape for v in views))
        views = [v if e is None else v.spread(e) for v, e in zip(views, form.expand, strict=True)]
    rank = max(map(len, shapes))

    def users(shape: Shape, k: int) -> Shape:
        return shape if plain else seen(shape, op, k, along, bool(keepdims), rank)

    back = [
        View.whole(s).moved(-1, along) if along not in (-1, None) and op.over in spec.dims else None
        for s, spec in zip(form.shapes, op.signature.outputs, strict=True)
    ]
    operands = tuple(None if v.plain else v for v in views)
    results = tuple(None if v is None or v.plain else v for v in back)
    return Arranged(form, operands, results, tuple(users(s, k) for k, s in enumerate(form.shapes)), users)
