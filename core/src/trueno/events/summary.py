"""A trace as text and HTML: who ran what, how often and how long; who was refused, and why; what moved or failed.

A run is *first* if it is the first one of a kernel that was made inside the trace: it pays for pages that are touched
for the first time, and with some backends for compiling.  Minimum, median, mean and speed are those of the other runs,
or of all where there are no others.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from statistics import median

from trueno.escape import escaped
from trueno.events.stream import Event
from trueno.text import columns, duration, number, op_name, size

OUTSIDE = {"compile": "making kernels", "probe": "trying backends", "transfer": "moving arrays"}
BY = ("op", "shape")
"""What `summary(by=…)` takes: a row for each op and backend, or also for each shape and dtype."""


@dataclass(slots=True)
class Group:
    """The runs of one row: seconds of the first ones and of the others, and the bytes of one of the others."""

    op: str
    backend: str
    shapes: str = ""
    first: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    speeds: list[float] = field(default_factory=list)

    @property
    def calls(self) -> int:
        return len(self.first) + len(self.others)

    @property
    def time(self) -> float:
        """Seconds of all runs."""
        return sum(self.first) + sum(self.others)

    @property
    def warm(self) -> list[float]:
        return self.others or self.first

    @property
    def min(self) -> float:
        return min(self.warm)

    @property
    def median(self) -> float:
        return median(self.warm)

    @property
    def mean(self) -> float:
        return sum(self.warm) / len(self.warm)

    @property
    def speed(self) -> float:
        """Bytes of operands and results per second, the median of the runs that say how many; 0 if none does."""
        return median(self.speeds) if self.speeds else 0.0


SORTS = ("time", "calls", "min", "median", "mean", "speed", "op")
"""What `summary(sort=…)` takes: all but `op` begin with the largest."""


def groups(events: Iterable[Event], by: str = "op", sort: str = "time") -> list[Group]:
    """The runs among the events, as rows."""
    rows: dict[tuple[str, str, str], Group] = {}
    made: set[tuple[str, str]] = set()
    for e in events:
        if e.kind == "compile":
            made.add((e.op, e.backend))
        if e.kind != "run":
            continue
        shapes = _shapes(e) if by == "shape" else ""
        row = rows.setdefault((e.op, e.backend, shapes), Group(op_name(e.op), e.backend, shapes))
        is_first = (e.op, e.backend) in made
        made.discard((e.op, e.backend))
        (row.first if is_first else row.others).append(e.seconds)
        if e.bytes and e.seconds > 0 and not is_first:
            row.speeds.append(e.bytes / e.seconds)
    if sort == "op":
        return sorted(rows.values(), key=lambda row: (row.op, row.backend, row.shapes))
    return sorted(rows.values(), key=lambda row: -getattr(row, sort))


def _shapes(event: Event) -> str:
    shapes = event.data.get("shapes") or ()
    parts = ["×".join(map(str, shape)) or "1" for shape in shapes]
    return f"{', '.join(parts)} {event.data.get('dtype', '')}".strip()


def _rows(runs: list[Group]) -> tuple[list[tuple[str, ...]], tuple[int, ...]]:
    """The table of the runs under its header, without columns that would be empty; the columns of numbers."""
    total = sum(row.time for row in runs) or 1.0
    table = [
        {
            "op": row.op,
            "backend": row.backend,
            "shapes": row.shapes,
            "calls": number(row.calls),
            "time": duration(row.time),
            "first": duration(max(row.first)) if row.first and row.others else "",
            "min": duration(row.min),
            "median": duration(row.median),
            "mean": duration(row.mean),
            "share": f"{100 * row.time / total:.0f} %",
            "GB/s": f"{row.speed / 1e9:.3g}" if row.speed else "",
        }
        for row in runs
    ]
    names = [name for name in table[0] if any(line[name] for line in table)] if table else []
    words = ("op", "backend", "shapes")
    return [tuple(names), *(tuple(line[name] for name in names) for line in table)] if table else [], tuple(
        i for i, name in enumerate(names) if name not in words
    )


@dataclass(frozen=True, slots=True)
class Facts:
    """What a summary says besides its events: when the trace began, how long it was open, threads, and events lost."""

    began: float
    seconds: float
    threads: int
    dropped: int
    limit: int


def summary(events: tuple[Event, ...], facts: Facts, by: str = "op", sort: str = "time") -> str:
    """The text of a trace; rows of runs by `BY`, in the order of `SORTS`."""
    rows, right = _rows(groups(events, by, sort))
    parts = [_title(events, facts), columns(rows, right=right), *_rest(events, facts)]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def html(events: tuple[Event, ...], facts: Facts) -> str:
    """The summary for a notebook: the runs as a table with a bar for each share, the rest as text.

    It sets no colour but the bars', so it is readable in light and in dark pages; all text is escaped.
    """
    runs = groups(events)
    rows, right = _rows(runs)
    total = sum(row.time for row in runs) or 1.0

    def cell(tag: str, i: int, text: str) -> str:
        side = "right" if i in right else "left"
        return f'<{tag} style="text-align:{side}">{escape(escaped(text))}</{tag}>'

    lines = ["<div>", *(f"<p>{escape(escaped(line))}</p>" for line in _title(events, facts))]
    if rows:
        lines += ["<table><thead><tr>", *(cell("th", i, name) for i, name in enumerate(rows[0])), "<th></th>"]
        lines.append("</tr></thead><tbody>")
        for row, run in zip(rows[1:], runs, strict=True):
            wide = f"display:inline-block;height:.7em;background:#4c8bf5;width:{8 * run.time / total:.2f}em"
            lines += ["<tr>", *(cell("td", i, text) for i, text in enumerate(row))]
            lines.append(f'<td style="text-align:left;min-width:8em"><span style="{wide}"></span></td></tr>')
        lines.append("</tbody></table>")
    rest = "\n\n".join("\n".join(part) for part in _rest(events, facts) if part)
    if rest:
        shown = escape(escaped(rest, keep="\n"))
        lines.append(f'<pre style="white-space:pre-wrap">{shown}</pre>')
    return "\n".join([*lines, "</div>"])


def _title(events: tuple[Event, ...], facts: Facts) -> list[str]:
    count = len(events)
    title = f"trace of {duration(facts.seconds)}: {number(count)} event{'s' * (count != 1)}"
    title += f" in {facts.threads} threads" if facts.threads > 1 else ""
    lost = f"{number(facts.dropped)} more were not kept (limit {number(facts.limit)})"
    return [title, lost] if facts.dropped else [title]


def _rest(events: tuple[Event, ...], facts: Facts) -> list[list[str]]:
    """What is not about runs: time outside of them, moves, refusals, failures."""
    moved = _sums(e for e in events if e.kind == "transfer")
    rows = [
        (
            f"moved {where}",
            backend,
            f"{number(n)} array{'s' * (n != 1)}",
            size(amount),
            duration(took),
            _speed(amount, took),
        )
        for (backend, where), (n, took, amount) in moved.items()
    ]
    failures = [str(e) for e in events if e.kind in ("fallback", "guard", "probe", "quarantine", "calibrate")]
    return [
        _outside(events, facts.began, facts.seconds), columns(rows, right=(2, 3, 4, 5)), _refused(events), failures
    ]  # fmt: skip


def _outside(events: tuple[Event, ...], began: float, seconds: float) -> list[str]:
    """A line for the time in which no kernel ran, so that the times add up: kernels made, probes, moves, the rest."""
    if not seconds:  # still open
        return []
    end = began + seconds

    def spans(kind: str) -> list[tuple[float, float]]:
        clipped = ((max(e.start, began), min(e.start + e.seconds, end)) for e in events if e.kind == kind)
        return [(a, b) for a, b in clipped if a < b]

    intervals = spans("run")
    before = ran = _covered(intervals)
    shares = []
    for kind, name in OUTSIDE.items():
        intervals += spans(kind)
        now = _covered(intervals)
        if now > before:
            shares.append(f"{name} {duration(now - before)}")
        before = now
    if not intervals:
        return []
    shares.append(f"the rest, Python and choosing, {duration(max(seconds - before, 0.0))}")
    return [f"outside of runs: {duration(max(seconds - ran, 0.0))}: {'; '.join(shares)}"]


def _covered(spans: list[tuple[float, float]]) -> float:
    """Seconds that spans cover, each counted once where several overlap."""
    covered, last = 0.0, float("-inf")
    for a, b in sorted(spans):
        covered += max(b - max(a, last), 0.0)
        last = max(last, b)
    return covered


def _sums(events: Iterable[Event]) -> dict[tuple[str, str], tuple[int, float, int]]:
    """Count, seconds and bytes of transfers by backend and direction."""
    sums: dict[tuple[str, str], tuple[int, float, int]] = {}
    for e in events:
        n, seconds, amount = sums.get((e.backend, e.detail), (0, 0.0, 0))
        sums[e.backend, e.detail] = (n + 1, seconds + e.seconds, amount + e.bytes)
    return sums


def _speed(amount: int, seconds: float) -> str:
    return f"{size(round(amount / seconds))}/s" if seconds else ""


def _refused(events: tuple[Event, ...]) -> list[str]:
    """A line for each backend that was not chosen and why, with the ops."""
    ops: dict[tuple[str, str], dict[str, None]] = {}
    for e in events:
        refused = e.data.get("refused") if e.kind == "decision" else None
        for name, code in refused.items() if isinstance(refused, dict) else ():
            ops.setdefault((str(name), str(code)), {})[op_name(e.op)] = None
    rows = [("not chosen", "reason", "for")] if ops else []
    return columns([*rows, *((name, code, ", ".join(names)) for (name, code), names in ops.items())])
