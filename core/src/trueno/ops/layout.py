"""Layout: structured ops that copy elements to other places, so each body is NumPy code and defines the meaning."""

import numpy as np

from trueno.errors import ShapeError, dimensions
from trueno.ops.op import op

Shape = tuple[int, ...]


def _joined(a: Shape, b: Shape, *, axis: int = 0) -> tuple[Shape, ...]:
    """Result shape of concatenate."""
    if not a or len(a) != len(b):
        raise ShapeError(f"concatenate: a has shape {a} and b {b}; both need the same number of axes, and one at least")
    if not -len(a) <= axis < len(a):
        raise ShapeError(f"concatenate: axis is {axis}, but a has {dimensions(len(a))}")
    at = axis % len(a)
    for i, (m, n) in enumerate(zip(a, b, strict=True)):
        if m != n and i != at:
            raise ShapeError(f"concatenate: b has {n} along axis {i}, but a has {m}; only axis {axis} may differ")
    return ((*a[:at], a[at] + b[at], *a[at + 1 :]),)


@op("a[...,m] b[...,n] -> y[...,s]", structured=True, flops="0", rules="-64 <= axis < 64", shapes=_joined, many=True)
def concatenate(a, b, *, axis: int = 0):
    """a, and after it b, along an axis.

    `trueno.concatenate` takes any number of arrays, or a list of them, and joins them in pairs; a batch's takes two.
    Its inverse is `trueno.split(x, sizes, axis)`, and `trueno.repeat(x, repeats, axis)` repeats elements: functions
    on arrays, not ops, which return views where they can.
    Shapes: equal but along `axis`.
    Edges: bits are copied; one of them may be empty.
    """
    return np.concatenate((a, b), axis)
