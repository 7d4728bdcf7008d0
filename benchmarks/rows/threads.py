"""Eight threads that call small ops, each under its own changing `use()`: right results, and what a call takes.

The path of a call has no lock (a test looks for that); what eight threads lose against one, they lose to the
interpreter's, which every kernel gives up and takes again.
"""

from collections.abc import Iterator
from functools import partial
from threading import Barrier, Thread
from time import perf_counter

import numpy as np
import trueno

from benchmarks.compare import Record
from benchmarks.rows import Cell, Plan

THREADS = 8
CALLS = 50  # under one `use()`
BACKENDS = ("simd", "scalar", "reference")


def cells(plan: Plan) -> Iterator[Cell]:
    yield Cell("threads", "8 threads", "64", partial(_eight, plan))


def _work(seed: int, rounds: int, wrong: list[str], start: Barrier | None = None) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((2, 64)).astype(np.float32)
    out, total = np.empty_like(x), x + y
    if start is not None:
        start.wait()
    for k in range(rounds):
        name = BACKENDS[(seed + k) % len(BACKENDS)]
        with trueno.use(name):
            for _ in range(CALLS):
                trueno.add(x, y, out=out)
        if not np.array_equal(out, total):
            wrong.append(f"thread {seed}, round {k}, on {name}")


def _seconds(threads: int, rounds: int, wrong: list[str]) -> float:
    start = Barrier(threads + 1)
    running = [Thread(target=_work, args=(i, rounds, wrong, start)) for i in range(threads)]
    for thread in running:
        thread.start()
    start.wait()
    before = perf_counter()
    for thread in running:
        thread.join()
    return (perf_counter() - before) / (threads * rounds * CALLS)


def _eight(plan: Plan) -> list[Record]:
    rounds, wrong = 30 if plan.quick else 150, list[str]()
    _work(0, len(BACKENDS), wrong)  # plans are made
    pairs = [(_seconds(1, THREADS * rounds, wrong), _seconds(THREADS, rounds, wrong)) for _ in range(5)]
    one, eight = (min(p[i] for p in pairs) for i in (0, 1))
    problem = f"wrong results: {'; '.join(wrong[:3])}" if wrong else ""
    return [Record("threads", "8 threads", "64", "s", eight, seconds={"one": one, "eight": eight}, problem=problem)]
