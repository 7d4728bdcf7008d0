"""The worker threads in which asynchronous calls run: few, started when the first call needs one.

They are named `trueno-aio`, serve every event loop of the process, and end with the interpreter, after what
they are running.  A forked child starts with none.
"""

import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from trueno.locks import ForkSafeLock

_pool: ThreadPoolExecutor | None = None
_lock = ForkSafeLock()


def possible() -> bool:
    """Whether this platform has threads; if not, calls run inline."""
    return sys.platform not in ("emscripten", "wasi")


def most() -> int:
    """The number of threads: at least two, so that waiting for a device does not stop the host, and at most eight,
    because kernels have their own threads."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(max(cpus, 2), 8)


def submit(function: Callable[..., Any], *args: Any, **kw: Any) -> "Future[Any]":
    """Run `function` in a worker thread, after earlier submissions."""
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(most(), "trueno-aio")
        return _pool.submit(function, *args, **kw)


def _forget() -> None:
    """In a forked child there are no threads."""
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
