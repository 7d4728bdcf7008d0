"""What a simulation is given: workers, the link between them, the scheduler, and what tasks cost."""

from collections.abc import Hashable
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

from trueno.errors import ParameterError


def checked(what: str, value: Any, least: float = 0.0, *, above: bool = False, infinite: bool = False) -> None:
    """Raise ParameterError for a value that is not a number in its range."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    right = number and (value > least if above else value >= least) and (infinite or isfinite(value))
    if not right:
        bound = f"greater than {least:g}" if above else f"at least {least:g}"
        raise ParameterError(f"{what} is {value!r}; give a {'' if infinite else 'finite '}number {bound}")


def whole(what: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ParameterError(f"{what} is {value!r}; give a whole number of at least 1")


@dataclass(frozen=True, slots=True)
class Workers:
    """Workers that are alike.

    speed: 1 for the machine on which costs were measured; a task takes its seconds over the speed.  threads: of each.
    task_s: what a worker takes for a task beside it: messages, Python.  cores: of one host that all of them share, or a
    part of one where other programs use the rest; by default each thread has a core.  ParameterError for values that
    no worker has.
    """

    count: int = 1
    speed: float = 1.0
    threads: int = 1
    task_s: float = 0.0
    cores: float | None = None

    def __post_init__(self) -> None:
        whole("simulate: Workers.count", self.count)
        whole("simulate: Workers.threads", self.threads)
        checked("simulate: Workers.speed", self.speed, above=True)
        checked("simulate: Workers.task_s", self.task_s)
        if self.cores is not None:
            checked("simulate: Workers.cores", self.cores, above=True)

    @property
    def power(self) -> float:
        """Seconds of tasks that all of them compute in a second."""
        threads = self.count * self.threads
        return self.speed * (threads if self.cores is None else min(threads, self.cores))


@dataclass(frozen=True, slots=True)
class Link:
    """Every worker's connection.  bandwidth: bytes per second, in and out at once; latency: seconds of a message."""

    bandwidth: float = inf
    latency: float = 0.0

    def __post_init__(self) -> None:
        checked("simulate: Link.bandwidth", self.bandwidth, above=True, infinite=True)
        checked("simulate: Link.latency", self.latency)


@dataclass(frozen=True, slots=True)
class Scheduler:
    """The one scheduler: it serves tasks in the order in which they end.

    task_s: seconds per task while the graph runs.  graph_s: seconds per task before the first one starts, for the graph
    itself.  start_s: seconds per graph.  saturation: it sends a worker that many tasks per thread and keeps the rest of
    those that need no data.  balance_s: after how many seconds it moves tasks from full workers to idle ones; None for
    never.  Both are Dask's settings.  beside: whether it runs on the host of the first workers that state their cores,
    as on a laptop, and shares these.
    """

    task_s: float = 0.0
    graph_s: float = 0.0
    start_s: float = 0.0
    saturation: float = 1.1
    balance_s: float | None = 1.0
    beside: bool = False

    def __post_init__(self) -> None:
        for name in ("task_s", "graph_s", "start_s"):
            checked(f"simulate: Scheduler.{name}", getattr(self, name))
        checked("simulate: Scheduler.saturation", self.saturation, above=True, infinite=True)
        if self.balance_s is not None:
            checked("simulate: Scheduler.balance_s", self.balance_s, above=True)


@dataclass(frozen=True, slots=True)
class Work:
    """A task of a graph that is written out.

    seconds: on a worker of speed 1.  nbytes: of its result.  needs: the keys of tasks whose results it reads.  kind:
    tasks of one kind are one group to the scheduler; by default each is its own.  held: it is no task, but data
    that a worker has from the start; the workers have such data in turn.
    """

    seconds: float = 0.0
    nbytes: float = 0
    needs: tuple[Hashable, ...] = ()
    kind: str = ""
    held: bool = False

    def __post_init__(self) -> None:
        checked("simulate: Work.seconds", self.seconds)
        checked("simulate: Work.nbytes", self.nbytes)
        if self.held and (self.needs or self.seconds):
            name = "needs" if self.needs else "seconds"
            value = getattr(self, name)
            raise ParameterError(f"simulate: Work.{name} is {value!r}, but data that are held need no task; omit it")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a task of a kind costs: `seconds + bytes / rate`, where bytes are those of its largest chunk.

    nbytes: of its result, where the array's chunks do not show it, as for the parts of rows.
    """

    seconds: float = 0.0
    rate: float = inf
    nbytes: float = 0

    def __post_init__(self) -> None:
        checked("simulate: Cost.seconds", self.seconds)
        checked("simulate: Cost.rate", self.rate, above=True, infinite=True)
        checked("simulate: Cost.nbytes", self.nbytes)
