"""Moving arrays to a device and back to the host.

`trueno.to` and `trueno.numpy` move the user's arrays; `stage` moves host arrays for a kernel that computes on a device.
Every move emits an event of kind `transfer`, with bytes and seconds.
"""

from collections.abc import Callable
from threading import local
from time import perf_counter
from typing import Any, NamedTuple, Protocol, Self, TypeVar, cast, overload

import numpy as np

from trueno.discovery import registry
from trueno.discovery.entry import Entry
from trueno.discovery.protocol import Backend, Call, DeviceBackend, Kernel, Mirror
from trueno.dispatch.fallback import wrapping_errors
from trueno.dispatch.half import is_half
from trueno.errors import DeviceError, DtypeError, KernelError, OutOfMemory, ParameterError, ShapeError
from trueno.events.stream import brief, emit
from trueno.floatenv import ieee
from trueno.interop.calls import host as interop_host

HOST_DEVICES = (1, 3, 11, 13)
"""DLPack's device types of memory that the host can access: its own, pinned for CUDA or ROCm, and CUDA's managed."""


class Moved(NamedTuple):
    """The numbers of arrays that a thread has moved so far, and of their bytes."""

    uploads: int = 0
    downloads: int = 0
    bytes: int = 0


class _Here(local):
    moved = Moved()


here = _Here()
"""This thread's moves so far: compare before and after a call to get the call's."""


def upload(backend: Backend, x: np.ndarray[Any, Any], op: str = "to") -> Any:
    """A NumPy array as the backend's own; KernelError if the result has another shape or dtype."""
    start = perf_counter()
    there: Any = backend.to_device(x)
    emit("transfer", op, backend.name, "to device", start=start, seconds=perf_counter() - start, bytes=x.nbytes)
    _same(backend, "to_device", there, x.shape, x.dtype)
    _count(x.nbytes, uploads=1)
    return there


def write(backend: Backend, x: np.ndarray[Any, Any], out: Any, op: str = "to") -> None:
    """Copy a NumPy array into one of a backend that can write without allocating."""
    start = perf_counter()
    cast(DeviceBackend, backend).write(x, out)
    emit("transfer", op, backend.name, "to device", start=start, seconds=perf_counter() - start, bytes=x.nbytes)
    _count(x.nbytes, uploads=1)


def download(backend: Backend, x: Any, out: np.ndarray[Any, Any] | None = None, op: str = "numpy") -> Any:
    """A device array as a NumPy array; `out`, if given, is an array of its shape and dtype, which gets the values.

    KernelError if the result is not a NumPy array, or has another shape or dtype.
    """
    start = perf_counter()
    direct = out if out is not None and out.flags.c_contiguous and out.flags.aligned else None
    array: Any = backend.to_host(x, direct)
    if not isinstance(array, np.ndarray):
        raise KernelError(f"{backend.name}: to_host returned {type(array).__name__}, but must return a NumPy array")
    _same(backend, "to_host", array, tuple(x.shape), np.dtype(x.dtype))
    emit("transfer", op, backend.name, "to host", start=start, seconds=perf_counter() - start, bytes=array.nbytes)
    _count(array.nbytes, downloads=1)
    if out is None or array is out:
        return array
    np.copyto(out, array)  # a backend may not support out
    return out


def begun(backend: Backend, x: Any) -> Callable[[], Any]:
    """A download that has begun: the function waits for it; a backend without `fetch` is waited for at once."""
    if not hasattr(backend, "fetch"):
        array = download(backend, x, None, "Batch")
        return lambda: array
    later = cast(DeviceBackend, backend).fetch(x)
    brief("transfer", "Batch", backend.name, "to host", x.nbytes)
    _count(x.nbytes, downloads=1)
    return later


def sent(backend: Backend, mirror: Mirror, nbytes: int) -> None:
    """Send the first bytes of a mirror's array."""
    mirror.send(nbytes)
    brief("transfer", "Batch", backend.name, "to device", nbytes)
    _count(nbytes, uploads=1)


def _count(nbytes: int, uploads: int = 0, downloads: int = 0) -> None:
    now = here.moved
    here.moved = Moved(now.uploads + uploads, now.downloads + downloads, now.bytes + nbytes)


def empty(backend: Backend, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """An uninitialised array of the backend's own type; KernelError if it has another shape or dtype."""
    array = backend.empty(shape, dtype)
    _same(backend, "empty", array, shape, dtype)
    return array


def _same(backend: Backend, method: str, x: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if tuple(x.shape) != tuple(shape) or np.dtype(x.dtype) != dtype:
        raise KernelError(
            f"{backend.name}: {method} returned {np.dtype(x.dtype)} of shape {tuple(x.shape)}, "
            f"but must return {dtype} of shape {tuple(shape)}"
        )


def stage(kernel: Kernel, backend: Backend, call: Call, guarded: bool) -> Kernel:
    """A device's kernel for host arrays: it uploads the operands and downloads the results."""
    inputs, outs, op = len(call.op.operands), len(call.op.signature.outputs), call.op.name

    def staged(*args: Any) -> int:
        targets = args[-outs:]
        if any(not t.flags.writeable for t in targets):
            return -1
        there: list[Any] = []
        for i, x in enumerate(args[:inputs]):
            same = next((j for j in range(i) if args[j] is x), None)
            there.append(upload(backend, x, op) if same is None else there[same])
        results = [empty(backend, t.shape, t.dtype) for t in targets]
        status = kernel(*there, *args[inputs:-outs], *results) or 0
        if status == -1:
            return -1
        if guarded:
            status |= backend.synchronize() or 0
        for target, result in zip(targets, results, strict=True):
            download(backend, result, target, op)
        return status

    return staged


def unwrap(x: Any) -> Any:
    """The array that a `Vector` or `Matrix` holds; any other object unchanged."""
    return x.array if hasattr(type(x), "_wrap_result") else x


def device_of(x: Any) -> Entry | None:
    """The backend on which an operand, an array or a `Vector` or `Matrix` of one, lives; None for the host."""
    kind = type(x)
    if kind is np.ndarray or kind in (list, tuple, float, int):
        return None
    return device_of(x.array) if hasattr(kind, "_wrap_result") else registry.home(x)


def to(x: Any, name: str) -> Any:
    """`x` as an array of backend `name`'s own type: a copy on its device; the array itself if it is there already.

    `x`: a NumPy array, a list, a number, or an array of any installed backend; a `QuantizedMatrix` becomes one whose
    `bytes` are on that device.
    """
    if not isinstance(name, str):
        raise ParameterError(f'to: {name!r} is not the name of a backend; write trueno.to(x, "simd")')
    name = registry.named(name)
    backend, entry = registry.load(name), registry.entries()[name]
    if _in_blocks(x):
        return x._of_bytes(to(x.bytes, name))
    x = unwrap(x)
    there = device_of(x)
    if there is entry:
        return x
    if there is not None and hasattr(backend, "adopt"):
        with wrapping_errors("to", name):
            if (near := _adopted(backend, x)) is not None:
                return near
    array = host("to", x)
    if array.dtype.kind not in "fiu" and not is_half(array.dtype):
        raise DtypeError(f"to: x is {array.dtype}; real numbers only")
    try:
        array = np.asarray(array, order="C")
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
    except MemoryError as error:
        raise OutOfMemory(f"to: there is no room for x ({error})") from None
    if not entry.foreign:
        return array
    with wrapping_errors("to", backend.name):
        return upload(backend, array)


def _adopted(backend: Backend, x: Any) -> Any:
    """The copy of another device's array that the backend makes itself; None where it cannot."""
    start = perf_counter()
    copy = cast(DeviceBackend, backend).adopt(x)
    if copy is not None:
        _same(backend, "adopt", copy, tuple(x.shape), np.dtype(x.dtype))
        emit("transfer", "to", backend.name, "between devices", seconds=perf_counter() - start, bytes=copy.nbytes)
    return copy


class InBlocks(Protocol):
    """A `QuantizedMatrix`, whose device is that of its bytes."""

    bytes: Any

    def _of_bytes(self, data: Any) -> Self:
        """The same matrix on other memory."""


Q = TypeVar("Q", bound=InBlocks)


@overload
def numpy(x: Q) -> Q: ...
@overload
def numpy(x: Any) -> np.ndarray[Any, Any]: ...


def numpy(x: Any) -> Any:
    """`x` as a NumPy array, from the host or a device; a `QuantizedMatrix` becomes one whose `bytes` are NumPy's."""
    return x._of_bytes(host("numpy", x.bytes)) if _in_blocks(x) else host("numpy", x)


def _in_blocks(x: Any) -> bool:
    return hasattr(type(x), "_of_bytes")


def host(what: str, x: Any) -> np.ndarray[Any, Any]:
    """`x` as a NumPy array, from the host or a device; lists become float32.  `what`: the function, for messages."""
    x = unwrap(x)
    there = device_of(x)
    if there is not None:
        with wrapping_errors(what, there.name):
            return download(registry.load(there.name), x, None, what)  # type: ignore[no-any-return]
    if isinstance(x, (list, tuple)):
        array = imported(what, "x", x)
        if array.dtype.kind not in "biuf" and not is_half(array.dtype):  # in an object array, None would become NaN
            raise DtypeError(f"{what}: x is a {type(x).__name__} of {array.dtype}; real numbers only")
        with np.errstate(over="ignore"), ieee():
            return array.astype(np.float32)
    return imported(what, "x", x)


def imported(op: str, name: str, x: Any) -> np.ndarray[Any, Any]:
    """A list, or an object that exports an array, as a NumPy array, which shares the object's memory on the host.

    DeviceError for memory that only a device can access; DtypeError for an object that NumPy cannot convert, and for a
    masked array, whose mask would be lost; ShapeError for a ragged list.
    """
    if isinstance(x, np.ma.MaskedArray):
        raise DtypeError(f"{op}: {name} is a masked array, whose mask would be lost; fill it first (.filled)")
    x = interop_host(op, name, x)
    try:
        where = x.__dlpack_device__() if hasattr(x, "__dlpack_device__") else (HOST_DEVICES[0], 0)
        if int(where[0]) not in HOST_DEVICES:
            raise DeviceError(
                f"{op}: {name} is a {type(x).__name__} on DLPack device ({int(where[0])}, {int(where[1])}), which no "
                f"installed backend owns; copy it to the host first"
            )
        by_dlpack = hasattr(x, "__dlpack__") and not hasattr(x, "__array__")
        return np.from_dlpack(x) if by_dlpack else np.asarray(x)
    except (DeviceError, MemoryError):
        raise
    except Exception as error:  # any error of the object's library
        if isinstance(x, (list, tuple)) and isinstance(error, ValueError):
            raise ShapeError(f"{op}: {name} is a ragged list; every row must have the same length") from None
        raise DtypeError(
            f"{op}: {name} is a {type(x).__name__} that NumPy cannot take ({type(error).__name__}: {error})"
        ) from error
