"""`trueno.trace()`: the events inside a block, as a list, a summary, JSON, or a file for a trace viewer.

    with trueno.trace() as t:
        y = trueno.softmax(x)
    print(t)                    # or t.summary(by="shape", sort="median"); a notebook shows a table
    t.save("trace.json")        # open it in https://ui.perfetto.dev or chrome://tracing

Events of kind `run`, the kernel calls, are those of this context: of this thread or task, of tasks started inside, and
of threads that run in a copy of the context.  Events of all other kinds are those of the whole process, including a
fallback in a worker thread.  If a trace keeps decisions, calls inside are planned again, so that it shows each
decision, also under a `use` or a guard inside.  Calls outside a trace cost nothing more.
"""

import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from json import dumps
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from trueno.errors import ParameterError, TruenoError, TruenoWarning, suggestion
from trueno.events.stream import KINDS, Event, Listener
from trueno.events.summary import BY, SORTS, Facts, html, summary
from trueno.events.viewer import chrome
from trueno.scope import Scope

P = ParamSpec("P")
R = TypeVar("R")

FORMATS = {".json": "for trace viewers", ".jsonl": "one event per line", ".txt": "the summary"}
LIMIT = 100_000
PLANNED = ("decision", "compile", "run")  # a trace of these kinds needs its own plans
ANEW = ("decision", "compile")  # a trace of these kinds needs plans made during the trace


class Trace(Listener):
    """The trace that `trueno.trace()` returns: a context manager, used once, or a decorator.  `print` it afterwards.

    events: the events, in the order in which they were emitted; `pandas.DataFrame(t.events)` is a table of them.
    dropped: the number of events beyond `limit`.
    seconds: how long the trace was open.
    """

    _name = "trace"

    def __init__(self, kinds: frozenset[str], path: Path | None, limit: int) -> None:
        self.kinds = kinds
        self.path = path
        self.limit = limit
        self.dropped = 0
        self.seconds = 0.0
        self._events: list[Event] = []
        self._threads: dict[int, dict[str, None]] = {}  # names by ident, which a later thread may reuse
        self._began = 0.0
        self._clock = ""
        self._opened = False
        self._open = False
        self._decorated: Any = None  # the function whose call this traces
        self.traced = not kinds.isdisjoint(PLANNED)

    @property
    def events(self) -> tuple[Event, ...]:
        """The events so far."""
        return tuple(self._events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def wants(self, kind: str) -> bool:
        """Whether the trace keeps events of this kind."""
        return self._open and kind in self.kinds

    def take(self, event: Event) -> None:
        """Keep an event; `trueno.events.stream` calls this under its lock."""
        if len(self._events) >= self.limit:
            self.dropped += 1
            return
        self._events.append(event)
        self._threads.setdefault(event.thread, {})[threading.current_thread().name] = None

    # ---- opening and closing -----------------------------------------------------------------------

    def _follow(self, scopes: tuple[Scope, ...]) -> None:
        if self.traced:
            from trueno.dispatch.state import follow  # a higher layer, not imported yet if no op was called

            follow(scopes)

    def __enter__(self) -> Self:
        if self._opened:
            raise TruenoError("this trace has been used; make a new one for each block: with trueno.trace() as t")
        self._opened = True
        super().__enter__()
        if not self.kinds.isdisjoint(ANEW):
            from trueno.dispatch.state import forget_traced  # start-up

            forget_traced()
        self._clock = datetime.now(UTC).isoformat()
        self._began = perf_counter()
        self._open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        self.seconds = perf_counter() - self._began
        if self._decorated is not None:
            self._decorated.trace = self
        super().__exit__(kind, error, trace)
        if self.path is not None:
            try:
                self.save(self.path)
            except OSError as failure:
                if error is None:
                    raise
                message = f"trace: {self.path} cannot be written: {failure}"  # the error inside explains more
                warnings.warn(message, TruenoWarning, stacklevel=2)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function: each call has its own trace, which is `function.trace` after the call returns."""
        if self._opened:
            raise TruenoError("this trace has been used; decorate with a new one: @trueno.trace()")
        decorated: Any = super().__call__(function)
        decorated.trace = None
        return decorated  # type: ignore[no-any-return]

    def _for_call(self, decorated: Callable[..., Any]) -> "Trace":
        trace = Trace(self.kinds, self.path, self.limit)
        trace._decorated = decorated
        return trace

    # ---- as text -----------------------------------------------------------------------------------

    def __repr__(self) -> str:
        state = "open" if self._open else "closed" if self._opened else "not used yet"
        return f"<trueno.trace, {state}: {len(self._events)} events>"

    def __str__(self) -> str:
        return self.summary()

    def summary(self, by: str = "op", sort: str = "time") -> str:
        """The ops that each backend ran with counts and times; rejected backends with reasons; moves; and failures.

        by: `op`, or `shape` for a row per shape and dtype.  sort: `time` (of all calls), `calls`, `min`, `median`,
        `mean`, `speed` or `op`.  `first` is the longest first run of a new kernel; min, median, mean and GB/s (bytes of
        operands and results) are without it.  ParameterError for other words.
        """
        for name, word, known in (("by", by, BY), ("sort", sort, SORTS)):
            if word not in known:
                near = suggestion(word, known) if isinstance(word, str) else ""
                raise ParameterError(f"summary: {name} is {word!r}; it is one of {', '.join(known)}{near}")
        return summary(self.events, self._facts(), by, sort)

    def _repr_html_(self) -> str:
        """The summary as a notebook shows it."""
        return html(self.events, self._facts())

    def _facts(self) -> Facts:
        return Facts(self._began, self.seconds, len(self._threads), self.dropped, self.limit)

    # ---- as data -----------------------------------------------------------------------------------

    def json(self) -> dict[str, Any]:
        """The whole trace as data for JSON; `start` counts seconds from the beginning of the trace."""
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
        other = {"began": self._clock, "dropped": str(self.dropped), "seconds": str(self.seconds)}
        return chrome(self.events, self._began, self._threads, other)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file: .json for trace viewers, .jsonl with one event per line, .txt with the summary."""
        path = _path(path)
        if path.suffix == ".json":
            text = dumps(self.chrome())
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
    """Keep the events inside: `with trueno.trace() as t: …`, then `print(t)`, `t.events`, `t.save("trace.json")`.

    kinds: words of `trueno.settings.EVENTS` to keep, default all.  path: a file to write at the end, .json,
    .jsonl or .txt.  limit: the number of events to keep; further events are only counted.  ParameterError for an
    invalid argument.
    """
    if kinds is not None and not isinstance(kinds, Iterable):
        raise ParameterError(f"trace: kinds is {kinds!r}; give some of {', '.join(KINDS)}")
    words = (kinds,) if isinstance(kinds, str) else tuple(KINDS if kinds is None else kinds)
    for word in words:
        if not isinstance(word, str) or word not in KINDS:
            near = suggestion(word, KINDS) if isinstance(word, str) else ""
            raise ParameterError(f"trace: there is no kind {word!r}; the kinds are {', '.join(KINDS)}{near}")
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise ParameterError(f"trace: limit is {limit!r}; it must be a whole number of events, 0 or more")
    return Trace(frozenset(words), None if path is None else _path(path), limit)


def _path(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        raise ParameterError(f"trace: path is {path!r}; give the name of a file")
    file = Path(path)
    if file.suffix not in FORMATS:
        choices = ", ".join(f"{suffix} ({what})" for suffix, what in FORMATS.items())
        raise ParameterError(f"trace: {str(file)!r} must end in {choices}")
    return file


__all__ = ["Trace", "trace"]
