"""`trueno bench OP`: one op, every backend that can run it, against NumPy and PyTorch.

A quick look for one question on one machine; published figures come from `make bench`.
"""

import csv
import io
from contextvars import Context, copy_context
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.text import Text

import trueno
from trueno.cli.chart import check, draw
from trueno.cli.peers import numpy_peer, torch_peer
from trueno.cli.rates import FEW, Row, compare, earlier, flops, moved, rated, spread
from trueno.cli.report import (
    SET,
    Screen,
    find_dtypes,
    find_op,
    find_parameters,
    find_sizes,
    progress,
    screen,
    table,
    times,
    words,
    write_json,
)
from trueno.cli.samples import sample
from trueno.cli.timing import rounds
from trueno.discovery import registry
from trueno.dispatch.coerce import coerce_params, lower
from trueno.errors import KernelError
from trueno.ops.op import Op
from trueno.testing.cases import keywords
from trueno.testing.checks import rejected
from trueno.text import duration, number


class Form(StrEnum):
    """What `trueno bench -o` writes."""

    MD = "md"
    CSV = "csv"
    JSON = "json"
    JSONL = "jsonl"


@dataclass
class Run:
    """One size: the shortest seconds per call of each backend that could run it, and why the others could not."""

    size: int
    dtype: str
    shapes: list[tuple[int, ...]]
    seconds: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)


def command(
    op: Annotated[str, typer.Argument(help="The op.", show_default=False)],
    sizes: Annotated[str, typer.Option(help="Elements of the first operand.")] = "1000,100_000,1_000_000",
    backend: Annotated[str, typer.Option(help="Only these backends; default: all that are available.")] = "",
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    set_: SET = None,
    time: Annotated[float, typer.Option(help="Seconds of timing per size.", min=0.001, max=60)] = 0.5,
    output: Annotated[
        Form | None, typer.Option("--output", "-o", help="Print the rows in this form.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The same as -o json.")] = False,
    plot: Annotated[str, typer.Option(metavar="FILE", help="Draw a chart: FILE.svg or FILE.png.")] = "",
    against: Annotated[
        str, typer.Option("--compare", metavar="FILE", help="Compare with an earlier file of -o json.")
    ] = "",
) -> None:
    """Time one op on every backend, beside NumPy and PyTorch.

    PyTorch only if it is installed.  GB/s counts operands and results once each, GFLOP/s the op's own arithmetic.
    A comparison calls a row faster or slower if the quartiles of the two measurements do not overlap.
    A row of fewer than 5 rounds is unsure: a longer --time gives it more.
    """
    before = earlier(Path(against)) if against else None
    if plot:
        check(Path(plot))
    row, extents, T = find_op(op), find_sizes(sizes), find_dtypes(dtype)[0]
    parameters = _accepted(row, find_parameters(row, set_))
    names = [name.lower() for name in words(backend)]
    for name in names:
        registry.load(name)
    names = names or [name for name, entry in registry.entries().items() if entry.available]
    runs = []
    with progress() as bar:
        task = bar.add_task(row.name, total=len(extents))
        for size in extents:
            runs.append(measure(row, names, T, size, time, parameters))
            bar.advance(task)
    rows = [one for run in runs for one in run.rows]
    if before is not None:
        rows = compare(rows, before)
    if plot:
        draw(rows, f"{row.name}: {row.signature.text}, {T}", Path(plot))
    form = Form.JSON if json else output
    if form is None:
        _show(row, runs, rows, parameters, screen())
        return
    sizes_run = [{f.name: getattr(r, f.name) for f in fields(r) if f.name != "rows"} for r in runs]
    report = {"op": row.name, "signature": row.signature.text, "set": parameters, "runs": sizes_run, "rows": rows}
    _write(form, rows, report, screen())


def _accepted(op: Op, parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters from --set, in the op's form; ParameterError for invalid values."""
    if "format" in parameters and op.quantized:
        parameters["format"] = lower(parameters["format"])
    coerce_params(op, {p.name: p.typical for p in op.params} | keywords(op)[0] | parameters)
    return parameters


def measure(op: Op, backends: list[str], dtype: str, size: int, time: float, parameters: dict[str, Any]) -> Run:
    """Every backend's time at one size; all take turns, and all write into an existing array where they can."""
    inputs = sample(op, dtype, size, parameters=parameters)
    run = Run(size, dtype, inputs.shapes)
    calls: dict[str, Any] = {}
    within: dict[str, Context] = {}
    for name in backends:
        reject = rejected(op, name, dtype, inputs.kwargs if parameters else None)
        if reject is not None:
            run.left_out[name] = reject.detail or reject.code
            continue
        with trueno.use(name):
            within[name] = copy_context()
            function = partial(getattr(trueno, op.name), *inputs.operands, **inputs.kwargs)
            result = function()
        results = result if isinstance(result, tuple) else (result,)
        outs = tuple(np.empty(np.shape(r), np.asarray(r).dtype) for r in results)
        calls[name] = partial(function, out=outs if len(outs) > 1 else outs[0])
    if not calls:
        raise KernelError(f"{op.name}: no backend takes it: {'; '.join(f'{k}: {v}' for k, v in run.left_out.items())}")
    calls["numpy"] = numpy_peer(op, inputs.operands, inputs.kwargs)
    if peer := torch_peer(op, inputs.operands, inputs.kwargs):
        calls["torch"] = peer
    measured = {name: spread(times) for name, times in rounds(calls, time, within).items()}
    run.seconds = {name: float(row["best"]) for name, row in measured.items()}
    what = {"op": op.name, "dtype": dtype, "size": size, "shapes": [list(s) for s in run.shapes], "set": parameters}
    what |= {"bytes": moved(op, inputs.operands, results), "flops": flops(op, run.shapes, inputs.kwargs)}
    base = float(measured["numpy"]["seconds"])
    run.rows = [rated({**what, "backend": name, **row}, base) for name, row in measured.items()]
    return run


def _show(op: Op, runs: list[Run], rows: list[Row], parameters: dict[str, Any], console: Screen) -> None:
    compared = "verdict" in rows[0]
    more = ("before", "ratio", "range", "") if compared else ("× NumPy", "GB/s", "GFLOP/s")
    shown = table("elements", "backend", "median", "±", *more, right=("elements", "median", "±", *more[:3]))
    shown.columns[1].no_wrap = True
    if compared:
        shown.padding, shown.columns[-1].no_wrap = (0, 1, 0, 0), True  # eight columns fit into 80 letters
    size = None
    for row in rows:
        if size not in (None, row["size"]):
            shown.add_row()
        first, size = size != row["size"], row["size"]
        shown.add_row(number(size) if first else "", *cells(row, compared))
    settings = "".join(f", {name}={value}" for name, value in parameters.items())
    console.print(f"{op.name}: {op.signature.text}, {runs[0].dtype}{settings}", style="bold", soft_wrap=True)
    meaning = "ratio: of this median to the earlier one" if compared else "× NumPy: how many times as fast"
    console.print(f"median: of a call, ± half the quartiles' distance; {meaning}")
    console.print()
    console.print(shown)
    if compared and all(row["verdict"] is None for row in rows):
        console.print(
            "The earlier file has none of these calls: their op, dtype, sizes and parameters.", style="yellow"
        )
    elif compared and any(row["verdict"] == "unsure" for row in rows):
        console.print(f"unsure: fewer than {FEW} rounds; a longer --time gives more", style="dim")
    for name, reason in runs[0].left_out.items():
        console.print(f"{name} was left out: {reason}", style="yellow", soft_wrap=True)


def cells(row: Row, compared: bool) -> list[Any]:
    """A row's cells behind the number of elements."""
    ratio = row["times_numpy"]
    style = "" if row["backend"] == "numpy" else "green" if (ratio or 0) >= 1 else "yellow"
    result: list[Any] = [
        row["backend"],
        duration(row["seconds"]),
        f"{(row['high'] - row['low']) / 2 / row['seconds']:.0%}",
    ]
    if not compared:
        rate = "–" if row["gflop_per_s"] is None else f"{row['gflop_per_s']:.3g}"
        faster = Text("" if row["backend"] == "numpy" else times(ratio), style=style)
        return [*result, faster, f"{row['gb_per_s']:.3g}", rate]
    if row["verdict"] is None:
        return [*result, "–", "", "", ""]
    colour = {"faster": "green", "slower": "red"}.get(row["verdict"], "dim")
    span = f"{row['ratio_low']:.2f}–{row['ratio_high']:.2f}"
    return [*result, duration(row["before"]), f"{row['ratio']:.2f}×", span, Text(row["verdict"], style=colour)]


def _write(form: Form, rows: list[Row], report: dict[str, Any], console: Screen) -> None:
    """The report in a form for programs, or for a page."""
    if form is Form.JSON:
        write_json(report)
    elif form is Form.JSONL:
        for row in rows:
            write_json(row, indent=None)
    else:
        flat = [[flattened(value) for value in row.values()] for row in rows]
        text = io.StringIO()
        if form is Form.CSV:
            csv.writer(text, lineterminator="\n").writerows([list(rows[0]), *flat])
        else:
            lines = [list(rows[0]), ["---"] * len(rows[0]), *flat]
            text.writelines("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)
        console.lines(text.getvalue().rstrip("\n"))


def flattened(value: Any) -> str:
    """A value of a row as one cell: shapes as `1000x1000 1000`, parameters as `eps=0.5`, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, dict):
        return " ".join(f"{name}={inner}" for name, inner in value.items())
    if isinstance(value, list):
        return " ".join("x".join(map(str, shape)) or "scalar" for shape in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
