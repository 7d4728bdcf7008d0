"""Locks and forks: a child of a fork finds every lock of the core free, whichever thread held it in the parent."""

import ast
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trueno
from trueno.locks import ForkSafeLock

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")

START = """
import os, signal, sys, threading, time, warnings
from contextlib import contextmanager
import numpy as np
import trueno
from trueno.aio import threads
from trueno.discovery import index, registry
from trueno.dispatch import state, watch
from trueno.events import counters, stream
from trueno import hooks, locks
from trueno.probing import process

warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads

@contextmanager
def held(locks):
    '''Another thread holds them.'''
    def hold():
        for lock in locks:
            lock.acquire()
        ready.set()
        done.wait(60)
        for lock in locks:
            lock.release()
    ready, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=hold)
    thread.start()
    assert ready.wait(60)
    try:
        yield
    finally:
        done.set()
        thread.join()

def child(work):
    '''How a child ended that did this. Its hooks of forks run before anything of its own, so the limit is set here.'''
    pid = os.fork()
    if not pid:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
        finally:
            os._exit(1)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "it waited for ever"
"""

ALL = """
entries = [entry._lock for entry in registry.entries().values()]
kernel = watch._one_by_one(lambda *args: 0, "reference", False)
kernel()  # which makes the lock of this device
every = {
    "index": index._scanning, "registry": registry._lock, "probing": process._lock, "threads": threads._lock,
    "stream": stream._lock, "counters": counters._lock, "hooks": hooks._lock, "state": state._lock,
    "watch": watch._locks["reference"], **{f"entry {i}": lock for i, lock in enumerate(entries)},
}
assert all(isinstance(lock, locks.ForkSafeLock) for lock in every.values()), every

def work():
    taken = {name: lock.acquire(timeout=5) for name, lock in every.items()}
    assert all(taken.values()), taken
    for lock in every.values():
        lock.release()
    with trueno.trace() as trace, trueno.use("reference"):
        assert trueno.add(np.ones(3), 1.0).tolist() == [2.0] * 3
    assert len(trace.events) and trueno.stats().decisions and threads.submit(kernel).result(20) == 0
    index.points(refresh=True)
    hooks.forget()

with held(every.values()):
    assert child(work) == 0
"""

INSIDE = """
lock = locks.ForkSafeLock()

def free():
    took = []
    thread = threading.Thread(target=lambda: took.append(lock.acquire(timeout=0.1)))
    thread.start()
    thread.join()
    return took == [True]

def leave():
    assert not free()
    lock.release()  # as the end of its `with` does
    assert free()

with lock:
    assert child(leave) == 0
assert free()
"""

LOST = """
entry = next(iter(registry.entries().values()))
entry.active = True
type(entry).kind = "gpu"  # as if it had been in use: a child drops it, and every plan
with held([state._lock, stream._lock, counters._lock, registry._lock]):
    assert child(lambda: None) == 0
"""


def works(code):
    done = subprocess.run([sys.executable, "-c", START + code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and not done.stderr, done.stderr


@needs_fork
def test_a_child_takes_every_lock_that_another_thread_held():
    works(ALL)


@needs_fork
def test_hooks_of_forks_find_every_lock_free():
    works(LOST)


@needs_fork
def test_the_thread_that_forks_goes_on_holding_a_lock():
    works(INSIDE)


def test_it_is_a_reentrant_lock():
    lock = ForkSafeLock()
    taken = []
    thread = threading.Thread(target=lambda: taken.append(lock.acquire(blocking=False)))
    with lock, lock:
        thread.start()
        thread.join()
    assert taken == [False]
    thread = threading.Thread(target=lambda: taken.append(lock.acquire(blocking=False)))
    thread.start()
    thread.join()
    assert taken == [False, True]


def test_modules_have_no_locks_of_another_kind():
    """`firstuse` has two that a fork takes itself, and keeps."""
    package = Path(trueno.__file__).parent
    others = []
    for path in package.rglob("*.py"):
        for line in ast.parse(path.read_text("utf-8")).body:
            value = line.value if isinstance(line, ast.Assign | ast.AnnAssign) else None
            if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in ("Lock", "RLock"):
                others.append((path.relative_to(package).as_posix(), ast.unparse(line)))
    assert sorted(others) == [("firstuse.py", "_gate = RLock()"), ("firstuse.py", "_waiting = RLock()")]
