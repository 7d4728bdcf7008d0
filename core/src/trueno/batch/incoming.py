"""What a user hands to a batch: arrays to upload, and arrays to read into."""

from typing import Any

import numpy as np

from trueno.batch.graph import Shape
from trueno.dispatch.coerce import FLOATS
from trueno.errors import DtypeError, OutError, ShapeError


def plain(x: Any) -> np.ndarray[Any, Any]:
    """What a user has as an array that kernels take: the array itself where it can be."""
    x = getattr(x, "array", x)
    if isinstance(x, np.ma.MaskedArray):
        raise DtypeError("upload: x is a masked array, whose mask would be lost; fill it first (.filled)")
    if isinstance(x, (bool, np.bool_, str, bytes)) or x is None:
        raise DtypeError(f"upload: x is {kind(x)}; give an array, a list or a number")
    try:
        array = np.from_dlpack(x) if hasattr(x, "__dlpack__") and not hasattr(x, "__array__") else np.asarray(x)
    except (ValueError, TypeError) as error:
        raise ShapeError(f"upload: x makes no array ({error})") from None
    letter = array.dtype.kind
    if not isinstance(x, (np.ndarray, np.generic)) and letter in "iuf" and isinstance(x, (list, tuple, float, int)):
        array = array.astype(np.float32)
    elif letter in "iu" and array.dtype != np.uint64:
        array = array.astype(np.int64, copy=False)
    elif array.dtype.newbyteorder("=").type not in FLOATS:
        raise DtypeError(f"upload: x is {array.dtype}; float32, float64 or whole numbers are taken; use .astype")
    flags = array.flags
    if flags.c_contiguous and flags.aligned and array.dtype.isnative:
        return np.asarray(array)
    return np.array(array, array.dtype.newbyteorder("="), order="C")


def fits(array: Any, out: Any) -> None:
    """OutError if a result cannot be read into `out`."""
    shape: Shape = tuple(array.shape)
    if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != array.dtype or not out.flags.writeable:
        said = f"{out.dtype} of shape {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        raise OutError(f"read: out is {said}, but the result is {array.dtype} of shape {shape}, to a writeable array")


def kind(x: Any) -> str:
    """What something is, for an error message."""
    return f"an array of shape {x.shape}" if isinstance(x, np.ndarray) else type(x).__name__
