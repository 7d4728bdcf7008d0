"""Calls in a page (Pyodide): one thread, which must give the event loop its turn before a device answers.

Where the page may wait inside of a call (`trueno.sync_available()`), calls are the same as elsewhere.  Otherwise a
backend's device is opened with `open_async`, kernels run on its arrays without waiting, and results are read with
`to_host_async`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from trueno.aio import threads
from trueno.context import sync_available
from trueno.discovery import registry
from trueno.dispatch import state, transfer
from trueno.dispatch.fallback import wrapping_errors


def waits() -> bool:
    """Whether calls may wait, in this thread or in another one."""
    return threads.possible() or sync_available()


async def opened(name: Any) -> None:
    """Open the device of a backend, where a call could not."""
    entry = registry.entries().get(name.lower()) if isinstance(name, str) and not waits() else None
    if entry is not None and entry.foreign:
        backend: Any = entry.load()
        if hasattr(backend, "open_async"):
            entry.mark_available(*await backend.open_async())


async def read(x: Any, op: str = "numpy") -> Any:
    """A device's array as NumPy's, where no call may wait; any other array unchanged."""
    x = transfer.unwrap(x)
    entry = transfer.device_of(x)
    backend: Any = None if entry is None else entry.load()
    if not hasattr(backend, "to_host_async"):
        return x
    with wrapping_errors(op, backend.name):
        return await backend.to_host_async(x)


async def run(function: Callable[..., Any], args: tuple[Any, ...], kw: dict[str, Any]) -> Any:
    """`function(*args, **kw)`; NumPy's operands go to the device that `trueno.use` names, and results come back."""
    names = () if waits() else state.current.get().request.names
    entry = registry.entries().get(names[0]) if names else None
    backend: Any = entry.load() if entry is not None and entry.foreign else None
    host = [i for i, x in enumerate(args) if isinstance(x, (np.ndarray, list))]
    if entry is None or not host or not hasattr(backend, "to_host_async"):
        return function(*args, **kw)
    await opened(entry.name)
    out = kw.get("out")
    there = [transfer.to(x, entry.name) if i in host else x for i, x in enumerate(args)]
    results = function(*there, **{key: value for key, value in kw.items() if key != "out"})
    many = isinstance(results, tuple)
    arrays = [await read(x) for x in (results if many else (results,))]
    if out is not None:
        for target, array in zip(out if many else (out,), arrays, strict=True):
            np.copyto(target, array)
        return out
    values = [x if getattr(x, "ndim", 0) else np.asarray(x)[()] for x in arrays]
    return tuple(values) if many else values[0]
