"""Locks that a fork leaves free.

A child of a fork has one thread, the one that forked.  A lock that another thread of the parent held at that moment
is held in the child forever, by no thread.
"""

import os
from _thread import RLock
from weakref import WeakSet


class ForkSafeLock(RLock):  # type: ignore[misc]  # final in the stubs, and a base class in fact
    """A reentrant lock that is free in a child of a fork, unless the thread that forked holds it.

    Such a thread goes on in the child inside of its `with`, and leaves it there.
    """

    __slots__ = ()

    def __init__(self) -> None:
        _locks.add(self)


_locks: "WeakSet[ForkSafeLock]" = WeakSet()


def _after_fork() -> None:
    for lock in _locks:
        if not lock._is_owned():  # type: ignore[attr-defined]
            lock._at_fork_reinit()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):  # hooks of later importers run after this one, and find the locks free
    os.register_at_fork(after_in_child=_after_fork)
