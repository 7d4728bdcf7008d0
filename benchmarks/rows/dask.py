"""Ops on Dask arrays: two worker processes of one thread, against one process of two threads, and Dask's own ops.

The data lie in the memory of those who compute: chunks on the workers, persisted, and an array in this process, which
goes through it in the same chunks.  The size is 8 GB, or what a sixth of the free memory holds.  The last row is
the time of a task beyond the same graph with a NumPy function: tiny chunks, in this thread.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from math import inf
from time import perf_counter
from typing import Any

import numpy as np
import trueno

from benchmarks.compare import Record
from benchmarks.rows import Cell, Plan
from benchmarks.timing import OURS

WHOLE = 8e9
"""Bytes of the array."""
COLUMNS, CHUNK = 4096, 2048
"""Of the array, and rows of a chunk: 32 MB."""
TINY = 2000
"""Chunks of the row about overhead."""
PROCESS, DASK = "one process, two threads", "dask"
CHAIN, CUT, THEIRS, BEYOND = "gelu, softmax, sum", "softmax of cut rows, sum", "exp, sum", "a task beyond Dask's own"


def cells(plan: Plan) -> Iterator[Cell]:
    for name, whom in ((CHAIN, PROCESS), (CHAIN, DASK), (CUT, DASK), (THEIRS, DASK)):
        yield Cell("dask", f"{name} over {whom}", "2 workers", partial(_workers, name, whom, plan))
    yield Cell("dask", BEYOND, f"{TINY} chunks", partial(_beyond, plan))


def missing() -> str:
    """Why nothing can be measured; empty where it can."""
    return "" if find_spec("trueno_dask") and find_spec("distributed") else "pip install 'trueno[dask]'"


def size(quick: bool) -> int:
    """Rows of the array."""
    import psutil

    most = 2e8 if quick else min(WHOLE, psutil.virtual_memory().available / 6)
    return max(4, int(most / (4 * COLUMNS * CHUNK))) * CHUNK


@contextmanager
def cluster() -> Iterator[Any]:
    """A client of two workers of one thread each."""
    from distributed import Client, LocalCluster

    env = {"TRUENO_THREADS": "1"}  # this process has two
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0, env=env) as local,
        Client(local) as client,
    ):
        yield client


def _ours(name: str, x: Any) -> Any:
    if name == THEIRS:
        return trueno.sum(trueno.exp(x), axis=None)
    return trueno.sum(trueno.softmax(trueno.gelu(x) if name == CHAIN else x), axis=None)


def _dasks(name: str, x: Any) -> Any:
    """The same by Dask's own functions, as its users write them."""
    import dask.array as da

    if name == THEIRS:
        return da.exp(x).sum()
    if name == CHAIN:
        x = 0.5 * x * (1 + da.tanh(np.float32(0.7978845608) * (x + np.float32(0.044715) * x**3)))
    e = da.exp(x - x.max(axis=1, keepdims=True))
    return (e / e.sum(axis=1, keepdims=True)).sum()


def _in_process(x: np.ndarray[Any, Any]) -> float:
    return sum(float(_ours(CHAIN, x[i : i + CHUNK])) for i in range(0, len(x), CHUNK))


def _workers(name: str, whom: str, plan: Plan) -> list[Record]:
    if problem := missing():
        return [Record("dask", f"{name} over {whom}", "2 workers", peer=problem)]
    import dask.array as da

    rows = size(plan.quick)
    with cluster() as client:
        columns = COLUMNS // 4 if name == CUT else COLUMNS
        chunks = (CHUNK * COLUMNS // columns if name == CUT else CHUNK, columns)
        x = da.random.default_rng(1).standard_normal((rows, COLUMNS), dtype=np.float32, chunks=chunks).persist()
        ours, theirs = _ours(name, x), _dasks(name, x)
        calls: dict[str, Callable[[], Any]] = {OURS: lambda: client.compute(ours).result()}
        if whom == DASK:
            calls[DASK] = lambda: client.compute(theirs).result()
        else:
            own = np.random.default_rng(1).standard_normal((rows, COLUMNS), dtype=np.float32)
            calls[PROCESS] = partial(_in_process, own)
        results = {who: float(call()) for who, call in calls.items()}  # also compiles
        best, rounds = dict.fromkeys(calls, inf), 2 if plan.quick else 5
        for _ in range(rounds):
            for who, call in calls.items():
                start = perf_counter()
                call()
                best[who] = min(best[who], perf_counter() - start)
    ratio = best[whom] / best[OURS]
    close = whom == PROCESS or abs(results[OURS] - results[DASK]) <= 1e-3 * abs(results[DASK])
    problem = "" if close else f"ours is {results[OURS]}, Dask's {results[DASK]}"
    shown = f"{4e-9 * rows * COLUMNS:.1f} GB"
    return [Record("dask", f"{name} over {whom}", "2 workers", value=ratio, peer=f"{whom}, {shown}", ratios=[ratio],
                   seconds=best, problem=problem)]  # fmt: skip


def _beyond(plan: Plan) -> list[Record]:
    if problem := missing():
        return [Record("dask", BEYOND, f"{TINY} chunks", "s", peer=problem)]
    import dask
    import dask.array as da

    count = TINY // 10 if plan.quick else TINY
    x = da.from_array(np.ones(count * 64, np.float32), chunks=64).persist(scheduler="synchronous")
    arrays = {OURS: trueno.exp(x), DASK: x.map_blocks(np.exp, dtype=np.float32)}
    best = dict.fromkeys(arrays, inf)
    with dask.config.set(scheduler="synchronous"):
        for _ in range(2 if plan.quick else 7):
            for who, y in arrays.items():
                start = perf_counter()
                y.persist()
                best[who] = min(best[who], (perf_counter() - start) / count)
    return [Record("dask", BEYOND, f"{TINY} chunks", "s", best[OURS] - best[DASK], seconds=best)]
