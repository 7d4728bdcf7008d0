"""What users pass to `trueno.lz4`, as bytes in memory that is not copied if it need not be."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from trueno.dispatch.asking import use
from trueno.dispatch.coerce import shown
from trueno.dispatch.transfer import device_of, host, unwrap
from trueno.errors import DtypeError, ParameterError
from trueno.lz4.header import Array

EXPORTS = ("__dlpack__", "__array__", "__array_interface__", "__cuda_array_interface__")
"""What arrays of other libraries have one of, at least."""


def octets(who: str, name: str, data: Any) -> Array:
    """The bytes of bytes, a buffer or an array, as uint8 [length]; DtypeError for any other object.

    An array's elements are taken in C order; one whose memory is not contiguous, or is that of a device, is copied.
    """
    data = unwrap(data)
    if not isinstance(data, np.ndarray):
        try:
            view = memoryview(data)
        except (TypeError, ValueError, BufferError):
            if device_of(data) is None and not any(hasattr(type(data), export) for export in EXPORTS):
                remedy = "encode it first" if isinstance(data, str) else "give bytes, a buffer or an array"
                raise DtypeError(f"{who}: {name} is {type(data).__name__}; {remedy}") from None
            data = host(who, data)
        else:
            if "O" not in view.format:
                return np.frombuffer(view if view.c_contiguous else view.tobytes(), np.uint8)
            data = np.asarray(view)
    if isinstance(data, np.ma.MaskedArray) or data.dtype.hasobject:
        what = "a masked array, whose mask would be lost" if isinstance(data, np.ma.MaskedArray) else data.dtype
        raise DtypeError(f"{who}: {name} is {what}; give an array of numbers")
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8)


def whole(who: str, name: str, value: Any, low: int, high: int | None = None) -> int:
    """A whole number from `low` to `high`; ParameterError for any other value."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and low <= value <= (high or value):
        return int(value)
    wanted = f"{low} to {high}" if high else f"{low} or more"
    raise ParameterError(f"{who}: {name} is {shown(value)}; it must be a whole number, {wanted}")


def on(backend: str | None) -> AbstractContextManager[Any]:
    """The context in which ops run: on the backend of this name, or on the best one."""
    return nullcontext() if backend is None else use(backend)
