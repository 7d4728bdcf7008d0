"""Views of handles: the same memory under another shape."""

from math import prod
from operator import index
from typing import Any

from trueno.batch.graph import Shape, Value
from trueno.errors import BatchError, ParameterError, ShapeError
from trueno.ops.op import Op
from trueno.ops.signature import ArraySpec, Signature

VIEW = Op(
    name="reshape", family="batch", signature=Signature((ArraySpec("h", (), True),), (ArraySpec("y", (), True),)),
    body=lambda h: h, params=(), structured=True, over=None, rules=(), flops_text=None, aliases=(), chain=None,
    domain=None,
)  # fmt: skip
"""What a batch records for a view, so that it has a place in the order; no kernel runs it."""


MOST_AXES = 64  # NumPy's limit


def reshaped(shape: Shape, wanted: Any) -> Shape:
    """The shape that `h.reshape(wanted)` has; -1 stands for the length that remains."""
    try:
        lengths = [index(n) for n in (wanted if isinstance(wanted, (tuple, list)) else (wanted,))]
    except TypeError:
        raise ParameterError(f"reshape: shape is {wanted!r}; give whole numbers, as in h.reshape((2, 3))") from None
    if len(lengths) > MOST_AXES:
        raise ShapeError(f"reshape: {len(lengths)} axes are asked for, but an array has at most {MOST_AXES}")
    count, rest = prod(shape), prod(n for n in lengths if n >= 0)
    if lengths.count(-1) == 1 and rest and count % rest == 0:
        lengths[lengths.index(-1)] = count // rest
    if min(lengths, default=0) < 0 or prod(lengths) != count:
        raise ShapeError(f"reshape: h has shape {shape}, {count} elements, but {tuple(lengths)} is asked for")
    return tuple(lengths)


def viewable(value: Value) -> None:
    """Raise an error for a value that has no views."""
    if value.blocks:
        raise ParameterError(f"reshape: h holds {value.blocks}, whose rows have one shape; upload another array")
    if value.updated:
        raise BatchError(f"reshape: h was updated by {value.updated}; use the handle that it returned")


__all__ = ["VIEW", "reshaped", "viewable"]
