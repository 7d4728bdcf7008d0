"""Threads for compiled kernels: one parallel region at a time, entered in about a microsecond.

Numba's own layers do not suit a library: its workqueue aborts the process when two threads use it at
once, its OpenMP layer kills forked children and needs libgomp, and both are compiled into every kernel.
Here a kernel contains a short call through a pointer; the pool behind it is compiled once.

    @outer
    def piece(args, i): ...                      # int64(int64, int64); raises nothing
    @kernel_entry(...)
    def kernel(x, out):
        args = pack((x, out))                    # in this function: the slot lives as long as its frame
        parallel_for(address_of(piece), args, chunks)

How it works: `trueno_simd.threads.region`.  Here is Python's side, which starts and stops the workers.

Nothing is certain about workers: a busy pool, a nested call, a forked child or a thread that could not
be started only mean that the caller does all chunks itself.
"""

import _thread
import atexit
import ctypes
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Final

from trueno_simd.llvm import elsewhere
from trueno_simd.llvm.calls import new_lock
from trueno_simd.threads.cpus import poke_cpus, usable_cpus
from trueno_simd.threads.region import WAKE_NS, enter, parallel_for, spin, wake_all, work
from trueno_simd.threads.words import (
    BASE,
    CALLER_LOCK,
    EACH,
    ENTER,
    EXITED,
    LOCK,
    MOST,
    SPIN_TICKS,
    SPINS,
    START,
    STOP,
    THREAD,
    WAKE_TICKS,
    WORDS,
    WORKERS,
    peek,
    poke,
)

__all__ = ["count", "ensure_started", "parallel_for", "set_count", "stop", "workers"]

SPIN_NS: Final = 30_000  # look for work so long before sleeping; waking costs about as much

_mutex = threading.Lock()
_count: int | None = None


def count() -> int:
    """Threads that a region may use, the caller among them."""
    global _count
    if _count is None:
        _count = usable_cpus()
    return _count


def set_count(n: int) -> None:
    """Use n threads from the next region on; 1 means none beside the caller."""
    global _count
    if n < 1:
        raise ValueError(f"threads: {n} is less than 1")
    _elsewhere(_stop)
    _count = min(n, MOST + 1)
    poke(START, _START if _count > 1 else 0)


def workers() -> int:
    """Workers that run now (0 before the first parallel region, and in a new child)."""
    return peek(WORKERS) if peek(ENTER) else 0


def ensure_started() -> bool:
    """Start what is missing; False if no worker runs.

    A region does this by itself, in the middle of a kernel; a backend that does it beforehand keeps
    the first large call short.
    """
    if not peek(ENTER) and count() > 1:
        _elsewhere(_start)
    return peek(ENTER) != 0


def stop() -> None:
    """Let the workers end; the next region starts new ones."""
    _elsewhere(_stop)


def _elsewhere(task: Callable[[], None]) -> None:
    """Run `task` where no Ctrl-C comes between two of its steps, when those of others are done, and wait."""

    def alone() -> None:
        with _mutex:
            task()

    elsewhere.run(alone)


def _start() -> None:
    if peek(ENTER) or (peek(STOP) and not _stopped()):
        return
    # Everything is compiled before the first thread runs: a kernel may hold the GIL for long.
    region, life = enter()(), work()

    def live(w: int) -> None:
        poke(THREAD + EACH * w, threading.get_native_id() if hasattr(threading, "get_native_id") else 0)
        life(w)

    wake_all()
    if not peek(SPINS):
        spin()(1)
        least, ticks = min(_timed_spin() for _ in range(3))
        poke(SPINS, max(1, 1000 * SPIN_NS // least))
        poke(SPIN_TICKS, ticks * SPIN_NS // least)
        poke(WAKE_TICKS, ticks * WAKE_NS // least)
    poke_cpus()
    if not peek(CALLER_LOCK):
        poke(CALLER_LOCK, new_lock())
    for w in range(count() - 1):
        if not peek(LOCK + EACH * w):
            poke(LOCK + EACH * w, new_lock())
        try:
            _thread.start_new_thread(live, (w,))
        except RuntimeError:  # the system gives no more threads; what there is will do
            break
        poke(WORKERS, w + 1)
    if peek(WORKERS):
        poke(ENTER, region)
    else:
        poke(START, 0)  # do not ask again at every call; set_count() does


def _stop(timeout: float = 60.0) -> None:
    poke(ENTER, 0)  # regions under way go on; their callers finish what the workers leave
    poke(STOP, 1)
    limit = time.monotonic() + timeout
    while not _stopped():
        if time.monotonic() > limit:
            raise RuntimeError("threads: a kernel did not end in time")
        wake_all()()  # each time: a thread may not yet have begun
        time.sleep(0.0002)


def _stopped() -> bool:
    if peek(EXITED) < peek(WORKERS):
        return False
    for word in (WORKERS, EXITED, STOP):
        poke(word, 0)
    return True


def _timed_spin() -> tuple[int, int]:
    """Nanoseconds of 1000 spins, and ticks."""
    begin = time.perf_counter_ns()
    ticks = spin()(1000)
    return max(1, time.perf_counter_ns() - begin), ticks


@ctypes.CFUNCTYPE(ctypes.c_int)
def _start_for_kernel() -> int:
    """1: done what could be done.  0, and also what ctypes answers for an exception: Ctrl-C came."""
    try:
        ensure_started()
    except KeyboardInterrupt:
        return 0
    except Exception:
        poke(START, 0)
        logging.getLogger("trueno").warning("threads: no workers; kernels go on without", exc_info=True)
    return 1


_START: Final = ctypes.cast(_start_for_kernel, ctypes.c_void_p).value or 0
poke(START, _START)


@atexit.register
def _at_exit() -> None:
    """Workers leave compiled code while it is still mapped."""
    poke(START, 0)
    if _mutex.acquire(timeout=1.0):
        try:
            _stop(timeout=1.0)
        except RuntimeError:
            pass  # a daemon thread is still in a kernel; the process ends all the same
        finally:
            _mutex.release()


# ---- what only some systems have: fork


def _after_fork() -> None:
    """The child has none of the workers, and perhaps half a region of a thread that is not there."""
    global _mutex
    _mutex = threading.Lock()
    spins, measured = peek(SPINS), [(word, peek(word)) for word in (SPINS, SPIN_TICKS, WAKE_TICKS)]
    ctypes.memset(BASE, 0, 8 * WORDS)  # the old locks are left as they are: their state is unknown
    if spins:
        for word, value in measured:
            poke(word, value)
        poke(CALLER_LOCK, new_lock())
    poke(START, _START if count() > 1 else 0)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
