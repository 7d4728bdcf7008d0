"""`python -m benchmarks.speed`: pictures, table and scope of the page "How fast, and why", from kept figures.

The figures are those of the files in `results/` that hold elementwise ops at every size, the newest of each CPU.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trueno.ops import TABLE

from benchmarks.charts import BLUE, GREEN, GUIDES, RED, chart
from benchmarks.compare import Record
from benchmarks.report import RESULTS
from benchmarks.rows import ROWS, SIZES, text
from benchmarks.targets import is_op, least
from benchmarks.timing import geometric_mean

PAGE = GUIDES / "how-fast.md"
SHAPES = (*(text((n,)) for n in SIZES), text(ROWS))
COLOURS = (RED, BLUE, GREEN)
TICKS = (0.5, 1, 2, 5, 10, 20, 50, 100)
Cells = dict[str, dict[str, Record]]
"""By shape and op."""


def kept(folder: Path = RESULTS) -> dict[str, tuple[str, Cells]]:
    """By CPU: the date of its newest complete file, and the cells."""
    newest: dict[str, tuple[str, Cells]] = {}
    for path in sorted(folder.glob("*.json")):
        figures = json.loads(path.read_text(encoding="utf-8"))
        records = [Record(**r) for r in figures["records"] if r["group"] in ("elementwise", "reductions", "rows")]
        cells: Cells = {shape: {} for shape in SHAPES}
        for record in records:
            if record.shape in cells and record.value is not None:
                cells[record.shape][record.name] = record
        if all(cells.values()):
            newest[figures["machine"]["cpu"]] = (figures["machine"]["date"][:10], cells)
    return newest


def scope(results: Mapping[str, tuple[str, Cells]]) -> str:
    """The sentence that says which ops the figures are of, and in how many cells."""
    names = {
        name.replace(",", " ").split()[0] for _, cells in results.values() for here in cells.values() for name in here
    }
    *families, last = dict.fromkeys(op.family for op in TABLE.values() if op.name in names)
    counts = [len(here) for _, cells in results.values() for here in cells.values()]
    of = f"{len(names)} ops, those of the families {', '.join(families)} and {last}"
    cells = f"{min(counts)} to {max(counts)} cells for each size and CPU"
    return f"The figures are of {of}: {cells}, one for each choice of a parameter such as `activation`."


def rows(results: Mapping[str, tuple[str, Cells]]) -> list[tuple[str, ...]]:
    """The table: for each shape and CPU the geometric mean, how many cells reach the bar, and the lowest."""
    table = []
    for shape in SHAPES:
        for cpu, (_, cells) in results.items():
            records = list(cells[shape].values())
            mean = geometric_mean(r.value or 0.0 for r in records if is_op(r))
            level = sum((r.value or 0.0) >= least(r) for r in records)
            low = sorted(records, key=lambda r: r.value or 0.0)[:3]
            names = ", ".join(f"{r.name} {r.value:.2f}" for r in low)
            table.append((shape, cpu, f"{mean:.2f}×", f"{level} of {len(records)}", names))
    return table


def facts(results: Mapping[str, tuple[str, Cells]], shape: str) -> str:
    """What a picture shows, in words."""
    return "; ".join(
        f"{cpu}: " + ", ".join(f"{name} {record.value:.3g}" for name, record in cells[shape].items())
        for cpu, (_, cells) in results.items()
    )


def picture(shape: str) -> Path:
    """Where the picture of a shape lies."""
    return GUIDES / f"speed-{shape.replace(' ', '').replace('×', 'x')}.svg"


def draw(results: Mapping[str, tuple[str, Cells]], shape: str, path: Path) -> None:
    """A line an op, lowest ratio of any CPU last; a dot for each CPU."""
    names = sorted({name for _, cells in results.values() for name in cells[shape]})
    ratios = {cpu: [_ratio(cells[shape], name) for name in names] for cpu, (_, cells) in results.items()}
    order = sorted(range(len(names)), key=lambda k: min(values[k] for values in ratios.values()))
    size = (8.4, 0.17 * len(names) + 1.0)
    with chart(path, size, facts(results, shape), margin=1.5) as (ax,):
        ax.axvline(1, color="#888888", linewidth=0.8)
        for (cpu, values), colour in zip(ratios.items(), COLOURS, strict=False):
            ax.plot([values[k] for k in order], range(len(order)), "o", color=colour, markersize=3.5, label=cpu)
        ax.set(title="times as fast as the better of NumPy and PyTorch", xscale="log", ylim=(-1, len(names)))
        ax.set_xticks(TICKS, [str(t) for t in TICKS])
        ax.set_xticks([], minor=True)
        ax.set_yticks(range(len(order)), [names[k] for k in order], fontsize=7)
        ax.grid(axis="x", color="#dddddd", linewidth=0.5)
        ax.legend(loc="lower right", frameon=False)


def _ratio(cells: Mapping[str, Record], name: str) -> float:
    record = cells.get(name)
    return record.value if record and record.value is not None else float("nan")


def lines(table: Sequence[Sequence[Any]]) -> list[str]:
    """The table as Markdown."""
    head = ("size", "CPU", "geometric mean", "cells that win", "lowest")
    return [f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *table)]


def main() -> None:
    """Draw the pictures, and print the sentence and the table that the page quotes."""
    results = kept()
    for shape in SHAPES:
        draw(results, shape, picture(shape))
        print(picture(shape))
    print(scope(results), *lines(rows(results)), sep="\n")


if __name__ == "__main__":
    main()
