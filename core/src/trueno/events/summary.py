"""A trace as text: who ran what, how often and how long; who was refused, and why; what was moved, what went wrong."""

from collections.abc import Iterable

from trueno.events.stream import Event
from trueno.text import columns, duration, number, op_name, size

OUTSIDE = {"compile": "making kernels", "probe": "trying backends", "transfer": "moving arrays"}


def summary(events: tuple[Event, ...], began: float, seconds: float, threads: int, dropped: int, limit: int) -> str:
    """The text of a trace that began then, was open so long, and saw so many threads; dropped: events beyond limit."""
    count = len(events)
    title = f"trace of {duration(seconds)}: {number(count)} event{'s' * (count != 1)}"
    title += f" in {threads} threads" if threads > 1 else ""
    parts = [[title]]
    if dropped:
        parts[0].append(f"{number(dropped)} more were not kept (limit {number(limit)})")
    runs = _sums(e for e in events if e.kind == "run")
    total = sum(took for _, took, _ in runs.values()) or 1.0
    rows = [("op", "backend", "calls", "time", "mean", "share")]
    for (op, backend, _), (n, took, _) in sorted(runs.items(), key=lambda r: -r[1][1]):
        rows.append(
            (
                op_name(op),
                backend,
                number(n),
                duration(took),
                duration(took / n),
                f"{100 * took / total:.0f} %",
            )
        )
    parts.append(columns(rows, right=(2, 3, 4, 5)) if runs else [])
    parts.append(_outside(events, began, seconds))
    moved = _sums(e for e in events if e.kind == "transfer")
    rows4 = [
        (
            f"moved {where}",
            backend,
            f"{number(n)} array{'s' * (n != 1)}",
            size(amount),
            duration(took),
            _speed(amount, took),
        )
        for (_, backend, where), (n, took, amount) in moved.items()
    ]
    parts.append(columns(rows4, right=(2, 3, 4, 5)))
    parts.append(_refused(events))
    parts.append([str(e) for e in events if e.kind in ("fallback", "guard", "probe", "quarantine", "calibrate")])
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


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


def _sums(events: Iterable[Event]) -> dict[tuple[str, str, str], tuple[int, float, int]]:
    """Count, seconds and bytes by op (none for transfers), backend and direction."""
    sums: dict[tuple[str, str, str], tuple[int, float, int]] = {}
    for e in events:
        key = (e.op, e.backend, "") if e.kind == "run" else ("", e.backend, e.detail)
        n, seconds, amount = sums.get(key, (0, 0.0, 0))
        sums[key] = (n + 1, seconds + e.seconds, amount + e.bytes)
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
