"""Moving arrays to a device and home.

`trueno.to` and `trueno.numpy` move what the user has; a kernel that is to compute on host arrays elsewhere has
them ferried.  Every move is an event of kind `transfer`, with bytes and seconds.
"""

from time import perf_counter
from typing import Any, cast

import numpy as np

from trueno.discovery import registry
from trueno.discovery.protocol import Backend, Call, DeviceBackend, Kernel
from trueno.discovery.registry import Entry
from trueno.dispatch.fallback import telling
from trueno.errors import DeviceError, DtypeError, KernelError, ParameterError
from trueno.events.stream import emit

HOST_DEVICES = (1, 3, 11, 13)
"""DLPack's numbers of memory that the host reaches: its own, pinned for CUDA or ROCm, and CUDA's managed."""


def upload(backend: Backend, x: np.ndarray[Any, Any], op: str = "to") -> Any:
    """A NumPy array as the backend's own; KernelError when it comes out in another shape or dtype."""
    start = perf_counter()
    there: Any = backend.to_device(x)
    emit("transfer", op, backend.name, "to device", start=start, seconds=perf_counter() - start, bytes=x.nbytes)
    _same(backend, "to_device", there, x.shape, x.dtype)
    return there


def write(backend: Backend, x: np.ndarray[Any, Any], out: Any, op: str = "to") -> None:
    """Copy a NumPy array into one of a backend that can write without allocating."""
    start = perf_counter()
    cast(DeviceBackend, backend).write(x, out)
    emit("transfer", op, backend.name, "to device", start=start, seconds=perf_counter() - start, bytes=x.nbytes)


def download(backend: Backend, x: Any, out: np.ndarray[Any, Any] | None = None, op: str = "numpy") -> Any:
    """A device array as NumPy's, into `out` if given."""
    start = perf_counter()
    here: Any = backend.to_host(x, out)
    if not isinstance(here, np.ndarray):
        raise KernelError(f"{backend.name}: to_host gave {type(here).__name__} where a NumPy array was asked for")
    _same(backend, "to_host", here, tuple(x.shape), np.dtype(x.dtype))
    emit("transfer", op, backend.name, "to host", start=start, seconds=perf_counter() - start, bytes=here.nbytes)
    return here


def empty(backend: Backend, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """An uninitialised array of the backend's own type."""
    made = backend.empty(shape, dtype)
    _same(backend, "empty", made, shape, dtype)
    return made


def _same(backend: Backend, method: str, x: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if tuple(x.shape) != tuple(shape) or np.dtype(x.dtype) != dtype:
        raise KernelError(
            f"{backend.name}: {method} gave {np.dtype(x.dtype)} of shape {tuple(x.shape)}, "
            f"where {dtype} of shape {tuple(shape)} was asked for"
        )


def ferry(kernel: Kernel, backend: Backend, call: Call, guarded: bool) -> Kernel:
    """A device's kernel for host arrays: operands go there, results come back; nothing else is touched."""
    inputs, outs, op = len(call.op.operands), len(call.op.signature.outputs), call.op.name

    def ferried(*args: Any) -> int:
        targets = args[-outs:]
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
            here = download(backend, result, target, op)
            if here is not target:  # a backend may not know out
                np.copyto(target, here)
        return status

    return ferried


def held(x: Any) -> Any:
    """The array that a `Vector` or `Matrix` holds; anything else as it is."""
    return x.array if hasattr(type(x), "_wrap_result") else x


def home(x: Any) -> Entry | None:
    """The backend on which an operand lives, be it an array or what holds one; None for the host."""
    kind = type(x)
    if kind is np.ndarray or kind in (list, tuple, float, int):
        return None
    return home(x.array) if hasattr(kind, "_wrap_result") else registry.owner(kind)


def to(x: Any, name: str) -> Any:
    """`x` as the own array type of backend `name`: a copy on its device; the array itself if it lives there.

    `x`: a NumPy array, a list, a number, or an array of any installed backend.
    """
    if not isinstance(name, str):
        raise ParameterError(f'to: {name!r} is no name of a backend; write trueno.to(x, "simd")')
    backend = registry.load(name.lower())
    entry = registry.entries()[name.lower()]
    x = held(x)
    there = home(x)
    if there is entry:
        return x
    here = np.asarray(numpy(x), order="C")
    if here.dtype.kind not in "fiu":
        raise DtypeError(f"to: x is {here.dtype}; real numbers only")
    here = here.astype(here.dtype.newbyteorder("="), copy=False)
    if not registry.foreign(entry):
        return here
    with telling("to", backend.name):
        return upload(backend, here)


def numpy(x: Any) -> np.ndarray[Any, Any]:
    """`x` as a NumPy array, wherever it lives."""
    x = held(x)
    there = home(x)
    if there is not None:
        with telling("numpy", there.name):
            return download(registry.load(there.name), x)  # type: ignore[no-any-return]
    if isinstance(x, (list, tuple)):
        try:
            return np.asarray(x, np.float32)
        except (TypeError, ValueError) as error:
            raise DtypeError(f"numpy: x is a {type(x).__name__} that makes no array of numbers ({error})") from None
    return imported("numpy", "x", x)


def imported(op: str, name: str, x: Any) -> np.ndarray[Any, Any]:
    """What another library exports, as a NumPy array on the same memory where it is the host's.

    DeviceError for memory that only a device reaches; DtypeError for what NumPy cannot hold.
    """
    try:
        where = x.__dlpack_device__() if hasattr(x, "__dlpack_device__") else (HOST_DEVICES[0], 0)
        if int(where[0]) not in HOST_DEVICES:
            raise DeviceError(
                f"{op}: {name} is a {type(x).__name__} on DLPack device ({int(where[0])}, {int(where[1])}), which no "
                f"installed backend owns; copy it to the host first"
            )
        by_dlpack = hasattr(x, "__dlpack__") and not hasattr(x, "__array__")
        return np.from_dlpack(x) if by_dlpack else np.asarray(x)
    except DeviceError:
        raise
    except Exception as error:  # whatever that library raises
        raise DtypeError(
            f"{op}: {name} is a {type(x).__name__} that NumPy cannot take ({type(error).__name__}: {error})"
        ) from error
