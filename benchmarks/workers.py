"""What many workers would do: `python -m benchmarks.workers` measures one and two, and simulates up to a thousand.

The model of a reduction over chunks: Dask's scheduler releases one task after the other, a worker that is free takes
next chunk, and a tree merges eight parts at a time, each of which crosses the link.  It has four facts, measured here:
the scheduler's time of a task, a chunk's time on a worker of one thread, the time of a merge, and what a part of a
result takes between two workers.  Then it predicts what two workers take, beside what they took.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from trueno.text import columns, duration

FAN = 8
"""Parts that a merge takes: Dask's `split_every` of our trees."""
COUNTS = (1, 2, 4, 8, 16, 64, 256, 1000)
SLOW = 0.25
"""The speed of one slow worker among fast ones, in the last column."""


@dataclass(frozen=True)
class Facts:
    """Seconds: of the scheduler per task, of a chunk on a worker of speed 1, of a merge, and of a part on the link."""

    task: float
    chunk: float
    merge: float
    link: float


def makespan(chunks: int, speeds: Sequence[float], facts: Facts) -> float:
    """Seconds of a reduction of so many chunks by workers of these speeds."""
    free = [(0.0, i) for i in range(len(speeds))]
    released = 0.0

    def run(ready: float, seconds: float) -> float:
        """The end of a task that may begin when it is ready, released, and a worker free."""
        nonlocal released
        released = max(released, ready) + facts.task
        at, i = heapq.heappop(free)
        end = max(at, released) + seconds / speeds[i]
        heapq.heappush(free, (end, i))
        return end

    ends = sorted(run(0.0, facts.chunk) for _ in range(chunks))
    while len(ends) > 1:
        groups = [ends[i : i + FAN] for i in range(0, len(ends), FAN)]
        ends = sorted(run(max(group) + facts.link, facts.merge) for group in groups)
    return ends[0]


def limit(chunks: int, speeds: Sequence[float], facts: Facts) -> str:
    """What takes most of a reduction's time: the work, shared out evenly, or what it would gain without one cause."""
    whole = makespan(chunks, speeds, facts)
    shares = {
        "the work": chunks * facts.chunk / sum(speeds),
        "the graph": whole - makespan(chunks, speeds, Facts(0.0, facts.chunk, facts.merge, facts.link)),
        "the link": whole - makespan(chunks, speeds, Facts(facts.task, facts.chunk, facts.merge, 0.0)),
        "the slowest": whole - makespan(chunks, [max(speeds)] * len(speeds), facts),
    }
    return max(shares, key=lambda name: shares[name])


def measured(workers: int, chunks: int = 48, rows: int = 2048, columns: int = 2048) -> tuple[Facts, float]:
    """The facts of a cluster of so many processes of one thread here, and the seconds of the reduction."""
    import dask.array as da
    import trueno
    from distributed import Client, LocalCluster

    env = {"TRUENO_THREADS": "1"}
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0", memory_limit=0, env=env) as local,
        Client(local) as client,
    ):
        shape, size = (chunks * rows, columns), (rows, columns)
        x = da.random.default_rng(1).standard_normal(shape, dtype=np.float32, chunks=size).persist()
        whole = trueno.sum(trueno.softmax(trueno.gelu(x)), axis=None)
        seconds = _best(client, whole)
        one = _best(client, trueno.sum(trueno.softmax(trueno.gelu(x[:rows])), axis=None))
        tiny = da.zeros(400, chunks=1).map_blocks(abs, dtype=float)
        task = _best(client, trueno.sum(tiny, axis=None)) / 460
        return Facts(task, max(one - 2 * task, 0.0), task, 1e-3), seconds


def _best(client: Any, array: Any, rounds: int = 5) -> float:
    best = float("inf")
    for _ in range(rounds):
        start = perf_counter()
        client.compute(array).result()
        best = min(best, perf_counter() - start)
    return best


def main() -> None:
    """Measure and print."""
    facts, alone = measured(1)
    chunks = 48
    rows = [("workers", "predicted", "measured"), ("1", duration(makespan(chunks, [1.0], facts)), duration(alone))]
    pair, both = measured(2)
    # two processes on one memory: a chunk takes longer beside another
    shared = Facts(pair.task, pair.chunk, pair.merge, pair.link)
    rows.append(("2", duration(makespan(chunks, [1.0, 1.0], shared)), duration(both)))
    print(f"a task {duration(facts.task)}, a chunk {duration(facts.chunk)}")
    print(*columns(rows), "", sep="\n")
    head = ("workers", "8 chunks each", "of ideal", "limit", "one slow", "limit")
    table = [head]
    for count in COUNTS:
        fast, slow = [1.0] * count, [SLOW, *[1.0] * (count - 1)]
        n = 8 * count
        ideal, seconds = n * facts.chunk / count, makespan(n, fast, facts)
        table.append((f"{count}", duration(seconds), f"{ideal / seconds:.0%}", limit(n, fast, facts),
                      duration(makespan(n, slow, facts)), limit(n, slow, facts)))  # fmt: skip
    print(*columns(table), sep="\n")


if __name__ == "__main__":
    main()
