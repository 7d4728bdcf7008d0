"""Imports at first use, and forks: a fork waits until no other thread is in the middle of such an import.

A running import holds Python's lock of its module.  A child that is forked meanwhile never gets that lock, because the
thread that would release it does not exist there, and a use of the module in the child blocks forever.  So late imports
are counted here, and the hook before a fork waits until those of other threads end.  Imports do not wait for each
other, because plugins may import in their own threads; nor does a fork wait for an import of its own thread.

Covered: every first use of `trueno.NAME` (ops, `Batch`, `aio` …), the scan for plugins, a plugin's import
and its factory, hooks, and the lazy names of `trueno.hooks` and `trueno.formats`.  Not covered: `import trueno` itself,
imports inside single functions of the core, which are short, and imports that a plugin's kernels do later.  A plugin
names its own work of this kind, such as a compilation, with `forks_wait`.
"""

import os
import sys
import time
from _thread import RLock, get_ident
from collections.abc import Callable
from typing import Any

LONGEST = 2.0
"""Seconds that a fork waits: an import that needs the forking thread, or a lock that an earlier hook took, must not
block both of them forever."""
PATIENCE = 60.0
"""Seconds that a fork waits for what `forks_wait` names: a compilation takes a few, more on a busy machine."""
_BETWEEN = 1e-3

_gate = RLock()  # held during a fork, so that no import begins meanwhile
_waiting = RLock()  # allows one fork at a time
_threads: list[tuple[int, bool]] = []
"""The thread of each running import, and whether it may be a long one; twice where one import is inside another."""
_hooked: Any = os
_register_at_fork: Any = getattr(os, "register_at_fork", None)
_overtaken = False  # whether the hook of another module may run before ours, once `logging` is loaded
_late: list[Callable[[], object]] | None = None  # while a fork waits: the hooks for before it that imports register


class _Importing:
    """`with importing:` around imports that happen late; `with forks_wait:` around longer work."""

    __slots__ = ("_long",)

    def __init__(self, long: bool) -> None:
        self._long = long

    def __enter__(self) -> None:
        with _gate:
            _threads.append((get_ident(), self._long))
            if _overtaken and _late is None and "logging" in sys.modules:
                _wait_first()
            _set_hook()

    def __exit__(self, *_: object) -> None:
        with _gate:
            _threads.remove((get_ident(), self._long))
            _set_hook()


importing = _Importing(long=False)
forks_wait = _Importing(long=True)
"""`with forks_wait:` lets a fork in another thread wait, for up to 60 seconds, until the block has ended."""


def _wait_first() -> None:
    """Make our wait the first step before a fork.

    CPython runs the latest hook first.  `logging`, for one, holds its lock during a fork, and many imports need that
    lock (`logging.getLogger`): if its hook ran before ours, the fork would wait for an import that waits for the fork.
    """
    global _overtaken
    _overtaken = False
    _register_at_fork(before=_before_fork, after_in_parent=lambda: _gate.release(), after_in_child=_after_fork)


def _set_hook() -> None:
    if _register_at_fork is not None:
        _hooked.register_at_fork = _registered if _threads or _late is not None else _register_at_fork


def _registered(**hooks: Callable[[], object]) -> None:
    """`os.register_at_fork` while imports run: our wait comes before their hooks, at the next fork at the latest.

    While a fork waits, it calls their hooks for before a fork itself.  CPython calls the matching hook for after the
    fork in any case, which would release a lock that is not held.
    """
    global _overtaken
    _register_at_fork(**hooks)
    before = hooks.get("before")
    if before is None:
        return
    with _gate:
        if _late is None:
            _wait_first()
        else:
            _late.append(before)
            _overtaken = True


def _before_fork() -> None:
    global _late
    if _gate._is_owned():  # type: ignore[attr-defined]  # this is not the first of our hooks, and all has been waited for
        _gate.acquire()
        return
    begun = time.monotonic()
    with _waiting:
        _gate.acquire()
        if not _others(begun):
            return
        _late = []
        _set_hook()
        try:
            while _others(begun):
                _gate.release()
                try:
                    time.sleep(_BETWEEN)
                finally:
                    _gate.acquire()
        finally:
            hooks, _late = _late, None
            _set_hook()
            for hook in reversed(hooks):
                hook()


def _others(begun: float) -> bool:
    """Whether another thread imports, for which a fork that began then has not waited long enough."""
    me, waited = get_ident(), time.monotonic() - begun
    longest = LONGEST if (me, True) in _threads else PATIENCE  # theirs may need the end of mine, as compilations do
    return any(thread != me and waited < (longest if long else LONGEST) for thread, long in _threads)


def _after_fork() -> None:
    global _gate, _waiting
    _gate, _waiting = RLock(), RLock()
    _threads[:] = [entry for entry in _threads if entry[0] == get_ident()]
    _set_hook()


if _register_at_fork is not None:
    _wait_first()
    _overtaken = "logging" not in sys.modules  # it may be imported later, outside of our imports
