"""A user's upload as a host array that kernels or ops can use: floats or, for indices, int64.

Lists and Python numbers become float32, other integers int64.
"""

from typing import Any

import numpy as np

from trueno.contiguous import compact
from trueno.dispatch.half import FLOATS, is_half
from trueno.dispatch.transfer import imported, unwrap
from trueno.errors import DtypeError, OutOfMemory, ParameterError
from trueno.floatenv import ieee


def plain(what: str, x: Any, *, half: bool = False) -> np.ndarray[Any, Any]:
    """`x` as a contiguous, aligned array in native byte order: `x` itself if it is one already.

    `what`: the method, for messages.  half: accept 16-bit floats, too.  DtypeError, ShapeError, ParameterError;
    OutOfMemory if there is no memory for a copy.
    """
    x = unwrap(x)
    if isinstance(x, (bool, np.bool_, str, bytes)) or x is None:
        raise DtypeError(f"{what}: x is {type(x).__name__}; give an array, a list or a number")
    try:
        array = imported(what, "x", x)
        letter = array.dtype.kind
        if isinstance(x, (list, tuple, float, int)) and not isinstance(x, np.generic) and letter in "iuf":
            with np.errstate(over="ignore"), ieee():
                array = array.astype(np.float32)
        elif letter in "iu":
            array = whole(what, "x", array)
        elif array.dtype.type not in FLOATS and not (half and is_half(array.dtype)):
            remedy = "widen it with .astype(numpy.float32)" if is_half(array.dtype) else "use .astype"
            raise DtypeError(f"{what}: x is {array.dtype}; float32, float64 or whole numbers are accepted; {remedy}")
        return compact(array)
    except MemoryError as error:
        raise OutOfMemory(f"{what}: there is no room for x ({error})") from None


def whole(what: str, name: str, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Integers as int64; ParameterError for one beyond its range."""
    if x.dtype.newbyteorder("=") == np.uint64 and x.size and x.max() > np.iinfo(np.int64).max:
        raise ParameterError(f"{what}: {name} holds {x.max()}, which is beyond int64, the dtype of indices")
    return x.astype(np.int64, copy=False)
