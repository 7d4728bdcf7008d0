"""The workers of a cluster: their versions, and what has happened on each."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from time import perf_counter
from typing import Any

import trueno
from trueno.errors import ParameterError, TruenoError
from trueno.events.counters import Stats, Sum
from trueno.events.stream import KINDS, Event
from trueno.events.summary import Facts, summary
from trueno.showing import Shown
from trueno.version import __version__

from trueno_dask import task

HERE = "this process"
"""The name of the only worker where there is no cluster."""
USUAL = ("run", "fallback", "quarantine", "transfer", "guard")
"""The kinds of event of which a trace needs no new plans."""


def check(client: Any) -> dict[str, str]:
    """The version of trueno-dask on each worker; TruenoError names those without it, and those with another one."""
    found = client.run(metadata.version, "trueno-dask", on_error="return")
    missing = [name for name, version in found.items() if not isinstance(version, str)]
    if missing:
        raise TruenoError(
            f"trueno_dask: not installed on {', '.join(missing)}; pip install trueno-dask=={__version__} there"
        )
    other = [f"{name} has {version}" for name, version in found.items() if version != __version__]
    if other:
        raise TruenoError(f"trueno_dask: {', '.join(other)}, but the client {__version__}; install one version on all")
    return dict(found)


def each(client: Any, function: Callable[..., Any], *args: Any) -> dict[str, Any]:
    """The function's value on every worker, or here if there is no client."""
    if client is None:
        return {HERE: function(*args)}
    check(client)
    return dict(client.run(function, *args))


# ---- counters ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class WorkersStats(Shown):
    """The counters of every worker; it shows the total, and how many events each has had."""

    workers: dict[str, Stats]

    @property
    def total(self) -> Stats:
        """The sum of all workers."""
        tables: dict[str, dict[Any, Any]] = {}
        quarantined: tuple[Any, ...] = ()
        for stats in self.workers.values():
            quarantined += stats.quarantined
            for name in Stats.__slots__:
                if name != "quarantined":
                    table = tables.setdefault(name, {})
                    for key, value in getattr(stats, name).items():
                        table[key] = _sum(table[key], value) if key in table else value
        return Stats(**tables, quarantined=quarantined)

    def json(self) -> dict[str, Any]:
        """As data that JSON can hold, by worker."""
        return {name: stats.json() for name, stats in self.workers.items()}

    def __str__(self) -> str:
        lines = [f"{name}: {sum(stats.events.values())} events" for name, stats in self.workers.items()]
        return "\n".join([*lines, "", str(self.total)])


def _sum(a: Any, b: Any) -> Any:
    return Sum(a.count + b.count, a.seconds + b.seconds, a.bytes + b.bytes) if isinstance(a, Sum) else a + b


def stats(client: Any = None, *, reset: bool = False) -> WorkersStats:
    """`trueno.stats()` of every worker; without a client that of this process.  reset: set them to 0 after reading."""
    return WorkersStats(each(client, _stats, reset))


def _stats(reset: bool) -> Stats:
    return trueno.stats(reset=reset)


# ---- traces --------------------------------------------------------------------------------------------------------


@dataclass(slots=True, repr=False)
class WorkersTrace:
    """The events of the tasks that ran on workers inside the block, by worker; `print` it for a summary."""

    kinds: tuple[str, ...]
    workers: dict[str, list[Event]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def events(self) -> tuple[Event, ...]:
        """The events of all workers."""
        return tuple(event for events in self.workers.values() for event in events)

    def __str__(self) -> str:
        return summary(self.events, Facts(0.0, self.seconds, max(len(self.workers), 1), 0, 0), "op", "time")

    def __repr__(self) -> str:
        return f"<trueno_dask.trace: {len(self.events)} events of {len(self.workers)} workers>"


_kept: dict[int, Event] = {}


@contextmanager
def trace(client: Any = None, kinds: Iterable[str] = USUAL) -> Iterator[WorkersTrace]:
    """Collect the events of all tasks that workers run inside: `with trueno_dask.trace(client) as t: y.compute()`.

    kinds: words of `trueno.settings.EVENTS`; decisions and compiles make each task plan again, which costs time.
    client: of a cluster; None for the schedulers of this process.  Traces do not nest.
    """
    words = tuple(kinds)
    for word in words:
        if word not in KINDS:
            raise ParameterError(f"trace: there is no kind {word!r}; the kinds are {', '.join(KINDS)}")
    result = WorkersTrace(words)
    each(client, _begin, words)
    began = perf_counter()
    try:
        yield result
    finally:
        result.seconds = perf_counter() - began
        result.workers = each(client, _end)


def _begin(kinds: tuple[str, ...]) -> None:
    _kept.clear()

    @contextmanager
    def traced(op: str) -> Iterator[None]:
        inner = trueno.trace(kinds)  # type: ignore[arg-type]  # the words were checked
        try:
            with inner:
                yield
        finally:  # an event of another thread is in several traces
            _kept.update((id(event), event) for event in inner.events)

    task.around[:] = [traced]


def _end() -> list[Event]:
    task.around.clear()
    events = list(_kept.values())
    _kept.clear()
    return events
