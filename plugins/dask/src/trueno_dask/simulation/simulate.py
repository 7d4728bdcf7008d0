"""A graph on a cluster of paper, and what decides its time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import dask.array as da
from trueno.errors import ParameterError
from trueno.showing import Shown
from trueno.text import columns, duration, number, size

from trueno_dask.simulation.cluster import Cost, Link, Scheduler, Work, Workers
from trueno_dask.simulation.engine import Run
from trueno_dask.simulation.graphs import Tasks, lazy, measure, written

BOUNDS = ("compute", "slowest worker", "link", "scheduler")


@dataclass(frozen=True, slots=True, repr=False)
class Simulated(Shown):
    """What a graph takes on a cluster; all times in seconds; `print` it for a table.

    makespan: from the call to the result.  path: the makespan's parts, of the chain of events that decides it: tasks at
    the speed of the fastest workers; what slower workers add, and waiting until an idle one takes a task; transfers and
    messages; the scheduler.  bound: the largest part.  tasks, seconds: of the graph, at speed 1.  critical_path: of
    tasks alone, on the fastest worker.  groups: the workers.  busy: the share of the makespan in which the threads of
    each group compute.  scheduler: the share in which it is busy.  link: that of the busiest end of a link.  moved:
    bytes between workers.  taken: tasks that idle workers took from full ones.
    """

    makespan: float
    path: dict[str, float]
    tasks: int
    seconds: float
    critical_path: float
    groups: tuple[Workers, ...]
    busy: tuple[float, ...]
    scheduler: float
    link: float
    moved: float
    taken: int

    @property
    def bound(self) -> str:
        """What limits it: compute, slowest worker, link or scheduler."""
        return max(BOUNDS, key=self.path.__getitem__)

    def json(self) -> dict[str, Any]:
        """As data that JSON can hold."""
        skipped = ("groups", "path")
        values = {name: getattr(self, name) for name in self.__slots__ if name not in skipped}
        return {**values, "bound": self.bound, "path": dict(self.path), "workers": [g.count for g in self.groups]}

    def __str__(self) -> str:
        count = sum(g.count for g in self.groups)
        workers = f"{number(count)} worker{'s' * (count != 1)}"
        head = ("limited by", "on the path", "share", "busy")
        whole = self.makespan or 1.0
        shares = {"link": f"{self.link:.0%} at its busiest end", "scheduler": f"{self.scheduler:.0%}"}
        rows = [(b, duration(self.path[b]), f"{self.path[b] / whole:.0%}", shares.get(b, "")) for b in BOUNDS]
        names = [f"{number(g.count)} of speed {g.speed:g}" for g in self.groups]
        rows += [(name, "", "", f"{share:.0%}") for name, share in zip(names, self.busy, strict=True)]
        facts = [f"critical path {duration(self.critical_path)}", f"tasks {duration(self.seconds)}",
                 f"moved {size(round(self.moved))}", f"taken {number(self.taken)}"]  # fmt: skip
        title = f"{number(self.tasks)} tasks on {workers}: {duration(self.makespan)}, limited by: {self.bound}"
        return "\n".join([title, *columns([head, *rows], right=(1, 2)), "; ".join(facts)])


def simulate(
    work: da.Array | Mapping[Any, Work], workers: Workers | Iterable[Workers], *, link: Link | None = None,
    scheduler: Scheduler | None = None, costs: Mapping[str, Cost] | None = None,
) -> Simulated:  # fmt: skip
    """What a graph takes on a cluster that need not be here, and what limits it; nothing runs but what is measured.

    work: a lazy Dask array, whose tasks are those that Dask would run; or `{key: Work(…)}`.  workers: one group, or
    several.  link, scheduler: by default they take no time.  costs: of an array's kinds of tasks, by default those of
    `measure(work)`.  In a process the same arguments give the same result.  Memory, and threads that share Python, are
    not modelled.
    ParameterError for a graph that cannot run, for a kind without a cost, and for values out of range.
    """
    groups = (workers,) if isinstance(workers, Workers) else _several(workers)
    link, scheduler = link or Link(), scheduler or Scheduler()
    for name, value, kind in (("link", link, Link), ("scheduler", scheduler, Scheduler)):
        if not isinstance(value, kind):
            raise ParameterError(f"simulate: {name} is {value!r}; give trueno_dask.{kind.__name__}(…)")
    if scheduler.beside and all(g.cores is None for g in groups):
        raise ParameterError("simulate: Scheduler.beside is True, but no Workers have cores; give Workers(cores=…)")
    if isinstance(work, da.Array):
        tasks = lazy(work, measure(work) if costs is None else costs)
    elif isinstance(work, Mapping):
        if costs is not None:
            raise ParameterError("simulate: costs are for a Dask array, but each Work states its seconds; omit costs")
        tasks = written(work)
    else:
        raise ParameterError(f"simulate: work is {type(work).__name__}; give a Dask array, or {{key: Work(seconds)}}")
    longest = _longest(tasks, groups)
    run = Run(tasks, groups, link, scheduler)
    makespan = run.run()
    whole = makespan or 1.0
    worked = [sum(s for s, g in zip(run.worked, run.group, strict=True) if g == k) for k in range(len(groups))]
    return Simulated(
        makespan=makespan,
        path=_path(run, max(g.speed for g in groups)),
        tasks=len(tasks.keys) - sum(tasks.held),
        seconds=sum(tasks.seconds),
        critical_path=longest,
        groups=groups,
        busy=tuple(w / (whole * g.count * g.threads) for w, g in zip(worked, groups, strict=True)),
        scheduler=(run.begin + run.served_s) / whole if makespan else 0.0,
        link=max(*run.in_busy, *run.out_busy) / whole,
        moved=run.bytes,
        taken=run.taken,
    )


def _several(workers: Any) -> tuple[Workers, ...]:
    groups = tuple(workers) if isinstance(workers, Iterable) else ()
    if not groups or not all(isinstance(g, Workers) for g in groups):
        raise ParameterError(f"simulate: workers is {workers!r}; give trueno_dask.Workers(count), or several of them")
    return groups


def _longest(tasks: Tasks, groups: tuple[Workers, ...]) -> float:
    """The seconds of the longest chain of tasks; ParameterError for a graph with a cycle."""
    readers: list[list[int]] = [[] for _ in tasks.keys]
    missing = [len(needs) for needs in tasks.needs]
    for i, needs in enumerate(tasks.needs):
        for need in needs:
            readers[need].append(i)
    ready = [i for i, count in enumerate(missing) if not count]
    until = [0.0] * len(missing)
    for i in ready:
        own = 0.0 if tasks.held[i] else min((tasks.seconds[i] + g.task_s) / g.speed for g in groups)
        until[i] = own + max((until[need] for need in tasks.needs[i]), default=0.0)
        for reader in readers[i]:
            missing[reader] -= 1
            if not missing[reader]:
                ready.append(reader)
    if len(ready) < len(missing):
        key = next(tasks.keys[i] for i, count in enumerate(missing) if count)
        raise ParameterError(f"simulate: graph[{key!r}] needs its own result, through a cycle; remove one of its needs")
    return max(until, default=0.0)


def _path(run: Run, fastest: float) -> dict[str, float]:
    """The parts of the makespan, followed back from the last event."""
    parts = dict.fromkeys(BOUNDS, 0.0)
    latency = run.link.latency
    i = max(range(len(run.at)), key=lambda i: run.served[i], default=-1)
    at_scheduler = True
    while i >= 0 and run.served[i] >= 0:
        if at_scheduler:
            parts["link"] += latency
            parts["scheduler"] += run.served[i] - run.ended[i] - latency
        seconds = run.ended[i] - run.started[i]
        slower = seconds * (1 - run.speed[run.at[i]] / fastest)
        parts["slowest worker"] += slower
        parts["compute"] += seconds - slower
        if run.before[i] >= 0:  # its thread was busy until then
            i, at_scheduler = run.before[i], False
            continue
        parts["link"] += run.started[i] - run.sent[i]
        cause = run.cause[i]
        if run.moved[i]:  # it waited at a worker from which another one has taken it
            parts["slowest worker"] += run.sent[i] - (run.begin if cause < 0 else run.served[cause])
        i, at_scheduler = cause, True
    parts["scheduler"] += run.begin
    return parts
