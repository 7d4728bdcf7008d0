"""A folder of this process in the system's temporary folder, for kernels where the user's cache cannot be used.

It is removed when the process ends.  One that was killed leaves it behind, and so does a forked child that ends without
cleaning up; the next process that makes such a folder removes those whose process is gone.  A lock says whether it is,
held as long as any process has the file open: a process id says nothing across containers.
"""

import atexit
import os
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from trueno_simd.llvm import elsewhere

try:
    import fcntl
except ImportError:  # Windows, where abandoned folders stay
    fcntl = None  # type: ignore[assignment]

PREFIX = "trueno-simd-"
LOCK = ".lock"
FRESH = 60.0
"""Seconds that a folder is left alone: its process may not have locked it yet."""

_locks: list[int] = []


@cache
def folder() -> Path:
    """The folder, made when first asked for; a forked child has its own."""
    _remove_abandoned()
    path = Path(tempfile.mkdtemp(prefix=PREFIX))
    if fcntl is not None:
        descriptor = os.open(path / LOCK, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        _locks.append(descriptor)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    atexit.register(_remove, path, os.getpid())
    return path


def _remove(path: Path, owner: int) -> None:
    if os.getpid() == owner:
        elsewhere.wait()  # what is compiled would make the folder again
        shutil.rmtree(path, ignore_errors=True)


def _remove_abandoned() -> None:
    """Remove what this user's processes left behind."""
    if fcntl is None:
        return
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with suppress(OSError):
                    _remove_if_abandoned(Path(entry.path))


def _remove_if_abandoned(path: Path) -> None:
    facts = os.lstat(path)
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
        return
    descriptor = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        if time.time() - os.fstat(descriptor).st_mtime > FRESH:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)


def _after_fork() -> None:
    folder.cache_clear()
    while _locks:
        os.close(_locks.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
