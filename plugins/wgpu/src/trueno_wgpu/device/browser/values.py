"""Python's values as JavaScript's, and waiting for promises: the only file that imports `js` and `pyodide`.

A page has one thread, and a promise is kept only while that thread is idle.  So Python can wait inside a call only
where the browser can put the whole stack of WebAssembly aside (JavaScript Promise Integration) and Pyodide was entered
through an asynchronous call; `may_wait` knows.  Everywhere else a caller awaits.
"""

from collections.abc import Awaitable
from typing import Any, TypeVar

import js
from pyodide.ffi import JsException, create_proxy, run_sync, to_js
from trueno.errors import DeviceError

T = TypeVar("T")
WAITING = "a page cannot wait for a GPU inside of a call here (trueno.sync_available() is False)"


def gpu() -> Any:
    """`navigator.gpu`, of a page or of a worker; None in a browser without WebGPU."""
    return getattr(getattr(js, "navigator", None), "gpu", None)


def may_wait() -> bool:
    """Whether `wait` works where it is called now."""
    try:
        from pyodide.ffi import can_run_sync
    except ImportError:  # an old Pyodide
        return False
    return bool(can_run_sync())


def wait(promise: Awaitable[T], instead: str) -> T:
    """What a promise or a coroutine gives; DeviceError where a page cannot wait, with what to write `instead`."""
    if not may_wait():
        close = getattr(promise, "close", None)  # a coroutine that never runs would warn
        if close is not None:
            close()
        raise DeviceError(f"wgpu: {WAITING}; {instead}")
    return run_sync(promise)  # type: ignore[no-any-return]


def record(**fields: Any) -> Any:
    """A JavaScript object; lists and dictionaries inside become arrays and objects."""
    return to_js(fields, dict_converter=js.Object.fromEntries)


def array(items: Any) -> Any:
    """A JavaScript array, of records where the items are dictionaries; bytes become a Uint8Array, which is a copy."""
    return to_js(items, dict_converter=js.Object.fromEntries)


def told(error: JsException) -> str:
    """What an exception says."""
    return str(getattr(error, "message", "") or error)


__all__ = ["WAITING", "JsException", "array", "create_proxy", "gpu", "may_wait", "record", "told", "wait"]
