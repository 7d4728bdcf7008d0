"""Imports at first use, and forks: a fork waits until no other thread is in the middle of such an import.

A running import holds Python's lock of its module.  A child that is forked meanwhile never gets that lock, because the
thread that would release it does not exist there, and a use of the module in the child blocks forever.  So late imports
are counted here, and the hook before a fork waits until those of other threads end.  Imports do not wait for each
other, because plugins may import in their own threads; nor does a fork wait for an import of its own thread.

Covered: every first use of `trueno.NAME` (ops, `Batch`, `aio` …), the scan for plugins, a plugin's import
and its factory, hooks, and the lazy names of `trueno.hooks` and `trueno.formats`.  Not covered: `import trueno` itself,
imports inside single functions of the core, which are short, and imports that a plugin's kernels do later.
"""

import os
import time
from _thread import RLock, get_ident
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LONGEST = 2.0
"""Seconds that a fork waits: an import that needs the forking thread, or a lock that an earlier hook took, must not
block both of them forever."""
_BETWEEN = 1e-3

_gate = RLock()  # held during a fork, so that no import begins meanwhile
_waiting = RLock()  # allows one fork at a time
_threads: list[int] = []
"""The thread of each running import; twice where one import is inside another."""


class _Importing:
    """`with importing:` around imports that happen late."""

    __slots__ = ()

    def __enter__(self) -> None:
        with _gate:
            _threads.append(get_ident())
        if not _after_logging:
            _wait_before_logging()

    def __exit__(self, *_: object) -> None:
        with _gate:
            _threads.remove(get_ident())


importing = _Importing()


_after_logging = not hasattr(os, "register_at_fork")


def _wait_before_logging() -> None:
    """Make forks wait for imports before `logging` takes its lock, which many imports need (`logging.getLogger`).

    CPython runs the latest hook for before a fork first, so ours is registered once more after that of `logging`.  This
    happens at the first late import: `import trueno` itself need not load `logging`.
    """
    global _after_logging
    import logging  # noqa: F401 - for its hook

    with _gate:
        if not _after_logging:
            _register()
            _after_logging = True


def _before_fork() -> None:
    me, end = get_ident(), time.monotonic() + LONGEST
    with _waiting:
        _gate.acquire()
        if all(thread == me for thread in _threads):
            return
        with _called_too():
            while any(thread != me for thread in _threads) and time.monotonic() < end:
                _gate.release()
                try:
                    time.sleep(_BETWEEN)
                finally:
                    _gate.acquire()


@contextmanager
def _called_too() -> Iterator[None]:
    """Makes hooks for before a fork, registered by imports meanwhile, run before this one.

    CPython calls the matching hook for after the fork in any case, which would release a lock that is not held.
    """
    register: Any = os.register_at_fork
    late: list[Callable[[], object]] = []

    def registered(**hooks: Callable[[], object]) -> None:
        register(**hooks)
        late.extend(hook for when, hook in hooks.items() if when == "before")

    hooked: Any = os
    hooked.register_at_fork = registered
    try:
        yield
    finally:
        hooked.register_at_fork = register
        for hook in reversed(late):
            hook()


def _after_fork() -> None:
    global _gate, _waiting
    _gate, _waiting = RLock(), RLock()
    _threads[:] = [thread for thread in _threads if thread == get_ident()]


def _register() -> None:
    os.register_at_fork(before=_before_fork, after_in_parent=lambda: _gate.release(), after_in_child=_after_fork)


if hasattr(os, "register_at_fork"):
    _register()
