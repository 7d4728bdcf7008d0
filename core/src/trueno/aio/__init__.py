"""Every op for asyncio: `await trueno.aio.add(x, y)` is `trueno.add(x, y)` while the event loop stays free.

Each function has the name, signature, results and errors of its counterpart in `trueno`, and runs under the caller's
`use`, guard and trace.  A call runs in a worker thread, unless it is on host arrays, has run before, and is
predicted to take less time than a hop to another thread: then it runs inline (see `trueno.aio.inline`).

Until the `await` has ended, operands must not be written, and `out` must not be read.  Once it has ended, in any way,
`out` belongs to the caller again: a cancelled call that was already running with `out=` is waited for first.
`to`, `numpy` and `device` are those of `trueno`, in a worker thread; in a page without threads (Pyodide) they are what
opens a GPU and reads from it.
"""

from typing import TYPE_CHECKING, Any

from trueno.aio import turns
from trueno.aio.calls import away, build

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from trueno.context import DeviceContext

_functions: "dict[str, Callable[..., Coroutine[Any, Any, Any]]]" = {}  # not globals, which hide builtins (sum, max)


async def to(x: Any, name: str) -> Any:
    """`trueno.to` without blocking the event loop."""
    from trueno.dispatch.transfer import to  # start-up

    await turns.opened(name)
    return await away(to, (x, name), {})


async def numpy(x: Any) -> Any:
    """`trueno.numpy` without blocking the event loop."""
    from trueno.dispatch.transfer import numpy  # start-up

    if not turns.waits():
        x = x._of_bytes(await turns.read(x.bytes)) if hasattr(type(x), "_of_bytes") else await turns.read(x)
    return await away(numpy, (x,), {})


async def device(name: str) -> "DeviceContext":
    """`trueno.device` without blocking the event loop while the backend is probed and started."""
    from trueno.context import device  # start-up

    await turns.opened(name)
    return await away(device, (name,), {})  # type: ignore[no-any-return]


def __getattr__(name: str) -> Any:
    from trueno.ops import ALIASES, TABLE  # start-up

    name = ALIASES.get(name, name)
    if name in _functions:
        return _functions[name]
    if name not in TABLE:
        from trueno.hints import lacking  # start-up

        raise AttributeError(lacking("trueno.aio has no op", name, [*TABLE, *ALIASES]))
    _functions[name] = build(TABLE[name])
    return _functions[name]


def __dir__() -> list[str]:
    from trueno.ops import ALIASES, TABLE  # start-up

    return sorted({*__all__, *TABLE, *ALIASES})


__all__ = ["device", "numpy", "to"]
