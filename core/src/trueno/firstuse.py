"""Imports at first use, and forks: a fork waits until no other thread is in the middle of one.

An import under way holds a lock of Python's for its module, which no child of a fork ever gets: the thread that would
release it is not there, and who touches that module in the child waits for ever.  So imports that happen late are
counted here, and the hook before a fork waits until those of other threads have ended.  They do not wait for each
other, since plugins may import in threads of theirs; nor does a fork for an import that its own thread is in.

Covered: all that `trueno.NAME` brings at its first use (ops, `Batch`, `aio` …), the scan for plugins, a plugin's import
and its factory, hooks, and the lazy names of `trueno.hooks` and `trueno.formats`.  Not covered: `import trueno` itself,
imports inside single functions of ours, which are short, and those that a plugin's kernels do later.
"""

import os
import time
from _thread import RLock, get_ident
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LONGEST = 2.0
"""Seconds that a fork waits: an import that needs the forking thread, or a lock that an earlier hook took (`logging`
has one), must not stop both of them for ever."""
_BETWEEN = 1e-3

_gate = RLock()  # held through a fork, so that no import begins meanwhile
_waiting = RLock()  # one fork after the other
_threads: list[int] = []
"""The thread of each import under way; twice where one is in the other."""


class _Importing:
    """`with importing:` around imports that happen late."""

    __slots__ = ()

    def __enter__(self) -> None:
        with _gate:
            _threads.append(get_ident())

    def __exit__(self, *_: object) -> None:
        with _gate:
            _threads.remove(get_ident())


importing = _Importing()


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
    """Has what imports register meanwhile for before a fork called before this one.

    CPython calls its counterpart for after the fork in any case, which would release a lock that nobody took.
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


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=lambda: _gate.release(), after_in_child=_after_fork)
