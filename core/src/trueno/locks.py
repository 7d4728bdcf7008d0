"""Locks that are free after a fork.

A child of a fork has one thread, the one that forked.  A lock that another thread of the parent held at that moment
would stay held in the child forever, by no thread.
"""

import os
from _thread import RLock
from weakref import WeakSet


class ForkSafeLock(RLock):  # type: ignore[misc]  # the stubs declare it final, but CPython accepts subclasses
    """A reentrant lock that is free in a child of a fork, unless the thread that forked holds it.

    Such a thread continues in the child inside its `with`, and releases the lock at the end of it.
    """

    __slots__ = ()

    def __init__(self) -> None:
        _locks.add(self)

    def mine(self) -> bool:
        """Whether this thread holds it."""
        return bool(self._is_owned())  # type: ignore[attr-defined]


_locks: "WeakSet[ForkSafeLock]" = WeakSet()


def _after_fork() -> None:
    for lock in _locks:
        if not lock._is_owned():  # type: ignore[attr-defined]
            lock._at_fork_reinit()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):  # hooks of modules imported later run after this one, and find the locks free
    os.register_at_fork(after_in_child=_after_fork)
