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
args, chunks) and a count of tickets.  Whoever takes a ticket owns that chunk: the region cannot end
before it is done, so the job's words are stable for it; whoever finds none left touches nothing more.
That is why a worker which wakes late, even in the middle of the next region, does no harm, why nobody
waits for workers to report, and why the caller alone always finishes.  Workers never hold the GIL.

Nothing is certain about workers: a busy pool, a nested call, a forked child or a thread that could not
be started only mean that the caller does all chunks itself.
"""

import _thread
import atexit
import ctypes
import logging
import math
import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import llvmlite.binding as llvm
from llvmlite import ir
from numba import int64, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from trueno_simd import jit

__all__ = [
    "acquire_gil", "address_of", "count", "ensure_started", "pack", "parallel_for", "release_gil",
    "set_count", "stop", "unpack", "workers",
]  # fmt: skip

LINE: Final = 128  # bytes between words: Apple's line, and x86's pair of prefetched lines
MOST: Final = 255  # workers that the block has room for
_MASK: Final = 128  # bytes of a CPU mask
SPIN_NS: Final = 30_000  # look for work so long before sleeping; waking costs about as much

# The words.  ENTER is the region's code, and zero while there are no workers; START asks Python for some.
ENTER, START, WORKERS, SPINS, STOP, EXITED = range(6)
BUSY, FUNCTION, ARGS, CHUNKS, TICKETS, LEFT, RESULT, CALLER_SLEEPS, CALLER_LOCK = range(6, 15)
GET_CPU, SET_CPUS, MASKS = range(15, 18)  # zero where the system has no such thing
SLEEPS, LOCK, CPU, THREAD = range(20, 24)  # of worker 0; worker w's are 4·w further on
_WORDS: Final = SLEEPS + 4 * MOST

# Never freed: a worker may look at it while the interpreter goes down.
_block = ctypes.create_string_buffer((_WORDS + 1) * LINE)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_block))
_BASE: Final = -(-ctypes.addressof(_block) // LINE) * LINE
llvm.add_symbol("trueno_pool", _BASE)
_FROM_PYTHON: Final = (
    "PyThread_acquire_lock", "PyThread_release_lock",
    "PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_SetInterrupt",
)  # fmt: skip
for _name in _FROM_PYTHON:
    llvm.add_symbol(_name, ctypes.cast(getattr(ctypes.pythonapi, _name), ctypes.c_void_p).value)

# ---------------------------------------------------------------------------- words, from compiled code

_I64, _I32 = ir.IntType(64), ir.IntType(32)


def _word(builder: Any, index: Any) -> Any:
    """Pointer to a word of the block."""
    module = builder.module
    try:
        block = module.get_global("trueno_pool")
    except KeyError:
        block = ir.GlobalVariable(module, ir.IntType(8), "trueno_pool")
        block.linkage = "external"
    address = builder.add(builder.ptrtoint(block, _I64), builder.mul(index, _I64(LINE)))
    return builder.inttoptr(address, _I64.as_pointer())


@intrinsic
def _get(typing: Any, index: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.load_atomic(_word(builder, values[0]), "seq_cst", 8)

    return int64(int64), code


@intrinsic
def _put(typing: Any, index: Any, value: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        builder.store_atomic(values[1], _word(builder, values[0]), "release", 8)
        return context.get_dummy_value()

    return types.void(int64, int64), code


def _modify(operation: str) -> Any:
    @intrinsic
    def modify(typing: Any, index: Any, value: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return builder.atomic_rmw(operation, _word(builder, values[0]), values[1], "seq_cst")

        return int64(int64, int64), code

    return modify


_swap, _add, _or = _modify("xchg"), _modify("add"), _modify("or")  # each returns the old value


@intrinsic
def _pause(typing: Any) -> Any:
    """Tell the core that this is a spin."""
    machine = platform.machine().lower()

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        if machine in ("x86_64", "amd64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause"), [])
        elif machine in ("aarch64", "arm64"):
            kind = ir.FunctionType(ir.VoidType(), [_I32])
            hint = cgutils.get_or_insert_function(builder.module, kind, "llvm.aarch64.hint")
            builder.call(hint, [_I32(1)])
        return context.get_dummy_value()

    return types.void(), code


def _c_function(name: str, result: Any, *arguments: Any, then: Any = None) -> Any:
    """An intrinsic that calls a C function of CPython; int64 stands for a pointer."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.FunctionType(result, [_I64 for _ in values] + [type_ for type_, _ in arguments])
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        made = builder.call(function, [*values, *(type_(constant) for type_, constant in arguments)])
        return made if result == _I64 else context.get_dummy_value()

    if then is None:

        @intrinsic
        def call(typing: Any) -> Any:
            return (int64 if result == _I64 else types.void)(), code
    else:

        @intrinsic
        def call(typing: Any, pointer: Any) -> Any:
            return types.void(int64), code

    return call


_interrupt = _c_function("PyErr_SetInterrupt", ir.VoidType())  # allowed without the GIL
_lock = _c_function("PyThread_acquire_lock", _I32, (_I32, 1), then=int64)
_unlock = _c_function("PyThread_release_lock", ir.VoidType(), then=int64)
release_gil = _c_function("PyEval_SaveThread", _I64)
acquire_gil = _c_function("PyEval_RestoreThread", ir.VoidType(), then=int64)


# ------------------------------------------------------------------------- functions and tuples as int64


@intrinsic
def address_of(typing: Any, dispatcher: Any) -> Any:
    """Address of a jitted int64(int64, int64): a symbol of the calling code, so it may be cached."""
    return int64(dispatcher), lambda c, b, s, v: _address(c, b, dispatcher, (int64, int64))


def _address(context: Any, builder: Any, dispatcher: Any, arguments: tuple[Any, ...]) -> Any:
    compiled = dispatcher.dispatcher.get_compile_result(int64(*arguments))
    context.active_code_library.add_linking_library(compiled.library)
    function = context.declare_function(builder.module, compiled.fndesc)
    return builder.ptrtoint(function, _I64)


@intrinsic
def _region_address(typing: Any, dispatcher: Any) -> Any:
    return int64(dispatcher), lambda c, b, s, v: _address(c, b, dispatcher, (int64, int64, int64))


def _call(context: Any, builder: Any, address: Any, values: Any) -> Any:
    """Call by Numba's convention, int32 f(int64 *result, i8 **exception, ...); -1 if it raised."""
    text = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(_I32, [_I64.as_pointer(), text.as_pointer()] + [_I64 for _ in values])
    result, exception = cgutils.alloca_once(builder, _I64), cgutils.alloca_once(builder, text)
    function = builder.inttoptr(address, kind.as_pointer())
    status = builder.call(function, [result, exception, *values])
    fine = builder.icmp_signed("==", status, _I32(0))
    return builder.select(fine, builder.load(result), _I64(-1))


@intrinsic
def _call_piece(typing: Any, function: Any, args: Any, i: Any) -> Any:
    return int64(int64, int64, int64), lambda c, b, s, v: _call(c, b, v[0], v[1:])


@intrinsic
def _call_region(typing: Any, enter: Any, function: Any, args: Any, chunks: Any) -> Any:
    return int64(int64, int64, int64, int64), lambda c, b, s, v: _call(c, b, v[0], v[1:])


@intrinsic
def _call_c(typing: Any, function: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.FunctionType(_I32, [])
        result = builder.call(builder.inttoptr(values[0], kind.as_pointer()), [])
        return builder.sext(result, _I64)

    return int64(int64), code


@intrinsic
def _call_set_cpus(typing: Any, function: Any, thread: Any, size: Any, mask: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.FunctionType(_I32, [_I32, _I64, _I64])
        function = builder.inttoptr(values[0], kind.as_pointer())
        result = builder.call(function, [builder.trunc(values[1], _I32), *values[2:]])
        return builder.sext(result, _I64)

    return int64(int64, int64, int64, int64), code


@intrinsic
def pack(typing: Any, values: Any) -> Any:
    """Put a tuple into the calling function's frame and return its address; `unpack` reads it."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        slot = cgutils.alloca_once(builder, arguments[0].type)
        builder.store(arguments[0], slot)
        return builder.ptrtoint(slot, _I64)

    return int64(values), code


def unpack(kind: types.BaseTuple) -> Any:
    """A function load(address) for compiled code that reads back what `pack` stored as `kind`."""

    @intrinsic
    def load(typing: Any, address: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            pointer = context.get_value_type(kind).as_pointer()
            return builder.load(builder.inttoptr(values[0], pointer))

        return kind(int64), code

    return load


# ------------------------------------------------------------------------------------- the compiled pool


@jit.outer
def _serial(function, args, chunks):  # type: ignore[no-untyped-def]
    bits = 0
    for i in range(chunks):
        bits |= _call_piece(function, args, i)
    return bits


@jit.outer
def parallel_for(function, args, chunks):  # type: ignore[no-untyped-def]
    """function(args, i) once for every i in 0 … chunks-1; the results, or'ed together."""
    enter = 0
    if chunks > 1:
        enter = _get(ENTER)
        if enter == 0:
            start = _get(START)
            if start != 0:
                if _call_c(start) == 0:
                    _interrupt()  # ctypes swallowed it: let it be raised once the kernel has returned
                enter = _get(ENTER)
    if enter == 0:
        return _serial(function, args, chunks)
    return _call_region(enter, function, args, chunks)


@jit.outer
def _drain():  # type: ignore[no-untyped-def]
    """Take tickets until none is left."""
    done, bits = 0, 0
    while True:
        left = _add(TICKETS, -1)
        if left <= 0:
            break
        bits |= _call_piece(_get(FUNCTION), _get(ARGS), _get(CHUNKS) - left)
        done += 1
    if done:
        if bits:
            _or(RESULT, bits)
        # From here on the region may be over, and another caller's: hence a swap, not a look.
        if _add(LEFT, -done) == done and _swap(CALLER_SLEEPS, 0) == 1:
            _unlock(_get(CALLER_LOCK))


@jit.outer
def _part(w):  # type: ignore[no-untyped-def]
    """Keep a sleeping worker off the caller's CPU.

    On a busy machine Linux likes to wake a thread where its waker runs.  It then gets its turn when the
    caller's time slice is over, sleeps again, and never leaves: measured, all work on one CPU for seconds.
    """
    if _get(GET_CPU):
        here = _call_c(_get(GET_CPU))
        if here == _get(CPU + 4 * w):
            _call_set_cpus(_get(SET_CPUS), _get(THREAD + 4 * w), _MASK, _get(MASKS) + here * _MASK)


@jit.outer
def _wake(wanted):  # type: ignore[no-untyped-def]
    """See that `wanted` workers are awake.  Who swaps a sleeper's flag to 0 owes it one release."""
    for w in range(_get(WORKERS)):
        if wanted <= 0:
            break
        if _get(SLEEPS + 4 * w) and _swap(SLEEPS + 4 * w, 0) == 1:
            _part(w)
            _unlock(_get(LOCK + 4 * w))
        wanted -= 1


@jit.outer
def _region(function, args, chunks):  # type: ignore[no-untyped-def]
    if _get(BUSY) or _swap(BUSY, 1):
        return _serial(function, args, chunks)  # another thread's region, or a nested call
    _put(FUNCTION, function)
    _put(ARGS, args)
    _put(CHUNKS, chunks)
    _put(RESULT, 0)
    _put(LEFT, chunks)
    _swap(TICKETS, chunks)  # before the flags are read: a worker sets its flag, then looks for tickets
    _wake(chunks - 1)
    _drain()
    spins = _get(SPINS)
    while _get(LEFT) > 0:
        for _ in range(spins):
            if _get(LEFT) <= 0:
                break
            _pause()
        if _get(LEFT) > 0:
            _swap(CALLER_SLEEPS, 1)
            if _get(LEFT) > 0 or _swap(CALLER_SLEEPS, 0) == 0:
                _lock(_get(CALLER_LOCK))
    result = _get(RESULT)
    _put(BUSY, 0)
    return result


def _entry(signature: Any) -> Callable[[Callable[..., Any]], Callable[[], Any]]:
    """Like `jit.entry`, but runs without the GIL, and is made when first asked for: importing is cheap."""

    def later(function: Callable[..., Any]) -> Callable[[], Any]:
        return cache(lambda: njit(signature, nogil=True, cache=True, **jit.FLAGS)(function))

    return later


@_entry(int64(int64))
def _work(w):  # type: ignore[no-untyped-def]
    """A worker's life: look for tickets, for a while eagerly, then asleep."""
    spins = _get(SPINS)
    while _get(STOP) == 0:
        if _get(TICKETS) > 0:
            _drain()
            continue
        for _ in range(spins):
            if _get(TICKETS) > 0 or _get(STOP):
                break
            _pause()
        else:
            if _get(GET_CPU):
                _put(CPU + 4 * w, _call_c(_get(GET_CPU)))
            _swap(SLEEPS + 4 * w, 1)
            if (_get(TICKETS) <= 0 and _get(STOP) == 0) or _swap(SLEEPS + 4 * w, 0) == 0:
                _lock(_get(LOCK + 4 * w))
    return _add(EXITED, 1)


@_entry(int64())
def _enter():  # type: ignore[no-untyped-def]
    return _region_address(_region)


@_entry(int64(int64))
def _spin(times):  # type: ignore[no-untyped-def]
    """The eager part of a worker's life alone, to be timed."""
    for _ in range(times):
        if _get(TICKETS) > 0 or _get(STOP):
            break
        _pause()
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
        _count = _usable_cpus()
    return _count


def set_count(n: int) -> None:
    """Use n threads from the next region on; 1 means none beside the caller."""
    global _count
    if n < 1:
        raise ValueError(f"threads: {n} is less than 1")
    _elsewhere(_stop)
    _count = min(n, MOST + 1)
    _poke(START, _START if _count > 1 else 0)


def workers() -> int:
    """Workers that run now (0 before the first parallel region, and in a new child)."""
    return _peek(WORKERS) if _peek(ENTER) else 0


def ensure_started() -> bool:
    """Start what is missing; False if no worker runs.

    A region does this by itself, in the middle of a kernel; a backend that does it beforehand keeps
    the first large call short.
    """
    if not _peek(ENTER) and count() > 1:
        _elsewhere(_start)
    return _peek(ENTER) != 0


def stop() -> None:
    """Let the workers end; the next region starts new ones."""
    _elsewhere(_stop)


def _elsewhere(task: Callable[[], None]) -> None:
    """Run `task` in a thread of its own and wait: there, no Ctrl-C comes between two of its steps."""
    done, errors = _thread.allocate_lock(), []

    def run() -> None:
        try:
            with _mutex:
                task()
        except BaseException as error:
            errors.append(error)
        finally:
            done.release()

    done.acquire()
    _thread.start_new_thread(run, ())
    done.acquire()
    if errors:
        raise errors[0]


def _start() -> None:
    if _peek(ENTER) or (_peek(STOP) and not _stopped()):
        return
    # Everything is compiled before the first thread runs: a kernel may hold the GIL for long.
    enter, work = _enter()(), _work()

    def live(w: int) -> None:
        _poke(THREAD + 4 * w, threading.get_native_id() if hasattr(threading, "get_native_id") else 0)
        work(w)

    _wake_all()
    if not _peek(SPINS):
        _spin()(1)
        least = min(_timed_spin() for _ in range(3))
        _poke(SPINS, max(1, 1000 * SPIN_NS // least))
    _poke_cpus()
    if not _peek(CALLER_LOCK):
        _poke(CALLER_LOCK, _new_lock())
    for w in range(count() - 1):
        if not _peek(LOCK + 4 * w):
            _poke(LOCK + 4 * w, _new_lock())
        try:
            _thread.start_new_thread(live, (w,))
        except RuntimeError:  # the system gives no more threads; what there is will do
            break
        _poke(WORKERS, w + 1)
    if _peek(WORKERS):
        _poke(ENTER, enter)
    else:
        _poke(START, 0)  # do not ask again at every call; set_count() does


def _stop(timeout: float = 60.0) -> None:
    _poke(ENTER, 0)  # regions under way go on; their callers finish what the workers leave
    _poke(STOP, 1)
    limit = time.monotonic() + timeout
    while not _stopped():
        if time.monotonic() > limit:
            raise RuntimeError("threads: a kernel did not end in time")
        _wake_all()()  # each time: a thread may not yet have begun
        time.sleep(0.0002)


def _stopped() -> bool:
    if _peek(EXITED) < _peek(WORKERS):
        return False
    for word in (WORKERS, EXITED, STOP):
        _poke(word, 0)
    return True


def _timed_spin() -> int:
    begin = time.perf_counter_ns()
    _spin()(1000)
    return max(1, time.perf_counter_ns() - begin)


def _peek(word: int) -> int:
    return ctypes.c_int64.from_address(_BASE + word * LINE).value


def _poke(word: int, value: int) -> None:
    ctypes.c_int64.from_address(_BASE + word * LINE).value = value


def _new_lock() -> int:
    """A taken lock.  CPython's own: it can be waited for without the GIL, and on every platform."""
    allocate = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyThread_allocate_lock", ctypes.pythonapi))
    acquire = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(
        ("PyThread_acquire_lock", ctypes.pythonapi)
    )
    lock = allocate()
    if not lock:
        raise MemoryError("threads: no lock")
    acquire(lock, 1)
    return int(lock)


@ctypes.CFUNCTYPE(ctypes.c_int)
def _start_for_kernel() -> int:
    """1: done what could be done.  0, and also what ctypes answers for an exception: Ctrl-C came."""
    try:
        ensure_started()
    except KeyboardInterrupt:
        return 0
    except Exception:
        _poke(START, 0)
        logging.getLogger("trueno").warning("threads: no workers; kernels go on without", exc_info=True)
    return 1


_START: Final = ctypes.cast(_start_for_kernel, ctypes.c_void_p).value or 0
_poke(START, _START)


@atexit.register
def _at_exit() -> None:
    """Workers leave compiled code while it is still mapped."""
    _poke(START, 0)
    if _mutex.acquire(timeout=1.0):
        try:
            _stop(timeout=1.0)
        except RuntimeError:
            pass  # a daemon thread is still in a kernel; the process ends all the same
        finally:
            _mutex.release()


# ---------------------------------------------------------------- what only some systems have: fork, cgroups


def _after_fork() -> None:
    """The child has none of the workers, and perhaps half a region of a thread that is not there."""
    global _mutex
    _mutex = threading.Lock()
    spins = _peek(SPINS)
    ctypes.memset(_BASE, 0, _WORDS * LINE)  # the old locks are left as they are: nobody knows their state
    if spins:
        _poke(SPINS, spins)
        _poke(CALLER_LOCK, _new_lock())
    _poke(START, _START if count() > 1 else 0)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@cache
def _cpu_masks() -> Any:
    """For each CPU, the mask of all that we may use but that one (where another is left)."""
    allowed = os.sched_getaffinity(0)
    masks = (ctypes.c_ubyte * (_MASK * (max(allowed) + 1)))()
    for cpu in allowed:
        for other in allowed - {cpu} or allowed:
            masks[_MASK * cpu + other // 8] |= 1 << other % 8
    return masks


def _poke_cpus() -> None:
    """Tell `_part` how to ask for and set CPUs, on Linux; elsewhere it does nothing."""
    if not hasattr(os, "sched_getaffinity") or sys.byteorder != "little":
        return
    system = ctypes.CDLL(None)
    names = "sched_getcpu", "sched_setaffinity"
    if max(os.sched_getaffinity(0)) < 8 * _MASK and all(hasattr(system, name) for name in names):
        _poke(MASKS, ctypes.addressof(_cpu_masks()))
        for word, name in zip((SET_CPUS, GET_CPU), reversed(names), strict=True):
            _poke(word, ctypes.cast(getattr(system, name), ctypes.c_void_p).value or 0)


def _usable_cpus() -> int:
    if hasattr(os, "process_cpu_count"):  # 3.13
        found = os.process_cpu_count()
    elif hasattr(os, "sched_getaffinity"):
        found = len(os.sched_getaffinity(0))
    else:
        found = os.cpu_count()
    return max(1, min(found or 1, _quota() or MOST + 1, MOST + 1))


def _quota() -> int | None:
    """CPUs that the control group grants (Linux), rounded up; None if it sets no limit."""
    found = []
    for line in _read("/proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        while controllers == "" or "cpu" in controllers.split(","):
            if controllers == "":  # version 2: one tree, every ancestor's limit holds
                words = _read(f"/sys/fs/cgroup{path.rstrip('/')}/cpu.max").split()
            else:
                where = f"/sys/fs/cgroup/cpu{path.rstrip('/')}/cpu.cfs_"
                words = [_read(f"{where}quota_us").strip(), _read(f"{where}period_us").strip()]
            if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
                found.append(math.ceil(int(words[0]) / int(words[1])))
            if path in ("", "/"):
                break
            path = path.rpartition("/")[0]
    return max(1, min(found)) if found else None


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""
