"""`trueno.split` and `trueno.repeat`: parts and repetitions of an array, as views where its type has views.

They are functions on arrays, not ops of the table: on the host they move nothing that NumPy does not move.  Arrays of a
device that can be sliced are sliced; others are copied on their device, as rows that `embedding_lookup` picks.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import prod
from operator import index
from typing import Any

import numpy as np

from trueno.dispatch.function import function
from trueno.dispatch.transfer import device_of, to, unwrap
from trueno.errors import ParameterError, ShapeError, dimensions
from trueno.interop.calls import returned, taken

__all__ = ["repeat", "split"]


def split(x: Any, sizes: Sequence[int], axis: int = 0) -> tuple[Any, ...]:
    """Parts of an array along an axis, one after the other, with so many elements each: the inverse of concatenate.

    On the host the parts are views of `x`; on a device too, if its arrays can be sliced, and copies otherwise.
    ShapeError for sizes that do not add up to the axis, ParameterError for what is not a list of sizes.
    """
    like = x
    x, at = _array("split", x, axis)
    try:
        lengths = [index(size) for size in sizes]
    except TypeError:
        remedy = "give the number of elements of each part, as [4, 2, 2]"
        raise ParameterError(f"split: sizes is {sizes!r}; {remedy}") from None
    extent = x.shape[at]
    if sum(lengths) != extent or min(lengths, default=0) < 0:
        problem = f"sizes {lengths} add up to {sum(lengths)}, but x has {extent} along axis {axis}"
        raise ShapeError(f"split: {problem}; list sizes of 0 or more that cover it")
    ends = pairwise(accumulate(lengths, initial=0))
    if hasattr(type(x), "__getitem__"):
        return tuple(returned(like, x[(slice(None),) * at + (slice(*end),)]) for end in ends)
    return tuple(returned(like, _picked(x, at, np.arange(*end))) for end in ends)


def repeat(x: Any, repeats: int | Sequence[int], axis: int = 0) -> Any:
    """Each element along an axis so many times in a row, as `numpy.repeat` does; `repeats`: one number, or one each.

    An axis of one element is repeated without a copy: the result is a read-only view whose stride along it is 0.
    ParameterError for a negative number or one that is not whole, ShapeError for a list of another length.
    """
    like = x
    x, at = _array("repeat", x, axis)
    counts = np.asarray(repeats)
    if counts.dtype.kind not in "iu" or counts.ndim > 1 or (counts < 0).any():
        raise ParameterError(f"repeat: repeats is {repeats!r}; give a whole number, 0 or more, or one for each element")
    extent = x.shape[at]
    if counts.ndim and counts.shape != (extent,):
        raise ShapeError(f"repeat: {len(counts)} repeats, but x has {extent} along axis {axis}; give one for each")
    if isinstance(x, np.ndarray):
        if extent == 1:
            return returned(like, np.broadcast_to(x, (*x.shape[:at], int(counts.sum()), *x.shape[at + 1 :])))
        return returned(like, np.repeat(x, counts, at))
    return returned(like, _picked(x, at, np.repeat(np.arange(extent), counts)))


def _array(name: str, x: Any, axis: int) -> tuple[Any, int]:
    """An array of the host or of a device, and the axis counted from the first."""
    x = taken(name, "x", unwrap(x))
    x = np.asarray(x) if device_of(x) is None else x
    rank = len(x.shape)
    try:
        at = index(axis)
    except TypeError:
        raise ParameterError(f"{name}: axis is {axis!r}; it must be an integer") from None
    if not -rank <= at < rank:
        raise ParameterError(f"{name}: axis is {axis}, but x has {dimensions(rank)}")
    return x, at % rank


def _picked(x: Any, at: int, places: Any) -> Any:
    """A copy on the device of these places along an axis."""
    shape, entry = tuple(x.shape), device_of(x)
    assert entry is not None
    outer, inner = prod(shape[:at]), prod(shape[at + 1 :])
    rows = (np.arange(outer)[:, None] * shape[at] + places).reshape(-1)
    table = x.reshape((outer * shape[at], inner))
    y = function("embedding_lookup")(table, to(rows.astype(np.int64), entry.name))
    return y.reshape((*shape[:at], len(places), *shape[at + 1 :]))
