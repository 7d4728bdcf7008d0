"""A chart of a benchmark, drawn by matplotlib: time and bytes per second over the number of elements."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trueno.errors import BackendUnavailable, FileError, ParameterError
from trueno.remedies import install
from trueno.replacing import permit, replacing

KINDS = (".svg", ".png")


def check(path: Path) -> None:
    """Raise an error now if `draw` could not write this file, before minutes are spent on measuring."""
    if path.suffix.lower() not in KINDS:
        raise ParameterError(f"--plot {path}: the name must end with {' or '.join(KINDS)}")
    if not path.absolute().parent.is_dir():
        raise FileError(f"--plot {path}: there is no folder {path.absolute().parent}")
    try:
        import matplotlib  # noqa: F401 - whether it can be imported
    except ImportError as error:
        problem = f"--plot: matplotlib is not installed ({error})"
        raise BackendUnavailable(f"{problem}. Install: {install('plot')}") from None


def draw(rows: Sequence[dict[str, Any]], title: str, path: Path) -> None:
    """Write the chart, whole or not at all; FileError if it cannot be written."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    time, rate = figure.subplots(1, 2)
    for name in dict.fromkeys(row["backend"] for row in rows):
        own = sorted((row for row in rows if row["backend"] == name), key=lambda row: row["size"])
        sizes = [row["size"] for row in own]
        dashes = "--" if name in ("numpy", "torch") else "-"
        (line,) = time.plot(sizes, [row["seconds"] for row in own], dashes, marker="o", markersize=4, label=name)
        time.fill_between(
            sizes, [row["low"] for row in own], [row["high"] for row in own], color=line.get_color(), alpha=0.2
        )
        rate.plot(
            sizes,
            [row["gb_per_s"] for row in own],
            dashes,
            marker="o",
            markersize=4,
            color=line.get_color(),
            label=name,
        )
    time.set(title="time per call: median and quartiles", ylabel="seconds", yscale="log")
    rate.set(title="operands and results per second", ylabel="GB/s")
    rate.set_ylim(bottom=0)
    for axes in (time, rate):
        axes.set(xscale="log", xlabel="elements of the first operand")
        axes.grid(True, which="major", alpha=0.3)
    figure.legend(*time.get_legend_handles_labels(), loc="outside right center", frameon=False)  # covers no curve
    figure.suptitle(title)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    kind = path.suffix.lower()[1:]
    facts = {"Date": None} if kind == "svg" else {"Software": None}  # the same bytes from the same rows
    try:
        with replacing(path) as beside:
            figure.savefig(beside, format=kind, dpi=150, metadata=facts)
            permit(beside, path)
    except OSError as error:
        raise FileError(f"--plot {path}: {os.strerror(error.errno) if error.errno else error}") from None
