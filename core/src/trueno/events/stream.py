"""One stream of events: decisions, kernels made, runs, fallbacks, transfers, guard trips, probes.

`trueno.stats()`, `trueno.trace()`, `TRUENO_VERBOSE`, the logger `trueno` and the hook `trueno_on_event` are
views of it.  Nothing here is on the path of a call: an event is made when something is decided, moved or
goes wrong, and for each call only inside a trace.

The logger gets every event at DEBUG, and at INFO `calibrate` and a `compile` of a second or more.  Its warnings come
from the policies themselves, `TRUENO_FALLBACK=log` and `Action.LOG`, so that nothing is reported twice.
"""

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import get_ident, local
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

from trueno.errors import TruenoError, TruenoWarning
from trueno.escape import dumps, escaped
from trueno.events.counters import count, stats
from trueno.locks import ForkSafeLock
from trueno.scope import Scope, opened
from trueno.settings import settings
from trueno.text import duration, op_name, plain, size

if TYPE_CHECKING:
    from logging import Logger


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    op, backend: names, empty where they do not apply.  detail: a sentence.  start: seconds of `time.perf_counter`;
    seconds: the duration, 0 for instantaneous events.  bytes: moved by it.  thread: `threading.get_ident()`.
    data: further fields of the kind, as in `KINDS`.
    """

    kind: str
    op: str
    backend: str
    detail: str
    start: float
    seconds: float
    bytes: int
    thread: int
    data: dict[str, Any] = field(default_factory=dict, hash=False)

    def json(self) -> dict[str, Any]:
        """As data that JSON can hold."""
        return {name: plain(getattr(self, name)) for name in self.__slots__}

    def __str__(self) -> str:
        where = f"{self.backend} -> {self.data['to']}" if "to" in self.data else self.backend
        parts = [f"{self.kind:<10}", op_name(self.op), where]
        parts += [LEVELS.get(self.data.get("level"), "")] if self.kind == "probe" else []
        parts += [self.detail]
        parts += [duration(self.seconds)] if self.seconds else []
        parts += [size(self.bytes)] if self.bytes else []
        refused = self.data.get("refused")
        parts += [f"({', '.join(f'{name} {code}' for name, code in refused.items())})"] if refused else []
        return escaped("  ".join(" ".join(str(p).split()) if i else p for i, p in enumerate(parts) if p))


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of event: its meaning, the fields of its `data`, and the fields by which `stats` counts it."""

    says: str
    data: dict[str, str]
    by: tuple[str, ...]


KINDS: dict[str, Kind] = {
    "decision": Kind(
        "a backend was chosen for a key: op, dtype, layout and size classes",
        {
            "dtype": "of the call",
            "rank": "of the call",
            "sizes": "size classes of the call, bit lengths",
            "predicted": "seconds, or None",
            "refused": "reason code of every other backend, by name",
        },
        ("backend",),
    ),
    "compile": Kind(
        "a backend made the kernel of a key; the seconds are those of compiling it, or of loading it from a cache",
        {},
        ("op", "backend"),
    ),
    "run": Kind(
        "a kernel was called; only inside `trueno.trace()`, or if TRUENO_VERBOSE names it; bytes are those of operands "
        "and results, 0 if the kernel reads only a part of one",
        {"shapes": "of the operands, as the kernel sees them", "dtype": "of the call"},
        ("op", "backend"),
    ),
    "fallback": Kind(
        "a backend failed while it ran, and another took the call",
        {"to": "the backend that runs such calls from now on"},
        ("op", "backend", "to", "reason"),
    ),
    "quarantine": Kind(
        "a backend is quarantined for calls of one key, after a failure or guard trips", {}, ("op", "backend")
    ),
    "transfer": Kind(
        "an array was moved; detail is `to device` or `to host`, bytes and seconds are the array's and the move's",
        {},
        ("detail", "backend"),
    ),
    "guard": Kind(
        "a guard's condition was met",
        {"condition": "nan, inf, overflow or divergence", "action": "what was done: stop, log, promote_f64, fall_back"},
        ("op", "condition", "action"),
    ),
    "probe": Kind(
        "a backend was probed in a child process, or loaded in this one; detail is the reason if it failed",
        {"ok": "whether it can run", "level": "0, 1 or 2"},
        ("backend", "verdict"),
    ),
    "calibrate": Kind("speeds were measured; detail names the backends", {"rows": "how many speeds"}, ("backend",)),
}
"""The meaning and fields of every kind; the same names as in `trueno.settings.EVENTS`."""


LEVELS: dict[Any, str] = {
    0: "level 0, not loaded",
    1: "level 1, in this process",
    2: "level 2, in a child process",
}
"""The names of a probe's levels: a backend that is used for the first time is probed at the last two."""


SLOW = 1.0
"""Seconds from which on making a kernel is logged at INFO: the program paused, and the user may wonder why."""


class Listener(Scope):
    """Is given events inside: runs of this context and of those copied from it, others of every thread.

    Leaving it in another context is an error, but ends it.
    """

    def wants(self, kind: str) -> bool:
        """Whether it wants events of this kind."""
        raise NotImplementedError

    def take(self, event: Event) -> None:
        """Keep the event; called under a lock, so it must do nothing else."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        global _everywhere
        super().__enter__()
        with _lock:
            _everywhere = (*_everywhere, self)
        return self

    def __exit__(self, *error: Any) -> None:
        global _everywhere
        with _lock:
            _everywhere = tuple([x for x in _everywhere if x is not self])
        super().__exit__(*error)


_lock = ForkSafeLock()  # taken by who emits, which is rare; a signal handler may emit while its thread holds it
_everywhere: tuple[Listener, ...] = ()
_inside = local()
_dropped: set[str] = set()
settings.on_reload(_dropped.clear)


def emit(
    kind: str,
    op: str = "",
    backend: str = "",
    detail: str = "",
    *,
    start: float | None = None,
    seconds: float = 0.0,
    bytes: int = 0,  # noqa: A002 - the field's name
    **data: Any,
) -> None:
    """Notify all listeners; never raises.  start: by `time.perf_counter`; default: now less `seconds`.

    Events caused by a listener are counted and traced, but not sent to listeners again: a hook may call ops.
    Without listeners the event is only counted: every transfer is an event, and small ones must stay fast.
    """
    try:
        begun = perf_counter() - seconds if start is None else start
        with _lock:
            count(kind, tuple([_text(name, op, backend, detail, data) for name in KINDS[kind].by]), seconds, bytes)
            listeners = _listeners(kind)
            if listeners:
                event = Event(kind, op, backend, detail, begun, seconds, bytes, get_ident(), data)
                for listener in listeners:
                    if listener.wants(kind):
                        listener.take(event)
        if getattr(_inside, "sink", False) or not _told(kind, seconds):
            return
        if not listeners:
            event = Event(kind, op, backend, detail, begun, seconds, bytes, get_ident(), data)
    except Exception as error:
        _drop(f"an event of kind {kind!r}", error)
        return
    _inside.sink = True
    try:
        for name, tell in SINKS.items():
            if name not in _dropped:
                try:
                    tell(event)
                except Exception as error:
                    _drop(name, error)
    finally:
        _inside.sink = False


def brief(kind: str, op: str, backend: str, detail: str, nbytes: int) -> None:
    """Count what is done for every token of a text, and notify listeners alone: other receivers would take longer."""
    if _listeners(kind):
        emit(kind, op, backend, detail, bytes=nbytes)
        return
    with _lock:
        count(kind, tuple([_text(name, op, backend, detail, {}) for name in KINDS[kind].by]), 0.0, nbytes)


def _text(name: str, op: str, backend: str, detail: str, data: dict[str, Any]) -> str:
    """The value of an event's field by which its kind is counted."""
    if name == "backend":
        return str(backend)
    if name == "op":
        return str(op)
    if name == "detail":
        return str(detail)
    if name == "verdict":
        return "can run" if data.get("ok") else "cannot run"
    if name == "reason":  # an error's class, with which a failure's detail begins
        return detail.partition(":")[0]
    return str(data.get(name, ""))


def _drop(name: str, error: Exception) -> None:
    """Report a listener's error with an event, once, and exclude that listener from now on."""
    if name in _dropped:
        return
    _dropped.add(name)
    message = f"{name} is left out of events from now on: {type(error).__name__}: {error}"
    try:
        warnings.warn(message, TruenoWarning, stacklevel=4)
    except TruenoWarning:  # warnings are errors here, but an event never ends a call
        logger().error("%s", escaped(message))


# ---- who listens -----------------------------------------------------------------------------------


def _listeners(kind: str) -> tuple[Listener, ...]:
    if kind == "run":
        return tuple([scope for scope in opened() if isinstance(scope, Listener)])
    return _everywhere


def verbose() -> tuple[str, ...]:
    """The words of TRUENO_VERBOSE, empty if it cannot be parsed; `json` alone means every kind."""
    try:
        words: tuple[str, ...] = settings.get("TRUENO_VERBOSE")
    except TruenoError:  # the error is reported where the variable is used
        return ()
    return (*KINDS, "json") if words == ("json",) else words


def _print(event: Event) -> None:
    words = verbose()
    if event.kind in words and sys.stderr is not None:
        if "json" in words:
            line = dumps(event.json())
        else:
            line = f"trueno: {event}"
        sys.stderr.write(f"{line}\n")  # one write, so that lines of threads do not mix


_known: list["Logger"] = []
"""The logger, once it was requested: looking it up takes a lock."""


def _logger() -> "Logger":
    if not _known:
        from logging import getLogger

        _known.append(getLogger("trueno"))
    return _known[0]


def logger() -> "Logger":
    """The logger `trueno`, which is silent unless the program configures it."""
    from logging import NullHandler

    log = _logger()
    if not any(isinstance(h, NullHandler) for h in log.handlers):
        log.addHandler(NullHandler())
    return log


def _level(kind: str, seconds: float) -> int:
    """logging.INFO for the events that the module's docstring names, otherwise logging.DEBUG."""
    return 20 if kind == "calibrate" or (kind == "compile" and seconds >= SLOW) else 10


def _log(event: Event) -> None:
    if "logging" in sys.modules:  # otherwise it cannot be configured
        logger().log(_level(event.kind, event.seconds), "%s", event, extra={"event": event})


SINKS: dict[str, Callable[[Event], None]] = {"TRUENO_VERBOSE": _print, "the logger": _log}
"""The receivers of events, besides the counters and traces; one that raises is reported and dropped."""
OURS = frozenset(SINKS)
LISTENING: dict[str, Callable[[], bool]] = {}
"""Whether a sink added from elsewhere would use an event now; sinks that do not say so always would."""


def _told(kind: str, seconds: float = 0.0) -> bool:
    """Whether any of the sinks would do something with such an event."""
    if kind in verbose() or ("logging" in sys.modules and _logger().isEnabledFor(_level(kind, seconds))):
        return True
    return any(name not in LISTENING or LISTENING[name]() for name in SINKS if name not in OURS)


def active(kind: str = "run") -> bool:
    """Whether anything but the counters receives events of this kind; a cheap check before collecting `data`."""
    return any(x.wants(kind) for x in _listeners(kind)) or _told(kind)


__all__ = ["KINDS", "Event", "Kind", "Listener", "active", "emit", "logger", "stats", "verbose"]
