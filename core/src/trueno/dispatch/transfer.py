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
from trueno.errors import DtypeError, KernelError, ParameterError
from trueno.events.stream import emit


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
            download(backend, result, target, op)
        return status

    return ferried


def home(x: Any) -> Entry | None:
    """The backend on which an operand lives; None for the host."""
    kind = type(x)
    return None if kind is np.ndarray or kind in (list, tuple, float, int) else registry.owner(kind)


def to(x: Any, name: str) -> Any:
    """`x` as the own array type of backend `name`: a copy on its device; the array itself if it lives there.

    `x`: a NumPy array, a list, a number, or an array of any installed backend.
    """
    if not isinstance(name, str):
        raise ParameterError(f'to: {name!r} is no name of a backend; write trueno.to(x, "simd")')
    backend = registry.load(name.lower())
    entry = registry.entries()[name.lower()]
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
    there = home(x)
    if there is not None:
        with telling("numpy", there.name):
            return download(registry.load(there.name), x)  # type: ignore[no-any-return]
    array = getattr(x, "array", x)
    if isinstance(array, (list, tuple)):
        array = np.asarray(array, np.float32)
    return np.asarray(array)
