"""`trueno.trace()`: what happened inside, as a list, a summary, JSON, or a file for a trace viewer.

    with trueno.trace() as t:
        y = trueno.softmax(x)
    print(t)
    t.save("trace.json")        # open it in https://ui.perfetto.dev or chrome://tracing

Kernels called (`run`) are those of this context: of this thread or task, of tasks started inside, and of threads
that run in a copy of the context.  All other kinds are those of the whole process: a fallback in a worker thread
is seen too.  Where decisions are kept, calls inside are planned anew, so that each shows, also under a `use` or a guard
inside; outside, calls cost what they cost without.
"""

import functools
import inspect
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from json import dumps
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from trueno.errors import ParameterError, TruenoError, TruenoWarning, suggestion
from trueno.events.stream import KINDS, Event, listen
from trueno.text import columns, duration, number, op_name, plain, size

P = ParamSpec("P")
R = TypeVar("R")

FORMATS = {".json": "for trace viewers", ".jsonl": "an event a line", ".txt": "the summary"}
LIMIT = 100_000
OUTSIDE = {"compile": "making kernels", "probe": "trying backends", "transfer": "moving arrays"}
SPANS = ("compile", "run", "transfer")  # always shown with a length, others only if they have one


PLANNED = ("decision", "compile", "run")  # a trace of these needs plans of its own
ANEW = ("decision", "compile")  # and of these, plans that nobody made before


class Trace:
    """What `trueno.trace()` gives: a context manager, used once, or a decorator.  `print` it afterwards.

    events: what happened, in the order in which it was told.  dropped: how many more than `limit` there were.
    seconds: how long the trace was open.
    """

    def __init__(self, kinds: frozenset[str], path: Path | None, limit: int) -> None:
        self.kinds = kinds
        self.path = path
        self.limit = limit
        self.dropped = 0
        self.seconds = 0.0
        self._events: list[Event] = []
        self._threads: dict[int, dict[str, None]] = {}  # names by ident, which a later thread may have again
        self._began = 0.0
        self._clock = ""
        self._opened = False
        self._open = False
        self._state: AbstractContextManager[Any] | None = None
        self._end: Callable[[], None] | None = None

    @property
    def events(self) -> tuple[Event, ...]:
        """What happened so far."""
        return tuple(self._events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def wants(self, kind: str) -> bool:
        """Whether events of this kind are kept."""
        return self._open and kind in self.kinds

    def take(self, event: Event) -> None:
        """Keep an event; `trueno.events.stream` calls this under its lock."""
        if len(self._events) >= self.limit:
            self.dropped += 1
            return
        self._events.append(event)
        self._threads.setdefault(event.thread, {})[threading.current_thread().name] = None

    # ---- opening and closing -----------------------------------------------------------------------

    def __enter__(self) -> "Trace":
        if self._opened:
            raise TruenoError("this trace has been used; make a new one for each block: with trueno.trace() as t")
        self._opened = True
        if not self.kinds.isdisjoint(PLANNED):
            from trueno.dispatch import state

            self._state = state.tracing()
            self._state.__enter__()
            if not self.kinds.isdisjoint(ANEW):
                state.forget_traced()
        self._clock = datetime.now(UTC).isoformat()
        self._began = perf_counter()
        self._open = True
        self._end = listen(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        self.seconds = perf_counter() - self._began
        try:
            if self._end is not None:
                self._end()
        finally:
            if self._state is not None:
                self._state.__exit__(kind, error, trace)
                self._state = None
        if self.path is not None:
            try:
                self.save(self.path)
            except OSError as failure:
                if error is None:
                    raise
                message = f"trace: {self.path} cannot be written: {failure}"  # the error inside says more
                warnings.warn(message, TruenoWarning, stacklevel=2)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """As a decorator: each call has a trace of its own, which is `function.trace` once it has returned."""
        if self._opened:
            raise TruenoError("this trace has been used; decorate with a new one: @trueno.trace()")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ParameterError(
                f"trace: {function.__name__} is a generator, which runs in pieces; use `with trueno.trace()` inside"
            )
        traced: Any
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def traced(*args: P.args, **kwargs: P.kwargs) -> Any:
                with Trace(self.kinds, self.path, self.limit) as t:
                    try:
                        return await function(*args, **kwargs)
                    finally:
                        traced.trace = t
        else:

            @functools.wraps(function)
            def traced(*args: P.args, **kwargs: P.kwargs) -> R:
                with Trace(self.kinds, self.path, self.limit) as t:
                    try:
                        return function(*args, **kwargs)
                    finally:
                        traced.trace = t

        traced.trace = None
        return traced  # type: ignore[no-any-return]

    # ---- as text -----------------------------------------------------------------------------------

    def __repr__(self) -> str:
        state = "open" if self._open else "closed" if self._opened else "not used yet"
        return f"<trueno.trace, {state}: {len(self._events)} events>"

    def __str__(self) -> str:
        return self.summary()

    def summary(self) -> str:
        """Who ran what, how often and how long; who was refused, and why; what was moved, and what went wrong."""
        return _summary(self)

    # ---- as data -----------------------------------------------------------------------------------

    def json(self) -> dict[str, Any]:
        """Everything, as data that JSON can hold; `start` counts seconds from the beginning of the trace."""
        return {
            "began": self._clock,
            "seconds": self.seconds,
            "dropped": self.dropped,
            "threads": {str(ident): ", ".join(names) for ident, names in self._threads.items()},
            "events": [self._plain(e) for e in self._events],
        }

    def _plain(self, event: Event) -> dict[str, Any]:
        return event.json() | {"start": event.start - self._began}

    def chrome(self) -> dict[str, Any]:
        """The events in the Trace Event Format, which Perfetto and Chrome's `about:tracing` read."""
        return _chrome(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file: .json for trace viewers, .jsonl with an event a line, .txt with the summary."""
        path = _path(path)
        if path.suffix == ".json":
            text = dumps(_chrome(self))
        elif path.suffix == ".jsonl":
            text = "".join(dumps(self._plain(e)) + "\n" for e in self._events)
        else:
            text = self.summary() + "\n"
        path.write_text(text, "utf-8", errors="backslashreplace")


def trace(
    kinds: str | Iterable[str] | None = None,
    path: str | os.PathLike[str] | None = None,
    *,
    limit: int = LIMIT,
) -> Trace:
    """Keep what happens inside: `with trueno.trace() as t: …`, then `print(t)`, `t.events`, `t.save("trace.json")`.

    kinds: words of `trueno.settings.EVENTS` to keep, default all.  path: a file to write at the end, .json,
    .jsonl or .txt.  limit: how many events are kept; further ones are counted.  ParameterError for anything else.
    """
    if kinds is not None and not isinstance(kinds, Iterable):
        raise ParameterError(f"trace: kinds is {kinds!r}; give some of {', '.join(KINDS)}")
    words = (kinds,) if isinstance(kinds, str) else tuple(KINDS if kinds is None else kinds)
    for word in words:
        if not isinstance(word, str) or word not in KINDS:
            near = suggestion(word, KINDS) if isinstance(word, str) else ""
            raise ParameterError(f"trace: there is no kind {word!r}; there are {', '.join(KINDS)}{near}")
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise ParameterError(f"trace: limit is {limit!r}; it must be a whole number of events, 0 or more")
    return Trace(frozenset(words), None if path is None else _path(path), limit)


def _path(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        raise ParameterError(f"trace: path is {path!r}; give the name of a file")
    found = Path(path)
    if found.suffix not in FORMATS:
        known = ", ".join(f"{suffix} ({what})" for suffix, what in FORMATS.items())
        raise ParameterError(f"trace: {str(found)!r} must end in {known}")
    return found


# ---- the summary -----------------------------------------------------------------------------------


def _summary(t: Trace) -> str:
    events = t.events
    count, threads = len(events), len(t._threads)
    title = f"trace of {duration(t.seconds)}: {number(count)} event{'s' * (count != 1)}"
    title += f" in {threads} threads" if threads > 1 else ""
    parts = [[title]]
    if t.dropped:
        parts[0].append(f"{number(t.dropped)} more were not kept (limit {number(t.limit)})")
    runs = _sums(e for e in events if e.kind == "run")
    total = sum(seconds for _, seconds, _ in runs.values()) or 1.0
    rows = [("op", "backend", "calls", "time", "mean", "share")]
    for (op, backend, _), (n, seconds, _) in sorted(runs.items(), key=lambda r: -r[1][1]):
        rows.append(
            (
                op_name(op),
                backend,
                number(n),
                duration(seconds),
                duration(seconds / n),
                f"{100 * seconds / total:.0f} %",
            )
        )
    parts.append(columns(rows, right=(2, 3, 4, 5)) if runs else [])
    parts.append(_outside(t, events))
    moved = _sums(e for e in events if e.kind == "transfer")
    rows4 = [
        (
            f"moved {where}",
            backend,
            f"{number(n)} array{'s' * (n != 1)}",
            size(amount),
            duration(seconds),
            _speed(amount, seconds),
        )
        for (_, backend, where), (n, seconds, amount) in moved.items()
    ]
    parts.append(columns(rows4, right=(2, 3, 4, 5)))
    parts.append(_refused(events))
    parts.append([str(e) for e in events if e.kind in ("fallback", "guard", "probe", "quarantine", "calibrate")])
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _outside(t: Trace, events: tuple[Event, ...]) -> list[str]:
    """A line for the time in which no kernel ran, so that the times add up: kernels made, probes, moves, the rest."""
    if not t.seconds:  # still open
        return []
    end = t._began + t.seconds

    def spans(kind: str) -> list[tuple[float, float]]:
        found = ((max(e.start, t._began), min(e.start + e.seconds, end)) for e in events if e.kind == kind)
        return [(a, b) for a, b in found if a < b]

    known = spans("run")
    before = ran = _covered(known)
    said = []
    for kind, name in OUTSIDE.items():
        known += spans(kind)
        now = _covered(known)
        if now > before:
            said.append(f"{name} {duration(now - before)}")
        before = now
    if not known:
        return []
    said.append(f"the rest, Python and choosing, {duration(max(t.seconds - before, 0.0))}")
    return [f"outside of runs: {duration(max(t.seconds - ran, 0.0))}: {'; '.join(said)}"]


def _covered(spans: list[tuple[float, float]]) -> float:
    """Seconds that spans cover, each counted once where several overlap."""
    covered, last = 0.0, float("-inf")
    for a, b in sorted(spans):
        covered += max(b - max(a, last), 0.0)
        last = max(last, b)
    return covered


def _sums(events: Iterable[Event]) -> dict[tuple[str, str, str], tuple[int, float, int]]:
    """Count, seconds and bytes by op (none for transfers), backend and direction."""
    found: dict[tuple[str, str, str], tuple[int, float, int]] = {}
    for e in events:
        key = (e.op, e.backend, "") if e.kind == "run" else ("", e.backend, e.detail)
        n, seconds, amount = found.get(key, (0, 0.0, 0))
        found[key] = (n + 1, seconds + e.seconds, amount + e.bytes)
    return found


def _speed(amount: int, seconds: float) -> str:
    return f"{size(round(amount / seconds))}/s" if seconds else ""


def _refused(events: tuple[Event, ...]) -> list[str]:
    """A line for each backend that was not chosen and why, with the ops."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for e in events:
        refused = e.data.get("refused") if e.kind == "decision" else None
        for name, code in refused.items() if isinstance(refused, dict) else ():
            found.setdefault((str(name), str(code)), {})[op_name(e.op)] = None
    rows = [("not chosen", "reason", "for")] if found else []
    return columns([*rows, *((name, code, ", ".join(ops)) for (name, code), ops in found.items())])


# ---- the file for viewers --------------------------------------------------------------------------


def _chrome(t: Trace) -> dict[str, Any]:
    pid = os.getpid()
    lanes = {ident: lane for lane, ident in enumerate(t._threads, 1)}  # viewers cut large idents off
    events = t.events
    zero = min([t._began, *(e.start for e in events)])
    named = [_meta(pid, 0, "process_name", f"trueno ({Path(sys.argv[0]).name or 'python'})")]
    named += [_meta(pid, lanes[ident], "thread_name", ", ".join(names)) for ident, names in t._threads.items()]
    # Sorted, as some readers want them; what contains comes before what is contained.
    shown = [_shown(e, pid, lanes[e.thread], zero) for e in sorted(events, key=lambda e: (e.start, -e.seconds))]
    other = {"began": t._clock, "dropped": str(t.dropped), "seconds": str(t.seconds)}
    return {"traceEvents": [*named, *shown], "displayTimeUnit": "ns", "otherData": other}


def _meta(pid: int, lane: int, what: str, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": lane, "ts": 0, "name": what, "args": {"name": name}}


def _shown(event: Event, pid: int, lane: int, zero: float) -> dict[str, Any]:
    args = {"backend": event.backend, "detail": event.detail, "bytes": event.bytes or "", **plain(event.data)}
    record = {
        "name": event.op if event.kind == "run" else f"{event.kind} {event.op}".strip(),
        "cat": event.kind,
        "pid": pid,
        "tid": lane,
        "ts": round((event.start - zero) * 1e6, 3),
        "args": {name: value for name, value in args.items() if value is not None and value != ""},
    }
    if event.kind in SPANS or event.seconds > 0:
        return record | {"ph": "X", "dur": round(max(event.seconds, 0.0) * 1e6, 3)}
    return record | {"ph": "i", "s": "t"}


__all__ = ["Trace", "trace"]
