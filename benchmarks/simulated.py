"""`python -m benchmarks.simulated`: what `trueno_dask.simulate` predicts beside what clusters on this machine take.

Clusters of 1, 2, 4 and 8 workers, one thread each, run the graphs of the rows `dask` on smaller arrays, and one of tiny
chunks, which only the scheduler limits.  Costs of tasks are measured in this process; costs of the scheduler, of
a worker's task and of the link on tiny tasks and on copies, none of which is in the graphs that are compared.  Workers
and scheduler share this machine's cores, which the simulation knows; that they share its memory, it does not.  Every
run waits for a quiet machine; the last column says how much of it others used in the fastest run, and the simulation
has the rest.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import trueno
from trueno.text import columns, duration, number

from benchmarks.machine import cores, load, named
from benchmarks.rows import dask as rows

WORKERS = (1, 2, 4, 8)
TINY = "tiny chunks: exp"
FEW, MANY = 500, 2000
"""Tiny tasks of two graphs: the difference is what a task costs."""
QUIET = 0.05
"""The share of the machine up to which others do not disturb."""
COPIED = 64 << 20
"""Bytes of the array that is copied from one worker to another."""


@dataclass(frozen=True)
class Line:
    """A graph on a cluster: what it took, the fastest of some runs, and the simulation.

    others: the share of the machine that other processes used meanwhile.
    """

    graph: str
    workers: int
    tasks: int
    measured: float
    simulated: float
    bound: str
    others: float


@contextmanager
def cluster(count: int) -> Iterator[Any]:
    """A client of workers of one thread each."""
    from distributed import Client, LocalCluster

    env = {"TRUENO_THREADS": "1"}
    with (
        LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=":0", memory_limit=0, env=env) as local,
        Client(local) as client,
    ):
        client.wait_for_workers(count, timeout=120)
        yield client


class Others:
    """How much of this machine other processes than ours use."""

    def __init__(self) -> None:
        self.own, self.all, self.time = _own(), _busy(), time.perf_counter()

    def share(self) -> float:
        """The part of all cores that they used since this was made."""
        elapsed = max(1e-6, time.perf_counter() - self.time)
        return max(0.0, (_busy() - self.all) - (_own() - self.own)) / (elapsed * cores())


def _busy() -> float:
    """Seconds in which CPUs were busy, or stolen."""
    import psutil

    t = psutil.cpu_times()
    return float(sum(t) - t.idle - getattr(t, "iowait", 0.0))


def _own() -> float:
    """Those of this process and its children."""
    import psutil

    here = psutil.Process()
    times = [p.cpu_times() for p in (here, *here.children(recursive=True))]
    return float(sum(t.user + t.system for t in times))


def quiet(patience: float) -> None:
    """Wait until others leave the machine alone for half a second, but no longer than `patience` seconds."""
    end = time.perf_counter() + patience
    while time.perf_counter() < end:
        others = Others()
        time.sleep(0.5)
        if others.share() < QUIET:
            return


def best(call: Callable[[], Any], rounds: int, patience: float = 0.0) -> tuple[float, float]:
    """The least seconds of a call, and which share of the machine others used meanwhile."""
    results = []
    for _ in range(rounds):
        quiet(patience)
        others, start = Others(), time.perf_counter()
        call()
        results.append((time.perf_counter() - start, others.share()))
    return min(results)


# ---- what a cluster costs beside its tasks -------------------------------------------------------------------------


def now(block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """When a task ran."""
    return np.full(block.shape, time.time())


def _tiny(client: Any, count: int) -> tuple[float, float, float]:
    """Seconds until the first task of a graph, and CPU seconds of this process and of the worker for all of them."""
    import dask.array as da

    x = da.zeros(count, dtype=float, chunks=1).map_blocks(now, dtype=float).min()
    (worker,) = client.run(time.process_time).values()
    own, start = time.process_time(), time.time()
    first = float(client.compute(x).result())
    own = time.process_time() - own
    (after,) = client.run(time.process_time).values()
    return first - start, own, after - worker


def overheads(client: Any, rounds: int, patience: float) -> tuple[Any, float]:
    """The scheduler's costs, and a worker's per task, from graphs of tiny tasks on one worker."""
    import trueno_dask

    def runs(count: int) -> list[float]:
        times = []
        for _ in range(rounds):
            quiet(patience)
            times.append(_tiny(client, count))
        return [min(part) for part in zip(*times, strict=True)]

    _tiny(client, FEW)
    few, many = runs(FEW), runs(MANY)
    tasks = (MANY - FEW) * 8 / 7  # with those of the tree that merges eight at a time
    first, own, worker = (max(0.0, b - a) / tasks for a, b in zip(few, many, strict=True))
    start = max(0.0, few[0] - first * FEW * 8 / 7)
    return trueno_dask.Scheduler(max(0.0, own - first), first, start, beside=True), worker


def _same(x: Any) -> int:
    return len(x)


def link(client: Any, rounds: int) -> Any:
    """The link between two workers: a small and a large array are copied."""
    import trueno_dask

    a, b = client.scheduler_info()["workers"]
    seconds = []
    for size in (8, COPIED):
        least = float("inf")
        for _ in range(rounds):
            x = client.submit(np.zeros, size // 8, workers=[a], pure=False)
            x.result()
            least = min(least, best(lambda x=x: client.submit(_same, x, workers=[b], pure=False).result(), 1)[0])
        here = best(lambda x=x: client.submit(_same, x, workers=[a], pure=False).result(), rounds)[0]
        seconds.append(max(1e-6, least - here))
    return trueno_dask.Link(COPIED / max(1e-9, seconds[1] - seconds[0]), seconds[0] / 2)


# ---- graphs --------------------------------------------------------------------------------------------------------


def graphs(nbytes: float) -> dict[str, tuple[Any, Callable[[Any], Any]]]:
    """For each graph the array that is persisted, and what is computed of it."""
    import dask.array as da

    length = max(4, int(nbytes / (4 * rows.COLUMNS * rows.CHUNK)))
    rng = da.random.default_rng(1)
    whole = rng.standard_normal((length * rows.CHUNK, rows.COLUMNS), dtype=np.float32, chunks=(rows.CHUNK, -1))
    cut = rng.standard_normal(
        (length * rows.CHUNK, rows.COLUMNS), dtype=np.float32, chunks=(rows.CHUNK, rows.COLUMNS // 4)
    )
    tiny = da.zeros(500, dtype=np.float32, chunks=1)
    return {
        rows.CHAIN: (whole, partial(rows._ours, rows.CHAIN)),
        rows.CUT: (cut, partial(rows._ours, rows.CUT)),
        rows.THEIRS: (whole, partial(rows._ours, rows.THEIRS)),
        TINY: (tiny, lambda x: trueno.sum(trueno.exp(x), axis=None)),
    }


def compared(count: int, facts: tuple[Any, Any, float], nbytes: float, rounds: int, patience: float) -> Iterator[Line]:
    """Every graph on a cluster of so many workers."""
    import trueno_dask
    from distributed import wait

    scheduler, network, task_s = facts
    with cluster(count) as client:
        for name, (x, ours) in graphs(nbytes).items():
            x = x.persist()
            wait(x)
            lazy = ours(x)
            client.compute(lazy).result()  # also compiles
            few = min(rounds, 5) if name == TINY else rounds
            measured, others = best(lambda lazy=lazy: client.compute(lazy).result(), few, patience)
            quiet(patience)
            costs = trueno_dask.measure(lazy, repeat=rounds)
            workers = trueno_dask.Workers(count, task_s=task_s, cores=cores() * max(0.1, 1 - others))
            predicted = trueno_dask.simulate(lazy, workers, link=network, scheduler=scheduler, costs=costs)
            yield Line(name, count, predicted.tasks, measured, predicted.makespan, predicted.bound, others)


def table(lines: list[Line]) -> str:
    """The comparison, a row per graph and cluster."""
    head = ("graph", "workers", "tasks", "measured", "simulated", "ratio", "limited by", "others")
    body = [
        (x.graph, str(x.workers), number(x.tasks), duration(x.measured), duration(x.simulated),
         f"{x.simulated / x.measured:.2f}", x.bound, f"{x.others:.0%}")
        for x in sorted(lines, key=lambda x: (x.graph, x.workers))
    ]  # fmt: skip
    return "\n".join(columns([head, *body], right=(1, 2, 3, 4, 5, 7)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=1000, help="of the array")
    parser.add_argument("--workers", default=",".join(map(str, WORKERS)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--patience", type=float, default=10, help="seconds to wait for a quiet machine, per run")
    parser.add_argument("--quick", action="store_true", help="small arrays, two rounds")
    arguments = parser.parse_args()
    os.environ["TRUENO_THREADS"] = "1"
    rounds, nbytes = (2, 2e8) if arguments.quick else (arguments.rounds, arguments.megabytes * 1e6)
    with cluster(1) as client:
        scheduler, task_s = overheads(client, min(rounds, 3), arguments.patience)
    with cluster(2) as client:
        network = link(client, rounds)
    print(f"{named()}, {cores()} cores, {load()} processes ready to run")
    graph = f"{duration(scheduler.start_s)} per graph and {duration(scheduler.graph_s)} per task of it before the first"
    print(f"scheduler {duration(scheduler.task_s)} per task, {graph}; worker {duration(task_s)} per task")
    print(f"link {network.bandwidth / 1e9:.2f} GB/s, latency {duration(network.latency)}", flush=True)
    lines = []
    for count in map(int, arguments.workers.split(",")):
        for line in compared(count, (scheduler, network, task_s), nbytes, rounds, arguments.patience):
            lines.append(line)
            print(f"  {line}", flush=True)
    print(table(lines))


if __name__ == "__main__":
    main()
