"""Tables: on the terminal while it runs, and as JSON and Markdown for the record."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from trueno.text import duration

from benchmarks.compare import Record
from benchmarks.targets import Verdict, below, least, regrets
from benchmarks.timing import OURS
from benchmarks.verdict import NOTHING

RESULTS = Path(__file__).parent / "results"
COLOURS = {True: "green", False: "red", None: "dim"}
WORST = 10
BELOW = "Slower than the better peer"
GRID = "ratio, better peer, our time ⌊in floors⌋"
REGRET = ("op", "shape", "choice over best", "best", "times (trueno: the choice)")
SINGLE = (
    "startup", "batch", "door", "dispatch", "general", "aio", "inplace", "guards", "threads", "functions", "quartiles",
    "rust", "ptx", "wgpu", "cuda", "language_cuda", "engine_cuda", "lz4_gpu",
)  # fmt: skip
"""Groups whose cells are a figure each; the others are ratios in a grid of ops and shapes."""
LISTED = ("structured", "language", "quant", "lz4", "engine")
"""Groups whose cells are ratios, but every op has shapes of its own."""


def figure(record: Record) -> str:
    """A record's own figure."""
    if record.value is None:
        return record.problem or "–"
    match record.unit:
        case "×":
            return f"{record.value:.2f}×"
        case "s":
            return duration(record.value)
        case "counts":
            return record.peer
        case "MB/s":
            return f"{record.value:.1f} MB/s"
        case "tok/s":
            return f"{record.value:.0f} tok/s"
        case "nmse":
            return f"{record.value:.1e}"
        case "bytes":
            return f"{record.value / 1e12:.2f} TB/s" if record.value >= 1e12 else f"{record.value / 1e9:.1f} GB/s"
    return f"{record.value / 1e12:.2f} T{record.unit}/s"


def ratio(record: Record) -> str:
    """`2.31× t 0.38 µs ⌊1.4⌋`: ratio, the better peer's initial, our time, our time in floors."""
    if record.value is None:
        return record.problem or "–"
    mark = " !" if record.problem else ""
    floors = f" ⌊{record.floors:.1f}⌋" if record.floors else ""
    return f"{record.value:.2f}× {record.peer[:1]} {duration(record.seconds[OURS])}{floors}{mark}"


def _colour(record: Record, shown: str) -> str:
    if record.problem:
        return f"[magenta]{shown}[/]"
    if record.value is not None and record.value < least(record):
        return f"[red]{shown}[/]"
    return shown


def grids(records: Sequence[Record]) -> dict[str, tuple[list[str], dict[str, dict[str, Record]]]]:
    """By group: the shapes, and by op the records of each shape."""
    groups: dict[str, tuple[list[str], dict[str, dict[str, Record]]]] = {}
    for r in records:
        shapes, rows = groups.setdefault(r.group, ([], {}))
        if r.shape not in shapes:
            shapes.append(r.shape)
        rows.setdefault(r.name, {})[r.shape] = r
    return groups


def show_group(console: Console, group: str, records: Sequence[Record]) -> None:
    """One group's table."""
    grid = group not in SINGLE and group not in LISTED
    title = f"{group}: {GRID}" if grid else group
    table = Table(title=title, title_justify="left", title_style="bold", pad_edge=False, box=None)
    if not grid:
        for heading in ("", "", "figure", "times"):
            table.add_column(heading, no_wrap=heading != "times")
        for r in records:
            shown = _colour(r, figure(r)) if group in LISTED else figure(r)
            table.add_row(r.name, r.shape, shown, r.problem or _times(r))
        console.print(table)
        return
    shapes, rows = grids(records)[group]
    table.add_column("", no_wrap=True)
    for shape in shapes:
        table.add_column(shape, justify="right", no_wrap=True)
    for name, cells in rows.items():
        table.add_row(name, *(_colour(cells[s], ratio(cells[s])) if s in cells else "" for s in shapes))
    console.print(table)


def show_summary(console: Console, verdicts: Sequence[Verdict], records: Sequence[Record]) -> None:
    """The targets, and the single ops that fall below the floor."""
    table = Table(title="Targets", title_justify="left", title_style="bold", pad_edge=False)
    for heading in ("row", "target", "measured", ""):
        table.add_column(heading, no_wrap=not heading)
    for v in verdicts:
        table.add_row(v.row, v.target, v.measured, f"[{COLOURS[v.ok]}]{v.word}[/]")
    console.print(table)
    low = below(records)
    if low:
        table = Table(title=BELOW, title_justify="left", pad_edge=False, box=None)
        for heading in ("op", "shape", "ratio", "of each run", "better peer", "times"):
            table.add_column(heading, no_wrap=True)
        for row in map(_low, low):
            table.add_row(*row)
        console.print(table)
    if worst := regrets(records)[:WORST]:
        table = Table(title="Highest regret of choosing", title_justify="left", pad_edge=False, box=None)
        for heading in REGRET:
            table.add_column(heading, no_wrap=True)
        for row in map(_regret, worst):
            table.add_row(*row)
        console.print(table)
    problems = [r for r in records if r.problem]
    for r in problems:
        console.print(f"[magenta]problem[/]: {r.name} {r.shape}: {r.problem}", soft_wrap=True, highlight=False)
    counts = {word: sum(v.word == word for v in verdicts) for word in ("pass", "miss", "–")}
    console.print(f"{counts['pass']} pass, {counts['miss']} miss, {counts['–']} not measured; {len(low)} cells below")


def _times(r: Record) -> str:
    floor = {f"floor ({r.limit})": r.floor} if r.floor else {}
    return ", ".join(f"{name} {duration(seconds)}" for name, seconds in (r.seconds | floor).items())


def _low(r: Record) -> tuple[str, ...]:
    runs = " ".join(f"{x:.2f}" for x in r.ratios)
    timed = f"{duration(r.seconds[OURS])} vs {duration(r.seconds[r.peer])}"
    return r.name, r.shape, f"{r.value:.2f}×", runs, r.peer, timed


def _regret(r: Record) -> tuple[str, ...]:
    return r.name, r.shape, f"{r.value:.2f}×", r.peer, _times(r)


def stem(facts: dict[str, Any]) -> str:
    """`2026-11-20-amd-epyc-9b45`."""
    return re.sub(r"[^a-z0-9]+", "-", f"{facts['date'][:10]} {facts['cpu']}".lower()).strip("-")


def save_json(path: Path, facts: dict[str, Any], verdicts: Sequence[Verdict], records: Sequence[Record]) -> None:
    """Everything that was measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    targets = [asdict(v) | {"verdict": v.word} for v in verdicts]
    text = json.dumps({"machine": facts, "targets": targets, "records": [asdict(r) for r in records]}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def markdown(
    facts: dict[str, Any], warnings: Sequence[str], verdicts: Sequence[Verdict], records: Sequence[Record]
) -> str:
    """The same for readers."""
    header = {k: v for k, v in facts.items() if k != "versions"}
    lines = [f"# {facts['date'][:10]}, {facts['cpu']}", ""]
    lines += [", ".join(f"{k} {v}" for k, v in header.items()) + ".", ""]
    lines += [", ".join(f"{k} {v}" for k, v in facts["versions"].items()) + ".", ""]
    lines += [f"**Warning: {w}.**\n" for w in warnings]
    lines += ["## Targets", ""]
    asked = [v for v in verdicts if v.measured != NOTHING]
    lines += _table(("row", "target", "measured", ""), ((v.row, v.target, v.measured, v.word) for v in asked))
    lines += (
        [f"{len(verdicts) - len(asked)} other targets were not measured.", ""] if len(asked) < len(verdicts) else []
    )
    low = below(records)
    if low:
        lines += [f"## {BELOW}", ""]
        lines += _table(("op", "shape", "ratio", "of each run", "better peer", "times"), map(_low, low))
    if worst := regrets(records)[:WORST]:
        lines += ["## Highest regret of choosing", ""]
        lines += _table(REGRET, map(_regret, worst))
    for group, (shapes, rows) in grids(records).items():
        lines += [f"## {group}", ""]
        if group in SINGLE or group in LISTED:
            cells = ((r.name, r.shape, figure(r), r.problem or _times(r)) for r in records if r.group == group)
            lines += _table(("", "", "figure", "times"), cells)
        else:
            grid = ((name, *(ratio(c[s]) if s in c else "" for s in shapes)) for name, c in rows.items())
            lines += _table((GRID, *shapes), grid)
    return "\n".join(lines)
