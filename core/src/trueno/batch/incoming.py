"""Checks of arrays to read into, and descriptions of the objects that a user passes to a batch."""

from typing import Any

import numpy as np

from trueno.batch.graph import Shape
from trueno.errors import OutError


def fits(array: Any, out: Any) -> None:
    """OutError if a result cannot be read into `out`."""
    shape: Shape = tuple(array.shape)
    plain = isinstance(out, np.ndarray) and not isinstance(out, np.ma.MaskedArray)
    if not plain or out.shape != shape or out.dtype != array.dtype or not out.flags.writeable:
        said = f"{out.dtype} of shape {out.shape}" if plain else type(out).__name__
        raise OutError(f"read: out is {said}, but the result is {array.dtype} of shape {shape}, to a writeable array")


def kind(x: Any) -> str:
    """A description of an object, for an error message."""
    return f"an array of shape {x.shape}" if isinstance(x, np.ndarray) else type(x).__name__
