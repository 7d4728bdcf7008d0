"""What a call may give, found without any backend, the dispatcher or its canonical forms.

The meaning is an op's body in a wider type, float64 or longdouble; how far a right kernel may be from it follows from
the body and from what the backend states (`trueno.judge.bound`).  Axes are moved here by NumPy's own means.
"""

from typing import Any

import numpy as np
from trueno.discovery.protocol import Accuracy
from trueno.judge.bound import Bound, judge
from trueno.ops.op import Op
from trueno.programs.evaluate import evaluate
from trueno.testing.expected import expected, split, stated
from trueno.testing.halves import computing

Array = np.ndarray
NUMBER = 1e-14
"""How far longdouble and the judge's type may differ, of the largest number of a row: float64's digits, and some."""


def rows_last(op: Op, operands: list[Array], axis: int | None) -> list[Array]:
    """Operands with their rows along the last axis."""
    moves = [s.leading and op.over in s.dims for s in op.signature.inputs]
    if op.over is None or axis == -1:
        return operands
    if axis is None:
        whole = np.broadcast_shapes(*(x.shape for x in operands))
        return [np.broadcast_to(x, whole).reshape(-1) for x in operands]
    return [np.moveaxis(x, axis, -1) if moved else x for x, moved in zip(operands, moves, strict=True)]


def user_shape(op: Op, k: int, shape: tuple[int, ...], axis: int | None, keepdims: bool, rank: int) -> tuple[int, ...]:
    """The shape in which a user gets result `k` that has `shape` with rows along the last axis."""
    if op.over is None:
        return shape
    if op.over in op.signature.outputs[k].dims:
        return np.moveaxis(np.broadcast_to(0, shape), -1, axis).shape if axis is not None else shape
    if not keepdims:
        return shape
    return (1,) * rank if axis is None else np.expand_dims(np.broadcast_to(0, shape), axis).shape


def bounds(
    op: Op, operands: list[Array], given: dict[str, Any], dtype: np.dtype, accuracy: Accuracy, axis: int | None = -1
) -> list[Bound]:
    """What the results of a row program may be, rows along the last axis."""
    return expected(op, rows_last(op, operands, axis), given, dtype, accuracy)


def check(op: Op, k: int, got: Any, bound: Bound, axis: int | None, accuracy: Accuracy) -> None:
    """Assert that a result, as the user has it, lies inside its bound."""
    got = np.asarray(got)
    if op.over is not None and op.over in op.signature.outputs[k].dims and axis is not None:
        got = np.moveaxis(got, axis, -1)
    verdict = judge(got.reshape(bound.value.shape), bound)
    assert verdict.ok, f"{op.signature.outputs[k].name}: {stated(verdict, op, accuracy)}"


def check_judge(op: Op, operands: list[Array], given: dict[str, Any], dtype: np.dtype, axis: int | None,
                found: list[Bound]) -> None:  # fmt: skip
    """Assert that the meaning in longdouble lies inside the bound, where operands are of ordinary size.

    So a mistake of the judge cannot excuse one of a kernel.
    """
    arrays = [x.astype(computing(dtype)) for x in rows_last(op, operands, axis)]
    params, static = split(op, given)
    sizes, leading = op.signature.bind(op.name, tuple(a.shape for a in arrays))
    n = sizes[op.over] if op.over else int(np.prod(leading))
    if n == 0 or 0 in leading:
        return
    if op.over is None:
        flat = [np.broadcast_to(a, leading).reshape(1, n) for a in arrays]
        program = op.program("e" * len(arrays), **static)
    else:
        full, shape = {"e": (*leading, n), "w": (n,)}, {"e": (-1, n), "w": (n,)}
        flat = [np.broadcast_to(a, full[c]).reshape(shape[c]) for a, c in zip(arrays, op.layout, strict=True)]
        program = op.program(**static)
    T = computing(dtype).type
    wide = [a.astype(np.longdouble) for a in flat]
    for meant, bound in zip(evaluate(program, wide, [float(T(p)) for p in params], np.longdouble), found, strict=True):
        if bound.allowed is not None:
            continue
        meant = meant.reshape(bound.value.shape)
        sure = np.isfinite(meant) & np.isfinite(bound.low) & np.isfinite(bound.high) & ~bound.nan
        room = NUMBER * np.maximum(np.abs(bound.low), np.abs(bound.high)) + np.finfo(T).smallest_subnormal
        if np.dtype(dtype) != computing(dtype):  # the bound is of results rounded from float32, where they may err
            room = room + np.maximum(np.abs(bound.low), np.abs(bound.high)) * (2.0**-8 + 2.0**-20) + 1e-7
        wrong = sure & ((meant < bound.low - room) | (meant > bound.high + room))
        assert not wrong.any(), (
            f"the judge allows {bound.low[wrong][0]!r} … {bound.high[wrong][0]!r}, longdouble says {meant[wrong][0]!r}"
        )
