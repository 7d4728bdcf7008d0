"""A trace in the Trace Event Format, which Perfetto and Chrome's `about:tracing` read: spans, and bytes per second."""

import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from trueno.events.stream import Event
from trueno.text import plain

COUNTERS = {"kernels' operands and results": "run", "moved to and from devices": "transfer"}
"""Tracks of bytes per second: the name of each, and the kind of event that it sums."""
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
    for name, kind in COUNTERS.items():
        shown += _counter(name, [e for e in events if e.kind == kind], pid, zero)
    shown.sort(key=lambda record: record["ts"])  # stable, so that spans keep their order
    return {"traceEvents": [*named, *shown], "displayTimeUnit": "ns", "otherData": other}


def _counter(name: str, events: list[Event], pid: int, zero: float) -> list[dict[str, Any]]:
    """A track of GB/s: the sum over the events that last at a time, each with its bytes spread over its duration."""
    edges = []
    for e in events:
        if e.bytes > 0 and e.seconds > 0:
            edges += [(e.start, 1, e.bytes / e.seconds), (e.start + e.seconds, -1, e.bytes / e.seconds)]
    edges.sort()
    records: list[dict[str, Any]] = []
    lasting, rate = 0, 0.0
    for at, step, change in edges:
        lasting += step
        rate = rate + step * change if lasting else 0.0  # what rounding leaves ends with the last event
        record = {"ph": "C", "pid": pid, "tid": 0, "ts": round((at - zero) * 1e6, 3), "name": name}
        if records and records[-1]["ts"] == record["ts"]:
            records.pop()  # a track has one value at a time
        records.append(record | {"args": {"GB/s": round(rate / 1e9, 6)}})
    return records


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
