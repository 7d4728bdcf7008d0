"""Forks while threads compute, from the main thread and from others: every child computes right and ends."""

import os
import signal
import threading
import time
import traceback
import warnings
from contextvars import copy_context

import numpy as np
import trueno

from .attack import Tally
from .known import known

BACKENDS = ("simd", "scalar", "reference")
LIMIT = 300.0
THREADS = 4
PATIENCE = 60.0


def case(rng: np.random.Generator, backend: str, tally: Tally) -> None:
    """Children are forked by all threads at once, each of them computing between; some fork again."""
    with trueno.use(backend, "reference"):
        for work in known(rng).values():
            work()
    errors: list[str] = []
    forks = int(rng.integers(2, 6))
    seeds = [int(s) for s in rng.integers(0, 1 << 30, THREADS)]

    def run(seed: int) -> None:
        own = np.random.default_rng(seed)
        try:
            with trueno.use(backend, "reference"):
                for _ in range(forks):
                    _compute(own, 6)
                    if said := _fork(own):
                        errors.append(said)
        except BaseException:
            errors.append(traceback.format_exc())

    threads = [threading.Thread(target=run, args=(seed,)) for seed in seeds]
    for thread in threads:
        thread.start()
    with trueno.use(backend, "reference"):
        while any(thread.is_alive() for thread in threads):
            _compute(rng, 6)
    tally.states, tally.calls = THREADS * forks, 12 * THREADS * forks
    assert not errors, errors[0]


def _compute(own: np.random.Generator, count: int) -> None:
    works = list(known(own, large=True).values())
    for k in own.integers(0, len(works), count):
        works[k]()


def _fork(own: np.random.Generator, deep: bool = True) -> str:
    """Fork a child that computes and ends; what went wrong in it, or nothing."""
    seed, again = int(own.integers(1 << 30)), deep and own.random() < 0.3
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of newer Pythons: there are threads
        child = os.fork()
    if child == 0:
        code = 1
        os.dup2(writing, 2)  # for faulthandler
        try:
            mine = np.random.default_rng(seed)
            _compute(mine, 6)
            if again and (said := _fork(mine, False)):
                raise AssertionError(said)
            thread = threading.Thread(target=copy_context().run, args=(_compute, mine, 3))
            thread.start()
            thread.join()
            code = 0
        except BaseException:
            os.write(2, traceback.format_exc()[-3000:].encode())
        finally:
            os._exit(code)
    os.close(writing)
    try:
        return _waited(child, reading)
    finally:
        os.close(reading)


def _waited(child: int, reading: int) -> str:
    stop = time.monotonic() + PATIENCE
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > stop:
            os.kill(child, signal.SIGABRT)  # faulthandler says where
            time.sleep(1)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return f"a child hangs for {PATIENCE} s: {os.read(reading, 5000).decode()}"
        time.sleep(0.005)
    code = os.waitstatus_to_exitcode(status)
    return "" if code == 0 else f"a child ended with {code}: {os.read(reading, 5000).decode()}"
