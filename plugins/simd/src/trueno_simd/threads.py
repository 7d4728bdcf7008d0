"""Threads for compiled kernels: one parallel region at a time, entered in about a microsecond.

Numba's own layers do not suit a library: its workqueue aborts the process when two threads use it at
once, its OpenMP layer kills forked children and needs libgomp, and both are compiled into every kernel.
Here a kernel contains a short call through a pointer; the pool behind it is compiled once.

    @outer
    def piece(args, i): ...                      # int64(int64, int64); raises nothing
    @entry(...)
    def kernel(x, out):
        args = pack((x, out))                    # in this function: the slot lives as long as its frame
        parallel_for(address_of(piece), args, chunks)

How it works.  All state is one block of words that compiled code finds under the symbol `trueno_pool`
(so cached kernels hold no address), each word on a cache line of its own.  A region is a job (function,
args, chunks) and a count of tickets.  The thread that takes a ticket owns that chunk: the region cannot end
before it is done, so the job's words are stable for it; a thread that finds none left touches nothing more.
That is why a worker which wakes late, even in the middle of the next region, does no harm, why no thread
waits for workers to report, and why the caller alone always finishes.  Workers never hold the GIL.

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
from functools import cache
from typing import Any, Final

from numba import int64

from trueno_simd import elsewhere, jit
from trueno_simd.calls import (
    acquire_gil,
    address_of,
    call_c,
    call_piece,
    call_region,
    call_set_cpus,
    interrupt,
    lock,
    new_lock,
    pack,
    region_address,
    release_gil,
    unlock,
    unpack,
)
from trueno_simd.cpus import poke_cpus, usable_cpus
from trueno_simd.words import (
    ARGS,
    BASE,
    BUSY,
    CALLER_LOCK,
    CALLER_SLEEPS,
    CHUNKS,
    CPU,
    ENTER,
    EXITED,
    FUNCTION,
    GET_CPU,
    LEFT,
    LINE,
    LOCK,
    MASK,
    MASKS,
    MOST,
    RESULT,
    SET_CPUS,
    SLEEPS,
    SPINS,
    START,
    STOP,
    THREAD,
    TICKETS,
    WORDS,
    WORKERS,
    add,
    get,
    or_,
    pause,
    peek,
    poke,
    put,
    swap,
)

__all__ = [
    "acquire_gil", "address_of", "count", "ensure_started", "pack", "parallel_for", "release_gil",
    "set_count", "stop", "unpack", "workers",
]  # fmt: skip

SPIN_NS: Final = 30_000  # look for work so long before sleeping; waking costs about as much

# ---- the compiled pool


@jit.outer
def _serial(function, args, chunks):  # type: ignore[no-untyped-def]
    bits = 0
    for i in range(chunks):
        bits |= call_piece(function, args, i)
    return bits


@jit.outer
def parallel_for(function, args, chunks):  # type: ignore[no-untyped-def]
    """function(args, i) once for every i in 0 … chunks-1; the results, or'ed together."""
    enter = 0
    if chunks > 1:
        enter = get(ENTER)
        if enter == 0:
            start = get(START)
            if start != 0:
                if call_c(start) == 0:
                    interrupt()  # ctypes swallowed it: let it be raised once the kernel has returned
                enter = get(ENTER)
    if enter == 0:
        return _serial(function, args, chunks)
    return call_region(enter, function, args, chunks)


@jit.outer
def _drain():  # type: ignore[no-untyped-def]
    """Take tickets until none is left."""
    done, bits = 0, 0
    while True:
        left = add(TICKETS, -1)
        if left <= 0:
            break
        bits |= call_piece(get(FUNCTION), get(ARGS), get(CHUNKS) - left)
        done += 1
    if done:
        if bits:
            or_(RESULT, bits)
        # From here on the region may be over, and another caller's: hence a swap, not a look.
        if add(LEFT, -done) == done and swap(CALLER_SLEEPS, 0) == 1:
            unlock(get(CALLER_LOCK))


@jit.outer
def _part(w):  # type: ignore[no-untyped-def]
    """Keep a sleeping worker off the caller's CPU.

    On a busy machine Linux likes to wake a thread where its waker runs.  It then gets its turn when the
    caller's time slice is over, sleeps again, and never leaves: measured, all work on one CPU for seconds.
    """
    if get(GET_CPU):
        here = call_c(get(GET_CPU))
        if here == get(CPU + 4 * w):
            call_set_cpus(get(SET_CPUS), get(THREAD + 4 * w), MASK, get(MASKS) + here * MASK)


@jit.outer
def _wake(wanted):  # type: ignore[no-untyped-def]
    """See that `wanted` workers are awake.  The thread that swaps a sleeper's flag to 0 owes it one release."""
    for w in range(get(WORKERS)):
        if wanted <= 0:
            break
        if get(SLEEPS + 4 * w) and swap(SLEEPS + 4 * w, 0) == 1:
            _part(w)
            unlock(get(LOCK + 4 * w))
        wanted -= 1


@jit.outer
def _region(function, args, chunks):  # type: ignore[no-untyped-def]
    if get(BUSY) or swap(BUSY, 1):
        return _serial(function, args, chunks)  # another thread's region, or a nested call
    put(FUNCTION, function)
    put(ARGS, args)
    put(CHUNKS, chunks)
    put(RESULT, 0)
    put(LEFT, chunks)
    swap(TICKETS, chunks)  # before the flags are read: a worker sets its flag, then looks for tickets
    _wake(chunks - 1)
    _drain()
    spins = get(SPINS)
    while get(LEFT) > 0:
        for _ in range(spins):
            if get(LEFT) <= 0:
                break
            pause()
        if get(LEFT) > 0:
            swap(CALLER_SLEEPS, 1)
            if get(LEFT) > 0 or swap(CALLER_SLEEPS, 0) == 0:
                lock(get(CALLER_LOCK))
    result = get(RESULT)
    put(BUSY, 0)
    return result


def _entry(signature: Any) -> Callable[[Callable[..., Any]], Callable[[], Any]]:
    """Like `jit.entry`, but runs without the GIL, and is made when first asked for: importing is cheap."""

    def later(function: Callable[..., Any]) -> Callable[[], Any]:
        return cache(lambda: jit.entry(signature, nogil=True)(function))

    return later


@_entry(int64(int64))
def _work(w):  # type: ignore[no-untyped-def]
    """A worker's life: look for tickets, for a while eagerly, then asleep."""
    spins = get(SPINS)
    while get(STOP) == 0:
        if get(TICKETS) > 0:
            _drain()
            continue
        for _ in range(spins):
            if get(TICKETS) > 0 or get(STOP):
                break
            pause()
        else:
            if get(GET_CPU):
                put(CPU + 4 * w, call_c(get(GET_CPU)))
            swap(SLEEPS + 4 * w, 1)
            if (get(TICKETS) <= 0 and get(STOP) == 0) or swap(SLEEPS + 4 * w, 0) == 0:
                lock(get(LOCK + 4 * w))
    return add(EXITED, 1)


@_entry(int64())
def _enter():  # type: ignore[no-untyped-def]
    return region_address(_region)


@_entry(int64(int64))
def _spin(times):  # type: ignore[no-untyped-def]
    """The eager part of a worker's life alone, to be timed."""
    for _ in range(times):
        if get(TICKETS) > 0 or get(STOP):
            break
        pause()
    return times


@_entry(int64())
def _wake_all():  # type: ignore[no-untyped-def]
    _wake(MOST)
    return 0


# --------------------------------------------------------------------------------- Python's side: threads

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
    enter, work = _enter()(), _work()

    def live(w: int) -> None:
        poke(THREAD + 4 * w, threading.get_native_id() if hasattr(threading, "get_native_id") else 0)
        work(w)

    _wake_all()
    if not peek(SPINS):
        _spin()(1)
        least = min(_timed_spin() for _ in range(3))
        poke(SPINS, max(1, 1000 * SPIN_NS // least))
    poke_cpus()
    if not peek(CALLER_LOCK):
        poke(CALLER_LOCK, new_lock())
    for w in range(count() - 1):
        if not peek(LOCK + 4 * w):
            poke(LOCK + 4 * w, new_lock())
        try:
            _thread.start_new_thread(live, (w,))
        except RuntimeError:  # the system gives no more threads; what there is will do
            break
        poke(WORKERS, w + 1)
    if peek(WORKERS):
        poke(ENTER, enter)
    else:
        poke(START, 0)  # do not ask again at every call; set_count() does


def _stop(timeout: float = 60.0) -> None:
    poke(ENTER, 0)  # regions under way go on; their callers finish what the workers leave
    poke(STOP, 1)
    limit = time.monotonic() + timeout
    while not _stopped():
        if time.monotonic() > limit:
            raise RuntimeError("threads: a kernel did not end in time")
        _wake_all()()  # each time: a thread may not yet have begun
        time.sleep(0.0002)


def _stopped() -> bool:
    if peek(EXITED) < peek(WORKERS):
        return False
    for word in (WORKERS, EXITED, STOP):
        poke(word, 0)
    return True


def _timed_spin() -> int:
    begin = time.perf_counter_ns()
    _spin()(1000)
    return max(1, time.perf_counter_ns() - begin)


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
    spins = peek(SPINS)
    ctypes.memset(BASE, 0, WORDS * LINE)  # the old locks are left as they are: their state is unknown
    if spins:
        poke(SPINS, spins)
        poke(CALLER_LOCK, new_lock())
    poke(START, _START if count() > 1 else 0)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
