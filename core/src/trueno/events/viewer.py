"""A trace in the Trace Event Format, which Perfetto and Chrome's `about:tracing` read."""

import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from trueno.events.stream import Event
from trueno.text import plain

SPANS = ("compile", "run", "transfer")  # always shown with a length, others only if they have one


def chrome(
    events: tuple[Event, ...], began: float, threads: Mapping[int, Collection[str]], other: dict[str, str]
) -> dict[str, Any]:
    """The events of a trace that began then, with the names of each thread; other: what a viewer shows beside them."""
    pid = os.getpid()
    lanes = {ident: lane for lane, ident in enumerate(threads, 1)}  # viewers cut large idents off
    zero = min([began, *(e.start for e in events)])
    named = [_meta(pid, 0, "process_name", f"trueno ({Path(sys.argv[0]).name or 'python'})")]
    named += [_meta(pid, lanes[ident], "thread_name", ", ".join(names)) for ident, names in threads.items()]
    # Sorted, as some readers want them; what contains comes before what is contained.
    shown = [_shown(e, pid, lanes[e.thread], zero) for e in sorted(events, key=lambda e: (e.start, -e.seconds))]
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
