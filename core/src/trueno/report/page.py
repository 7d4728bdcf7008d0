"""The HTML of a report: one file without a link to another, every text escaped."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from trueno.escape import escaped
from trueno.report import pictures
from trueno.report.facts import SHORT, SIGNS, Matrix, Point, Report
from trueno.text import duration, number

Cell = tuple[str, float | None] | str
"""What a cell shows, with the number that it is sorted by if that is not the text."""


def page(report: Report) -> str:
    """The whole page."""
    template = files("trueno.report").joinpath("page.html").read_text("utf-8")
    parts = {
        "TITLE": text(report.title),
        "MACHINE": "".join(f"<dt>{text(k)}</dt><dd>{text(v)}</dd>" for k, v in report.machine.items()),
        "BACKENDS": "".join(_backend(b, pictures.colours(report)[b["name"]]) for b in report.backends),
        "ROOFLINE": pictures.roofline(report),
        "ROOFS": _roofs(report),
        "OPS": _ops(report),
        "CROSSOVER": pictures.crossover(report) or "<p>No op was measured at several sizes.</p>",
        "CHOICES": _choices(report.points),
        "REGRET": text(_regret(report.points)),
        "CALIBRATION": re.sub("`([^`]+)`", r"<code>\1</code>", text(report.calibration)),
        "SPEEDS": _speeds(report.speeds),
        "PREDICTIONS": pictures.predictions(report),
        "ACCURACY": _accuracy(report),
        "MATRIX": matrix(report.matrix),
        "NOTES": "".join(f"<li>{text(note)}</li>" for note in report.notes) or "<li>Everything was measured.</li>",
    }  # fmt: skip
    for name, html in parts.items():
        template = template.replace(f"<!--{name}-->", html)
    return template


def text(value: object) -> str:
    """A text from outside as HTML: no markup, no control characters."""
    return escape(escaped(str(value)))


def _roofs(report: Report) -> str:
    units = {"flops": "FLOP", "bytes": "B"}
    return "; ".join(f"{text(r.name)}: {pictures.rate(r.rate, units[r.kind])}, {text(r.how)}" for r in report.roofs)


def _backend(backend: dict[str, str], colour: str) -> str:
    return f'<li><i style="background:{colour}"></i><b>{text(backend["name"])}</b> {text(backend["says"])}</li>'


def table(name: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]], right: Sequence[str] = ()) -> str:
    """A table that the page's script sorts and filters; columns named in `right` hold numbers."""
    head = "".join(f'<th{" class=number" if c in right else ""}><button type="button">{text(c)}</button></th>'
                   for c in columns).replace("_", "_<wbr>")  # fmt: skip
    body = []
    for row in rows:
        cells = []
        for column, cell in zip(columns, row, strict=True):
            shown, key = cell if isinstance(cell, tuple) else (cell, None)
            side = " class=number" if column in right else ""
            order = "" if key is None else f' data-key="{key:.9g}"'
            cells.append(f"<td{side}{order}>{shown}</td>")
        body.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="tools"><input type="search" placeholder="Filter" aria-label="Filter {text(name)}" '
        f'data-table="{text(name)}"><output></output></div>'
        f'<div class="scroll"><table id="{text(name)}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _time(seconds: float | None) -> Cell:
    return ("–", float("inf")) if seconds is None else (duration(seconds), seconds)


def _times(ratio: float) -> str:
    return f"{ratio:.0f}×" if ratio >= 9.95 else f"{ratio:.2g}×"


def _share(value: float) -> Cell:
    """A share of 1 as a bar with its number beside it."""
    wide = f"{min(max(value, 0.0), 1.0):.1%}"
    return f'<span class="bar"><span style="width:{wide}"></span></span> <span class="share">{value:.0%}</span>', value


def _ops(report: Report) -> str:
    rows = []
    names = [b["name"] for b in report.backends if any(b["name"] in p.seconds for p in report.points)]
    for p in report.main():
        floor, flops = report.roof(p), p.flops / p.time
        gain: Cell = ("–", 0.0) if p.numpy is None else (_times(p.numpy / p.time), p.numpy / p.time)
        rows.append([
            text(p.op), text(p.family), (number(p.elements), p.elements), text(p.chosen),
            *(_time(p.seconds.get(name)) for name in names), gain,
            (f"{p.bytes / p.time / 1e9:.3g}", p.bytes / p.time), (f"{flops / 1e9:.3g}" if flops else "–", flops),
            _share(floor / p.time),
        ])  # fmt: skip
    numbers = ("elements", *names, "× NumPy", "GB/s", "GFLOP/s", "of the roof")
    columns = ("op", "family", "elements", "chosen", *names, "× NumPy", "GB/s", "GFLOP/s", "of the roof")
    return table("ops", columns, rows, numbers)


def _regret(points: Sequence[Point]) -> str:
    """One sentence about all choices."""
    if not points:
        return "No choice was measured."
    right = sum(p.regret <= pictures.SEARCHED - 1 for p in points)
    lost = sum(p.time for p in points) / sum(p.seconds[p.best] for p in points) - 1
    return (
        f"Of {number(len(points))} calls, the selector took for {number(right)} the fastest backend or one at most "
        f"10 % slower. All calls together take {lost:.1%} longer than with the fastest backend for each."
    )


def _choices(points: Sequence[Point]) -> str:
    rows = [
        [
            text(p.op), (number(p.elements), p.elements), text(p.chosen), text(p.by), _time(p.time), text(p.best),
            _time(p.seconds[p.best]), (f"{p.regret:.0%}", p.regret),
        ]
        for p in sorted(points, key=lambda p: -p.regret)
    ]  # fmt: skip
    columns = ("op", "elements", "chosen", "because", "takes", "fastest", "fastest takes", "regret")
    return table("choices", columns, rows, ("elements", "takes", "fastest takes", "regret"))


def _speeds(speeds: Sequence[dict[str, Any]]) -> str:
    if not speeds:
        return ""
    rows = [
        [
            text(s["backend"]), text(s["class"]), text(s["dtype"]), text(s["band"]), _time(s["launch"]),
            (f"{s['flops'] / 1e9:.3g}", s["flops"]), (f"{s['bytes'] / 1e9:.3g}", s["bytes"]),
            (f"{s['spread']:.0%}", s["spread"]), text(s["measured"][:10]),
        ]
        for s in speeds
    ]  # fmt: skip
    columns = ("backend", "class", "dtype", "sizes", "launch", "GFLOP/s", "GB/s", "spread", "measured")
    return table("speeds", columns, rows, ("launch", "GFLOP/s", "GB/s", "spread"))


def _accuracy(report: Report) -> str:
    def units(value: float | None) -> Cell:
        if value is None:
            return "–", -1.0
        return (f"{value:.3g}" if value < 999.5 else number(round(value))), value

    rows = [
        [
            text(j.op), text(j.backend), text(j.dtype),
            ("right", 1.0) if j.ok else (f'<b class="bad">wrong: {text(j.why)}</b>', 0.0),
            units(j.error), units(j.bound), _share(j.worst),
        ]
        for j in sorted(report.judged, key=lambda j: (j.ok, -(j.error or 0.0)))
    ]  # fmt: skip
    columns = ("op", "backend", "dtype", "verdict", "error (ulp)", "allowed (ulp)", "of the bound")
    return table("accuracy", columns, rows, ("error (ulp)", "allowed (ulp)", "of the bound"))


def matrix(facts: Matrix) -> str:
    """Op × backend × dtype."""
    names = list(next(iter(facts.values()), {}))
    columns = ["op", *(f"{name} {short}" for name in names for short in SHORT.values())]
    rows = []
    for op, by_backend in facts.items():
        cells: list[Cell] = [text(op)]
        for name in names:
            for dtype in SHORT:
                verdict = by_backend[name].get(dtype, "not known here")
                kind = verdict if verdict in SIGNS else "no"
                cells.append((f'<span class="{kind}" title="{text(verdict)}">{SIGNS.get(verdict, "·")}</span>',
                              float(("no", "widened", "yes").index(kind))))  # fmt: skip
        rows.append(cells)
    return table("matrix", columns, rows)
