"""The report's pictures: inline SVG by matplotlib, whose text and lines have the colour of the page around them."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from io import StringIO
from itertools import count
from math import log10
from typing import Any

from trueno.errors import BackendUnavailable
from trueno.report.facts import Point, Report, Roof
from trueno.text import duration, number

INK, SOFT = "#010203", "#040506"
"""Colours that stand for the page's own text colour and its softer one until the SVG is written."""
COLOURS = ("#3b82f6", "#e67e22", "#2ca47c", "#c2528b", "#9a7d0a", "#7e6bd6", "#d64545", "#5a8f29")
"""Of backends, in the order of the report: each is readable on white and on black."""
SEARCHED = 1.10
"""A choice is marked as regretted from here on, as a multiple of the fastest time."""


def matplotlib() -> Any:
    """The module; BackendUnavailable if it is not installed."""
    try:
        import matplotlib
    except ImportError as error:
        raise BackendUnavailable(
            f"report: the pictures need matplotlib ({error}). Install: pip install 'trueno[plot]'"
        ) from None
    return matplotlib


def colours(report: Report) -> dict[str, str]:
    """The colour of each backend."""
    return {b["name"]: COLOURS[i % len(COLOURS)] for i, b in enumerate(report.backends)}


@contextmanager
def _figure(width: float, height: float, rows: int = 1, columns: int = 1) -> Iterator[tuple[Any, Any]]:
    """A figure in inches with its axes, in the report's style; no window system is needed."""
    matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    style: Any = {
        "svg.fonttype": "none", "svg.hashsalt": "trueno", "font.size": 9, "axes.titlesize": 9.5, "text.color": INK,
        "axes.edgecolor": SOFT, "axes.labelcolor": INK, "xtick.color": SOFT, "ytick.color": SOFT,
        "xtick.labelcolor": INK, "ytick.labelcolor": INK, "grid.color": SOFT, "grid.alpha": 0.18,
        "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.facecolor": "none",
        "figure.facecolor": "none", "legend.frameon": False, "axes.axisbelow": True,
    }  # fmt: skip
    with rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.subplots(rows, columns, squeeze=False)


_numbers = count(1)


def _svg(figure: Any, label: str, titles: dict[str, str] | None = None) -> str:
    """The figure as an element of a page: its ids unlike those of other figures, its colours the page's.

    titles: by id of an artist (`set_gid`), the text that a pointer above it shows.
    """
    buffer = StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    prefix = f"f{next(_numbers)}-"
    text = re.sub(r'\bid="', f'id="{prefix}', text)
    text = re.sub(r'(xlink:href="|url\()#', rf"\1#{prefix}", text)
    text = text.replace(INK, "currentColor").replace(SOFT, "var(--soft)")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r"font: (?:[\w.]+ )?([\d.]+px) [^;\"]*", r"font-size: \1", text)
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)  # the page's own typeface
    for name, title in (titles or {}).items():
        for group, kind, inside in ((name, "point", f"<title>{escape(title)}</title>"), (f"name-{name}", "name", "")):
            opened = f'<g id="{prefix}{group}"'
            text = text.replace(f"{opened}>", f'{opened} class="{kind}" data-op="{escape(name)}">{inside}')
    head = re.sub(r' (?:width|height)="[^"]*pt"', "", text[: text.index(">") + 1])
    head = head.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1)
    return head + text[text.index(">") + 1 :]


def rate(value: float, unit: str) -> str:
    """`12.3 GB/s`."""
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= scale:
            return f"{value / scale:.3g} {prefix}{unit}/s"
    return f"{value:.3g} {unit}/s"


def roofline(report: Report) -> str:
    """Every op that computes, on the chosen backend, under the machine's roofs."""
    palette, points = colours(report), report.main()
    with_flops = [p for p in points if p.flops > 0]
    peaks = [r for r in report.roofs if r.kind == "flops"]
    memories = [r for r in report.roofs if r.kind == "bytes"]
    titles = {p.op: _title(p) for p in points}
    with _figure(10, 4.8) as (figure, grid):
        axes = grid[0, 0]
        x = [p.flops / p.bytes for p in with_flops]
        low, high = min([*x, 0.05]) / 1.6, max([*x, 20.0]) * 6
        _roofs(axes, peaks, memories, low, high)
        for p in with_flops:
            colour = palette.get(p.chosen, "#888888")
            y = p.flops / p.time / 1e9
            axes.plot(p.flops / p.bytes, y, "o", color=colour, ms=5.5, alpha=0.85, mew=0, gid=p.op)
        for p in _named(with_flops, report):
            place = p.flops / p.bytes, p.flops / p.time / 1e9
            axes.annotate(p.op, place, xytext=(5, 3), textcoords="offset points", fontsize=7.5, gid=f"name-{p.op}")
        used = [name for name in palette if any(p.chosen == name for p in with_flops)]
        for name in used:
            axes.plot([], [], "o", color=palette[name], label=name)
        axes.set(xscale="log", yscale="log", xlim=(low, high), xlabel="flops per byte", ylabel="GFLOP/s")
        axes.xaxis.set_major_formatter(_plain)
        axes.yaxis.set_major_formatter(_plain)
        if used or memories:
            axes.legend(loc="upper left")
        return _svg(figure, "roofline of this machine with every op on it", titles)


def _roofs(axes: Any, peaks: list[Roof], memories: list[Roof], low: float, high: float) -> None:
    top = max((r.rate for r in peaks), default=0.0)
    for roof, style in zip(sorted(memories, key=lambda r: -r.rate), ("-", "-.", ":"), strict=False):
        end, height = min(high, top / roof.rate) if top else high, roof.rate / 1e9
        if end > low:
            label = f"{roof.name}, {rate(roof.rate, 'B')}"
            axes.plot([low, end], [low * height, end * height], style, color=INK, lw=1.2, label=label)
    for roof in peaks:
        start = min((roof.rate / r.rate for r in memories), default=low)
        axes.plot([max(start, low), high], [roof.rate / 1e9] * 2, "-" if roof.rate == top else "--", color=INK, lw=1.2)
        axes.annotate(f"{roof.name}\n{rate(roof.rate, 'FLOP')}", (1, roof.rate / 1e9), xytext=(4, 0), fontsize=8,
                      xycoords=("axes fraction", "data"), textcoords="offset points",
                      va="bottom" if roof.rate == top else "top")  # fmt: skip


def _title(p: Point) -> str:
    parts = [f"{p.op} on {p.chosen}, {number(p.elements)} elements: {duration(p.time)}", rate(p.bytes / p.time, "B")]
    return ", ".join([*parts, *([rate(p.flops / p.time, "FLOP")] if p.flops else [])])


def _named(points: Sequence[Point], report: Report) -> list[Point]:
    """The points with their name to the right of them: those whose name covers no dot and no other name.

    Points far from the roofs come first.  Distances are in decades; a letter is some 0.055 wide.
    """
    places = {p.op: (log10(p.flops / p.bytes), log10(p.flops / p.time)) for p in points}
    chosen: list[Point] = []
    for p in sorted(points, key=lambda p: report.roof(p) / p.time):
        (x, y), wide = places[p.op], 0.055 * len(p.op) + 0.1
        dots = [at for op, at in places.items() if op != p.op]
        names = [(places[q.op], 0.055 * len(q.op) + 0.1) for q in chosen]
        if not any(x < a < x + wide and -0.05 < b - y < 0.2 for a, b in dots) and not any(
            x < a + w and a < x + wide and abs(y - b) < 0.2 for (a, b), w in names
        ):
            chosen.append(p)
    return chosen


def crossover(report: Report) -> str:
    """Seconds by size for each backend, the selector's choice ringed, in red where another was clearly faster."""
    curves, palette = report.curves(), colours(report)
    if not curves:
        return ""
    columns = min(4, len(curves))
    rows = -(-len(curves) // columns)
    with _figure(10, 2.3 * rows + 0.5, rows, columns) as (figure, grid):
        cells = list(grid.flat)
        drawn: dict[str, Any] = {}
        for axes, (name, points) in zip(cells, curves.items(), strict=False):
            for backend, colour in palette.items():
                line = [(p.elements, p.seconds[backend]) for p in points if backend in p.seconds]
                if line:
                    drawn[backend] = axes.plot(*zip(*line, strict=True), "-", color=colour, lw=1.5, marker=".", ms=5)[0]
            for p in points:
                if p.chosen in p.seconds:
                    late = p.regret > SEARCHED - 1
                    axes.plot(p.elements, p.time, "o", mfc="none", ms=8, mew=1.3, color="#d62728" if late else SOFT)
            axes.set(xscale="log", yscale="log", title=name)
            axes.xaxis.set_major_formatter(_elements)
            axes.yaxis.set_major_formatter(_seconds)
            axes.tick_params(labelsize=7.5)
            axes.minorticks_off()
        for axes in cells[len(curves) :]:
            axes.set_visible(False)
        figure.legend(drawn.values(), drawn.keys(), loc="outside lower center", ncols=max(len(drawn), 1))
        return _svg(figure, "seconds per call by size and backend, with the selector's choices")


def _seconds(value: float, _: int) -> str:
    return duration(value)


def _plain(value: float, _: int) -> str:
    return f"{value:g}"


def _elements(value: float, _: int) -> str:
    for scale, unit in ((1e6, " M"), (1e3, " k")):
        if value >= scale:
            return f"{value / scale:g}{unit}"
    return f"{value:g}"


def predictions(report: Report) -> str:
    """Predicted against measured seconds of every call that the selector's model priced."""
    palette = colours(report)
    pairs = {
        name: [(p.seconds[name], p.predicted[name]) for p in report.points if name in p.seconds and name in p.predicted]
        for name in palette
    }
    every = [t for line in pairs.values() for pair in line for t in pair]
    if not every:
        return ""
    with _figure(5.2, 4) as (figure, grid):
        axes, ends = grid[0, 0], (min(every) / 1.5, max(every) * 1.5)
        axes.plot(ends, ends, "-", color=SOFT, lw=1)
        for factor in (0.5, 2):
            axes.plot(ends, [factor * t for t in ends], ":", color=SOFT, lw=0.8)
        for name, line in pairs.items():
            if line:
                axes.plot(*zip(*line, strict=True), "o", color=palette[name], ms=3.5, alpha=0.7, mew=0, label=name)
        axes.set(xscale="log", yscale="log", xlabel="measured", ylabel="predicted", xlim=ends, ylim=ends)
        axes.xaxis.set_major_formatter(_seconds)
        axes.yaxis.set_major_formatter(_seconds)
        axes.legend(loc="upper left")
        return _svg(figure, "predicted and measured seconds")
