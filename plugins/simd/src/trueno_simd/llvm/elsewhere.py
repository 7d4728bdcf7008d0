"""A separate thread for work that must not be interrupted between two of its steps.

Ctrl-C raises KeyboardInterrupt between any two steps of the main thread, and only there.  If that happens while Numba
fills its registries, they stay half filled for the rest of the process, and LLVM's callbacks swallow it and continue
without the code that they should keep.  So another thread imports Numba, compiles kernels, and starts and stops the
pool, and the caller waits, which can be interrupted at any time.

The caller then gets its KeyboardInterrupt at once, and the task runs to its end.  Its results are not lost: modules
are in `sys.modules` and machine code is in the store, where the next call finds them; an earlier one waits
for the same locks.  The process waits, for a while, before it exits, because LLVM must not be torn down under a running
thread.  It waits before it forks as well (`forks_wait`): a child has no such thread, and would wait for its import
locks forever.

A task must not be begun by a module that it imports itself: it would wait for that module, and the module for it.

Tasks of two callers run side by side, and both may be the first to import Numba.  Python takes the lock of a module
before that of its package: if one thread imports `numba.core.config` while another is in the middle of `numba`, each
waits for the other, and Python ends that by handing out a package that is half imported.  So tasks import with
`module`, one at a time, and the package first.
"""

import _imp
import _thread
import atexit
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from importlib import import_module
from types import ModuleType
from typing import Final, Generic, TypeVar

from trueno.backend import forks_wait, ieee

T = TypeVar("T")

STACK: Final = 16 << 20  # bytes, for LLVM; a program may have set less for its own threads, and some systems give less
PATIENCE: Final = 60.0  # seconds that an exit waits for running tasks, which take a few

_here = threading.local()
_under_way: "set[_thread.LockType]" = set()
_imports = threading.RLock()


def run(function: Callable[[], T]) -> T:
    """What `function` returns or raises in a separate thread, with the caller's context; within a task, directly."""
    if getattr(_here, "inside", False) or _compiling():
        return function()
    _free_imports()
    task = _Task(function)
    if not _started(task.run):
        task.run()
    with task.done:  # released again at once, for an exit or a fork that waits for it, too
        return task.outcome()


def module(name: str) -> ModuleType:
    """The module of that full name, imported after its packages and while no other task imports one."""
    with _imports:
        packages = name.split(".")
        for end in range(1, len(packages)):
            import_module(".".join(packages[:end]))
        return import_module(name)


def _free_imports() -> None:
    """Release Python's import lock where an earlier Ctrl-C of this thread has left it held.

    CPython's `_get_module_lock` acquires it one step before its `try`.  A KeyboardInterrupt between the two leaves it
    with the main thread for good, which does not notice; every other thread would wait for it at its next import.
    Nothing that calls this holds it rightly: an import lets go of it before a module's code runs.
    """
    while _imp.lock_held():
        try:
            _imp.release_lock()
        except RuntimeError:  # another thread holds it, for a moment
            return


def _compiling() -> bool:
    """Whether this thread is in the middle of one of Numba's compilations, for which the task would wait forever."""
    lock = getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)
    return lock is not None and bool(lock.is_locked())


class _Task(Generic[T]):
    def __init__(self, function: Callable[[], T]) -> None:
        self._function, self._context = function, copy_context()
        self._results: list[T] = []
        self._errors: list[BaseException] = []
        self.done = _thread.allocate_lock()
        self.done.acquire()

    def run(self) -> None:
        """The whole life of the task, in whatever thread it is."""
        _under_way.add(self.done)
        _here.inside = True
        try:
            with forks_wait, ieee():  # the code compiled now is kept
                self._results.append(self._context.run(self._function))
        except BaseException as error:
            self._errors.append(error)
        finally:
            _here.inside = False
            _under_way.discard(self.done)
            self.done.release()

    def outcome(self) -> T:
        if self._errors:
            raise self._errors.pop()  # not stored: its traceback holds this task
        return self._results.pop()


def _started(life: Callable[[], None]) -> bool:
    """Start a thread; False if the system gives none, as at the interpreter's end."""
    before = None
    try:
        with suppress(ValueError, RuntimeError):  # no such size, or none can be set
            before = _thread.stack_size(STACK)
        _thread.start_new_thread(life, ())
    except RuntimeError:
        return False
    finally:
        if before is not None:
            _thread.stack_size(before)
    return True


def wait(seconds: float = PATIENCE) -> bool:
    """Wait until the running tasks have ended; returns whether they have."""
    limit = time.monotonic() + seconds
    for done in () if getattr(_here, "inside", False) else tuple(_under_way):
        if not done.acquire(timeout=max(0.0, limit - time.monotonic())):
            return False
        done.release()
    return True


atexit.register(wait)


def _after_fork() -> None:
    global _imports
    _under_way.clear()
    _imports = threading.RLock()  # another thread may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
