"""JAX, and every library whose arrays export DLPack and that imports it: `from_dlpack` of the arrays' namespace."""

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from trueno.errors import DeviceError, DtypeError, OutError
from trueno.interop import devices

NOUN, MIXES = "DLPack array", False
HOST_DEVICES = (1, 3, 11, 13)
"""DLPack's device types of memory that the host can access: its own, pinned for CUDA or ROCm, and CUDA's managed."""


def exchanges(kind: type) -> bool:
    """Whether arrays of a class export DLPack, and their library imports it."""
    if not hasattr(kind, "__dlpack__") or not hasattr(kind, "__dlpack_device__"):
        return False
    root = sys.modules.get(kind.__module__.partition(".")[0])
    return hasattr(kind, "__array_namespace__") or hasattr(root, "from_dlpack")


def namespace(x: Any) -> Any:
    """The module of an array's functions, as the array API standard names it."""
    if hasattr(x, "__array_namespace__"):
        return x.__array_namespace__()
    return sys.modules[type(x).__module__.partition(".")[0]]


def on_host(x: Any) -> bool:
    """Whether the host can access the memory of an array with DLPack."""
    return int(x.__dlpack_device__()[0]) in HOST_DEVICES


def take(what: str, name: str, x: Any) -> Any:
    """`x` as a NumPy array, or as an array of the backend of its device, in the same memory."""
    if on_host(x):
        return host(what, name, x)
    kind, number = x.__dlpack_device__()
    return devices.namespace(what, name, x, (int(kind), int(number))).from_dlpack(x)


def host(what: str, name: str, x: Any) -> np.ndarray[Any, Any]:
    """`x` as a NumPy array in the same memory.

    DLPack of NumPy has no bfloat16, so a library's own conversion comes first; both share the memory where they can.
    """
    if not on_host(x):
        place = tuple(int(part) for part in x.__dlpack_device__())
        problem = f"{what}: {name} is a {type(x).__name__} on DLPack device {place}, which the host cannot access"
        raise DeviceError(f"{problem}; copy it to the host first")
    try:
        return np.asarray(x) if hasattr(x, "__array__") else np.from_dlpack(x)
    except MemoryError:
        raise
    except Exception as error:  # any error of the object's library
        problem = f"{name} is a {type(x).__name__} that NumPy cannot take ({type(error).__name__}: {error})"
        raise DtypeError(f"{what}: {problem}") from error


def target(what: str, name: str, x: Any) -> Any:
    """`out` as an array in the same memory; OutError if the library gives no access to it."""
    if not on_host(x):
        return take(what, name, x)
    try:
        return np.from_dlpack(x)
    except Exception as error:  # any error of the object's library
        problem = f"{name} is a {type(x).__name__} whose memory NumPy cannot reach ({type(error).__name__}: {error})"
        raise OutError(f"{what}: {problem}; omit it") from error


def give(result: Any, like: Any) -> Any:
    """A result as an array of the library of `like`, in the same memory unless the library itself copies it."""
    space = namespace(like)
    array = np.asarray(result) if isinstance(result, np.generic) else result
    if array.dtype.itemsize == 2 and np.dtype(array.dtype).name == "bfloat16":
        return space.asarray(array)  # NumPy exports no bfloat16
    return space.from_dlpack(array)


def context(x: Any) -> AbstractContextManager[Any]:
    """Nothing: DLPack lets the streams of both libraries wait for each other."""
    return nullcontext()


def wrong(what: str, name: str, x: Any) -> DtypeError | None:
    """None: the call itself names a wrong dtype."""
    return None


def convert(name: str, other: str) -> str:
    """The remedy for a NumPy array `other` beside `name`."""
    return f"numpy.asarray({name}), or {other} by the asarray of {name}'s library"
