"""The axis of its operands that an op works along, and the shapes of its results for the user.

Inside, the row axis is last: `move_axis` moves it there, `seen` and `forward` convert results back and forth.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.dispatch.canonical import canonical
from trueno.dispatch.coerce import shown
from trueno.errors import GuardError, ParameterError, ShapeError
from trueno.ops.op import Op

Array = npt.NDArray[Any]


def located(error: GuardError, op: Op, shapes: tuple[tuple[int, ...], ...], back: Any = None) -> None:
    """Make a guard's error name index and shape as the caller sees the results."""
    from trueno.guards.health import locate

    locate(error, [spec.name for spec in op.signature.outputs], shapes, back)


def result_shapes(
    op: Op, shapes: tuple[tuple[int, ...], ...], static: dict[str, Any], axis: Any = -1, keepdims: Any = False
) -> tuple[tuple[int, ...], ...]:
    """Shapes of a call's results, without the call; raises the errors that it would raise for shapes and axis."""
    if op.structured:
        return op.result_shapes(shapes, static)
    ghosts = [np.broadcast_to(np.float32(0), s) for s in shapes]  # arrays of these shapes without memory
    plain = op.over is None or (axis.__class__ is int and axis == -1 and keepdims is False)
    along = -1 if plain else row_axis(op, ghosts, axis, keepdims)
    moved = ghosts if plain else move_axis(op, ghosts, along)
    form = canonical(op.name, tuple(a.shape for a in moved))
    if form.n == 0 and op.empty_is_error:
        raise ShapeError(f"{op.name}: {op.operands[0]} has an empty row (shape {shapes[0]}), which has no value")
    if plain:
        return form.shapes
    rank = max(len(s) for s in shapes)
    return tuple(seen(s, op, k, along, bool(keepdims), rank) for k, s in enumerate(form.shapes))


def row_axis(op: Op, arrays: list[Array], axis: Any, keepdims: Any) -> int | None:
    """The row axis counted from the end, of the operands as broadcast; ParameterError for an invalid axis."""
    if not isinstance(keepdims, (bool, np.bool_)):
        raise ParameterError(f"{op.name}: keepdims is {shown(keepdims)}; it must be True or False")
    if axis is None and op.reduces:
        return None
    if not isinstance(axis, (int, np.integer)) or isinstance(axis, bool):
        other = " or None" if op.reduces else ""
        raise ParameterError(f"{op.name}: axis is {shown(axis)}; it must be an integer{other}")
    ranks = [
        a.ndim for spec, a in zip(op.signature.inputs, arrays, strict=True) if spec.leading and op.over in spec.dims
    ]
    if axis != -1 and not -max(ranks) <= axis < max(ranks):
        raise ParameterError(f"{op.name}: axis is {shown(axis)}, but {op.operands[0]} has {max(ranks)} dimension(s)")
    return int(axis - max(ranks) if axis >= 0 else axis)


def move_axis(op: Op, arrays: list[Array], axis: int | None) -> list[Array]:
    """Move the row axis of the operands that vary along rows to the end; None makes one row of everything."""
    if axis is None:
        sizes, leading = op.signature.bind(op.name, tuple(a.shape for a in arrays))
        return [np.broadcast_to(a, (*leading, *sizes.values())).reshape(-1) for a in arrays]
    moved = []
    for spec, a in zip(op.signature.inputs, arrays, strict=True):
        if spec.leading and op.over in spec.dims:
            if -axis > a.ndim:
                raise ParameterError(f"{op.name}: axis is {shown(axis)}, but {spec.name} has {a.ndim} dimension(s)")
            a = np.moveaxis(a, axis, -1)
        moved.append(a)
    return moved


def seen(shape: tuple[int, ...], op: Op, k: int, axis: int | None, keepdims: bool, rank: int) -> tuple[int, ...]:
    """The user's shape of result `k`, whose row axis is last inside, for operands with `rank` axes."""
    if op.over in op.signature.outputs[k].dims:
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


def forward(array: Array, op: Op, k: int, axis: int | None, keepdims: bool, shape: tuple[int, ...]) -> Array:
    """The inverse of `seen`: a view of the result with the row axis last."""
    if op.over is not None and op.over in op.signature.outputs[k].dims:
        return array if axis in (-1, None) else np.moveaxis(array, axis, -1)
    return array.reshape(shape) if keepdims else array
