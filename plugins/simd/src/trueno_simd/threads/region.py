"""A parallel region, compiled: a job, its tickets, and the life of a worker.

All state is one block of words that compiled code finds under the symbol `trueno_pool` (`trueno_simd.threads.words`),
so cached kernels hold no address.  A region is a job (function, args, chunks) whose chunks are dealt out in order, a
share to each participant: the caller and the first workers.  A share is a count of tickets, and one that has no more of
its own takes those of others.  So in call after call a core has the same part of the operands, which its cache holds:
where the first to come took the first chunk, `mul` of 100 000 elements took up to 1.2 times as long.  Results do not
depend on who ran what, for chunks are cut without regard to the number of threads (docs/adr/0003).

A thread taking a ticket owns that chunk: the region cannot end before it is done, so the job's words are stable for it;
one that finds none left touches nothing more.  That is why a worker which wakes late, even in the middle of the next
region, does no harm, why no thread waits for workers to report, and why the caller alone always finishes.  Workers
never hold the GIL.

Kernels take `parallel_for` from `trueno_simd.threads.pool`, which also sees to it that there are workers.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final

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
from trueno_simd.llvm.jit import inner, outer
from trueno_simd.threads.words import (
    ARGS,
    BUSY,
    CALLER_LOCK,
    CALLER_SLEEPS,
    CHUNKS,
    CPU,
    EACH,
    ENTER,
    EXITED,
    FIRST,
    FOREGONE,
    FUNCTION,
    GET_CPU,
    LAST,
    LEFT,
    LINE,
    LOCK,
    MASK,
    MASKS,
    MOST,
    RESULT,
    SET_CPUS,
    SHARES,
    SLEEPS,
    SPIN_TICKS,
    SPINS,
    START,
    STOP,
    THREAD,
    TICKETS,
    WAKE_TICKS,
    WORKERS,
    add,
    get,
    or_,
    pause,
    put,
    swap,
    ticks,
)

WAKE_NS: Final = 60_000
"""Work, on one thread, from which on a region wakes sleeping workers.

Waking one takes 10 µs of the caller's time after a short sleep and 20 µs after 10 ms, and the worker comes 15 to 30 µs
later.  Measured on two cores: of calls that take 35 µs alone some gain and some lose, of 75 µs most gain.
"""
ALWAYS: Final = 1 << 62
"""Work of a region that wakes workers in any case."""


@outer
def _serial(function, args, chunks):  # type: ignore[no-untyped-def]
    bits = 0
    for i in range(chunks):
        bits |= call_piece(function, args, i)
    return bits


@outer
def parallel_for(function, args, chunks, work=ALWAYS):  # type: ignore[no-untyped-def]
    """function(args, i) once for every i in 0 … chunks-1; the results, or'ed together.

    work: about what one thread needs for it, in nanoseconds; a region of little work wakes no workers at first.
    """
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
    return call_region(enter, function, args, chunks, work)


@inner
def _begin(share):  # type: ignore[no-untyped-def]
    """The first chunk of a share: chunks are dealt out evenly, in order."""
    return get(FIRST) + share * get(CHUNKS) // get(SHARES)


@outer
def _drain(me):  # type: ignore[no-untyped-def]
    """Take the tickets of one's own share, then those that other participants have left."""
    done, bits = 0, 0
    share, shares = me, get(SHARES)
    for _ in range(shares):
        if share >= shares:
            share = 0
        tickets, end = TICKETS + LINE * share, -1
        while get(tickets) > 0:
            left = add(tickets, -1)
            if left <= 0:
                break
            if end < 0:  # the ticket is ours, so from here on the job's words hold still, and are its region's
                end = _begin(share + 1)
            bits |= call_piece(get(FUNCTION), get(ARGS), end - left)
            done += 1
        share += 1
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
        if here == get(CPU + EACH * w):
            call_set_cpus(get(SET_CPUS), get(THREAD + EACH * w), MASK, get(MASKS) + here * MASK)


@outer
def _wake(wanted):  # type: ignore[no-untyped-def]
    """See that `wanted` workers are awake.  The thread that swaps a sleeper's flag to 0 owes it one release."""
    for w in range(min(wanted, get(WORKERS))):
        if get(SLEEPS + EACH * w) and swap(SLEEPS + EACH * w, 0) == 1:
            _part(w)
            unlock(get(LOCK + EACH * w))


@inner
def _asleep(wanted):  # type: ignore[no-untyped-def]
    """How many of the first `wanted` workers sleep."""
    asleep = 0
    for w in range(wanted):
        asleep += get(SLEEPS + EACH * w)
    return asleep


@outer
def _alone(function, args, chunks):  # type: ignore[no-untyped-def]
    """Begin a region of little work without the workers, who sleep: the results or'ed, and how many chunks are done.

    Chunks are left where they take longer than was said, and so pay for waking.  Regions that follow one another so
    closely that a worker would have stayed awake between them add up their time; the one that comes to the time that
    pays wakes the workers, for the next.
    """
    begin, limit = ticks(), get(WAKE_TICKS)
    foregone = get(FOREGONE) if begin - get(LAST) <= get(SPIN_TICKS) else 0
    bits, done, end = 0, 0, begin
    while done < chunks:
        bits |= call_piece(function, args, done)
        done += 1
        end = ticks()
        if (end - begin) * (chunks - done) > limit * done:
            break
    foregone += end - begin
    if foregone >= limit:
        _wake(min(chunks - 1, get(WORKERS)))
        foregone = 0
    put(FOREGONE, foregone)
    put(LAST, end)
    return bits, done


@outer
def _region(function, args, chunks, work):  # type: ignore[no-untyped-def]
    if get(BUSY) or swap(BUSY, 1):
        return _serial(function, args, chunks)  # another thread's region, or a nested call
    asleep = _asleep(min(chunks - 1, get(WORKERS)))
    bits, first = 0, 0
    if work < WAKE_NS and asleep == min(chunks - 1, get(WORKERS)):
        bits, first = _alone(function, args, chunks)
        chunks -= first
        if chunks == 0:
            put(BUSY, 0)
            return bits
    shares = min(chunks, get(WORKERS) + 1)
    put(FUNCTION, function)
    put(ARGS, args)
    put(FIRST, first)
    put(CHUNKS, chunks)
    put(RESULT, bits)
    put(LEFT, chunks)
    put(SHARES, shares)
    for share in range(shares):  # before the flags are read again: a worker sets its flag, then looks for tickets
        swap(TICKETS + LINE * share, _begin(share + 1) - _begin(share))
    if work >= WAKE_NS or first > 0:
        _wake(shares - 1)
    _drain(0)
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
    spins, mine = get(SPINS), TICKETS + LINE * (1 + w)
    while get(STOP) == 0:
        _drain(1 + w)
        for _ in range(spins):
            if get(mine) > 0 or get(STOP):
                break
            pause()
        else:
            if get(GET_CPU):
                put(CPU + EACH * w, call_c(get(GET_CPU)))
            swap(SLEEPS + EACH * w, 1)
            if (get(mine) <= 0 and get(STOP) == 0) or swap(SLEEPS + EACH * w, 0) == 0:
                lock(get(LOCK + EACH * w))
    return add(EXITED, 1)


@_pool_entry(int64())
def enter():  # type: ignore[no-untyped-def]
    return region_address(_region)


@_pool_entry(int64(int64))
def spin(times):  # type: ignore[no-untyped-def]
    """The eager part of a worker's life alone, to be timed: the ticks that it takes."""
    before = ticks()
    for _ in range(times):
        if get(TICKETS + LINE) > 0 or get(STOP):
            break
        pause()
    return ticks() - before


@_pool_entry(int64())
def wake_all():  # type: ignore[no-untyped-def]
    _wake(MOST)
    return 0
