"""A parallel region, compiled: a job, its tickets, and the life of a worker.

All state is one block of words that compiled code finds under the symbol `trueno_pool` (`trueno_simd.threads.words`),
so cached kernels hold no address.  A region is a job (function, args, chunks) and a count of tickets.  A thread taking
a ticket owns that chunk: the region cannot end before it is done, so the job's words are stable for it; one that finds
none left touches nothing more.  That is why a worker which wakes late, even in the middle of the next region, does no
harm, why no thread waits for workers to report, and why the caller alone always finishes.  Workers never hold the GIL.

Kernels take `parallel_for` from `trueno_simd.threads.pool`, which also sees to it that there are workers.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from numba import int64

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.llvm.calls import (
    call_c,
    call_piece,
    call_region,
    call_set_cpus,
    interrupt,
    lock,
    region_address,
    unlock,
)
from trueno_simd.llvm.jit import outer
from trueno_simd.threads.words import (
    ARGS,
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
    WORKERS,
    add,
    get,
    or_,
    pause,
    put,
    swap,
)


@outer
def _serial(function, args, chunks):  # type: ignore[no-untyped-def]
    bits = 0
    for i in range(chunks):
        bits |= call_piece(function, args, i)
    return bits


@outer
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


@outer
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


@outer
def _part(w):  # type: ignore[no-untyped-def]
    """Keep a sleeping worker off the caller's CPU.

    On a busy machine Linux likes to wake a thread where its waker runs.  It then gets its turn when the
    caller's time slice is over, sleeps again, and never leaves: measured, all work on one CPU for seconds.
    """
    if get(GET_CPU):
        here = call_c(get(GET_CPU))
        if here == get(CPU + 4 * w):
            call_set_cpus(get(SET_CPUS), get(THREAD + 4 * w), MASK, get(MASKS) + here * MASK)


@outer
def _wake(wanted):  # type: ignore[no-untyped-def]
    """See that `wanted` workers are awake.  The thread that swaps a sleeper's flag to 0 owes it one release."""
    for w in range(get(WORKERS)):
        if wanted <= 0:
            break
        if get(SLEEPS + 4 * w) and swap(SLEEPS + 4 * w, 0) == 1:
            _part(w)
            unlock(get(LOCK + 4 * w))
        wanted -= 1


@outer
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


def _pool_entry(signature: Any) -> Callable[[Callable[..., Any]], Callable[[], Any]]:
    """Like `kernel_entry`, but runs without the GIL, and is made when first asked for: importing is cheap."""

    def later(function: Callable[..., Any]) -> Callable[[], Any]:
        return cache(lambda: kernel_entry(signature, nogil=True)(function))

    return later


@_pool_entry(int64(int64))
def work(w):  # type: ignore[no-untyped-def]
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


@_pool_entry(int64())
def enter():  # type: ignore[no-untyped-def]
    return region_address(_region)


@_pool_entry(int64(int64))
def spin(times):  # type: ignore[no-untyped-def]
    """The eager part of a worker's life alone, to be timed."""
    for _ in range(times):
        if get(TICKETS) > 0 or get(STOP):
            break
        pause()
    return times


@_pool_entry(int64())
def wake_all():  # type: ignore[no-untyped-def]
    _wake(MOST)
    return 0
