"""The counters: what has happened in this process, in numbers.

Every event counts, whether anything listens or not: one table per kind, by the fields in `trueno.events.stream.KINDS`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trueno.escape import escaped
from trueno.locks import ForkSafeLock
from trueno.showing import Shown
from trueno.text import columns, duration, number, op_name, plain, size

if TYPE_CHECKING:
    from trueno.select.quarantine import Quarantined


@dataclass(frozen=True, slots=True)
class Sum:
    """The number of events, and the seconds and bytes of all of them."""

    count: int = 0
    seconds: float = 0.0
    bytes: int = 0


_sums: dict[str, dict[tuple[str, ...], list[Any]]] = {}
"""A `Sum` by kind and key, as a list, because it is updated for each transfer."""
_lock = ForkSafeLock()  # taken by who counts, which is rare; a signal handler may count while its thread holds it


def count(kind: str, key: tuple[str, ...], seconds: float, bytes: int) -> None:  # noqa: A002 - the field's name
    """One more event of this kind."""
    with _lock:
        table = _sums.get(kind)
        if table is None:
            table = _sums[kind] = {}
        row = table.get(key)
        if row is None:
            row = table[key] = [0, 0.0, 0]
        row[0] += 1
        row[1] += seconds
        row[2] += bytes


@dataclass(frozen=True, slots=True, repr=False)
class Stats(Shown):
    """What has happened in this process, in numbers, which it shows as a table.

    events: count by kind.  decisions: by backend.  compiles: kernels made, by (op, backend).  runs: by (op, backend),
    of traced calls.  fallbacks: by (op, from, to, reason).  transfers: by (direction, backend).  guards: by (op,
    condition, action).  probes: by (backend, verdict).  quarantined: the current quarantine, whenever it began.
    """

    events: dict[str, int]
    decisions: dict[str, int]
    compiles: dict[tuple[str, str], Sum]
    runs: dict[tuple[str, str], Sum]
    fallbacks: dict[tuple[str, str, str, str], int]
    transfers: dict[tuple[str, str], Sum]
    guards: dict[tuple[str, str, str], int]
    probes: dict[tuple[str, str], int]
    quarantined: "tuple[Quarantined, ...]" = ()

    def json(self) -> dict[str, Any]:
        """As data that JSON can hold: each table as a list of records."""
        data: dict[str, Any] = {"events": dict(self.events)}
        for name, (_, fields) in TABLES.items():
            data[name] = [
                dict(zip(fields, (key,) if isinstance(key, str) else key, strict=True)) | _record(value)
                for key, value in getattr(self, name).items()
            ]
        data["quarantined"] = [{f: plain(getattr(q, f)) for f in q.__slots__} for q in self.quarantined]
        return data

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = []
        for name in TABLES:
            for key, value in getattr(self, name).items():
                s = value if isinstance(value, Sum) else Sum(value)
                who = key if isinstance(key, str) else _SAID[name].format(op_name(key[0]), *key[1:])
                moved, took = size(s.bytes) if s.bytes else "", duration(s.seconds) if s.seconds else ""
                rows.append((name, who, number(s.count), moved, took))
        lines = columns(rows, right=(2, 3, 4))
        lines += [escaped(f"quarantined: {op_name(q.op)} on {q.backend}: {q.reason}") for q in self.quarantined]
        return "\n".join(lines) or "nothing has happened yet"


TABLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "decisions": ("decision", ("backend",)),
    "compiles": ("compile", ("op", "backend")),
    "runs": ("run", ("op", "backend")),
    "fallbacks": ("fallback", ("op", "from", "to", "reason")),
    "transfers": ("transfer", ("direction", "backend")),
    "guards": ("guard", ("op", "condition", "action")),
    "probes": ("probe", ("backend", "verdict")),
}
"""The tables of `Stats`: the kind of event that each counts, and the names of its keys' parts."""

_SAID = {
    "compiles": "{} on {}",
    "runs": "{} on {}",
    "fallbacks": "{}: {} -> {}, {}",
    "transfers": "{}, {}",
    "guards": "{}: {}, {}",
    "probes": "{}: {}",
}


def _record(value: Sum | int) -> dict[str, Any]:
    if isinstance(value, Sum):
        return {"count": value.count, "seconds": value.seconds, "bytes": value.bytes}
    return {"count": value}


def stats(*, reset: bool = False) -> Stats:
    """The counters of this process; `reset=True` sets them to 0 after reading.  Quarantine is not affected."""
    with _lock:
        sums = {kind: {key: Sum(*row) for key, row in table.items()} for kind, table in _sums.items()}
        if reset:
            _sums.clear()
    from trueno.select.quarantine import quarantined  # start-up

    def table(kind: str) -> Any:
        whole = kind in ("compile", "run", "transfer")
        rows = sorted(sums.get(kind, {}).items())
        return {key if len(key) > 1 else key[0]: s if whole else s.count for key, s in rows}

    events = {kind: sum(s.count for s in table.values()) for kind, table in sums.items()}
    tables = {name: table(kind) for name, (kind, _) in TABLES.items()}
    return Stats(events=events, quarantined=quarantined(), **tables)
