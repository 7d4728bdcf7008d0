"""`trueno report`: a page about this machine: roofline, choices, calibration, accuracy, what each backend takes."""

import platform
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import typer

import trueno
from trueno.calibrate.store import describe
from trueno.cli import crew, examination
from trueno.cli.matrix import matrix
from trueno.cli.report import find_ops, progress, screen
from trueno.cli.report_measure import Measuring, accuracy, roofs
from trueno.errors import ParameterError
from trueno.machine import cpu
from trueno.ops.op import Op
from trueno.replacing import permit, replacing
from trueno.report import pictures
from trueno.report.facts import Report
from trueno.report.page import page
from trueno.select import calibration, cost
from trueno.select.available import automatic
from trueno.text import duration

SIZES = (1_000, 16_000, 100_000, 1_000_000)
QUICK_SIZES = (1_000, 10_000, 100_000)
QUICK_CURVES, CURVES = 4, 12
"""Ops whose curves are drawn."""
SECONDS = {True: (12.0, 15.0), False: (110.0, 155.0)}
"""From the beginning, until when times and then accuracy are measured, quickly and thoroughly; pictures come on top."""
LEAST = 2.0
"""Seconds of judging, however late it is."""
TYPICAL = (
    "add", "softmax", "sum", "matmul", "exp", "layer_norm", "quant_matvec", "sin", "transpose", "attention", "gelu",
    "argmax",
)  # fmt: skip
"""Ops that are drawn first; if `--ops` leaves them out, others take their place."""


def command(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page to write.")] = Path("trueno-report.html"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes: 20 seconds, not 3 minutes.")] = False,
    ops: Annotated[str, typer.Option(help="Ops, separated by commas; default: all.")] = "",
    seed: Annotated[int, typer.Option(help="Of the operands that are judged.", min=0)] = 0,
) -> None:
    """Write a page about this machine: every op's speed, the choices of the selector, and accuracy.

    One HTML file, which needs no network. Needs matplotlib: the extra `plot`.
    """
    chosen = find_ops(ops)
    pictures.matplotlib()
    if not out.parent.is_dir() or out.is_dir():
        what = "is a folder" if out.is_dir() else "cannot be written: its folder does not exist"
        raise ParameterError(f"report: {out} {what}; give the name of a file")
    start = perf_counter()
    facts = collect(chosen, quick, seed)
    text = page(facts)
    try:
        with replacing(out) as beside:
            beside.write_text(text, "utf-8")
            permit(beside, out)
    except OSError as error:
        raise ParameterError(f"report: {out} cannot be written: {error.strerror or error}") from None
    wrong = [j for j in facts.judged if not j.ok]
    remark = f", {len(wrong)} results are wrong" if wrong else ""
    screen().print(
        f"{out}: {len(facts.main())} ops on {len(facts.backends)} backends, {len(facts.points)} times and "
        f"{len(facts.judged)} results judged in {duration(perf_counter() - start)}{remark}",
        soft_wrap=True,
    )
    if wrong:
        raise typer.Exit(1)


def collect(ops: Sequence[Op], quick: bool, seed: int) -> Report:
    """Measure everything."""
    start = perf_counter()
    here = examination.described()
    names = [entry.name for entry in automatic()]
    drawn = _drawn(ops, quick)
    sizes = QUICK_SIZES if quick else SIZES
    some = (sizes[-1],)
    plan = [(op, sizes if op.name in drawn or not quick else some) for op in ops]
    plan.sort(
        key=lambda item: item[0].name not in drawn
    )  # their curves are complete, whatever the time limit leaves out
    dtypes = ("float32",) if quick else ("float32", "float64")
    times, judging = SECONDS[quick]
    with progress() as bar:
        steps = sum(len(s) for _, s in plan) + len(dtypes) * len(names) * len(ops)
        task = bar.add_task("measuring", total=steps)

        def tick(name: str) -> None:
            bar.update(task, advance=1, description=name[:24])

        measuring = Measuring(names, quick, tick)
        before = roofs(quick)
        points = measuring.points(plan, start + times)
        judged, notes = accuracy(ops, names, dtypes, seed, max(start + judging, perf_counter() + LEAST), tick)
        tops = [max(pair, key=lambda roof: roof.rate) for pair in zip(before, roofs(quick), strict=True)]
        bar.update(task, completed=steps, description="drawing")
        takes = matrix(ops)
    shown = [{"name": b["name"], "says": b["reason"] or _device(b) or b["status"]} for b in here]
    shown.sort(key=lambda b: names.index(b["name"]) if b["name"] in names else len(names))
    return Report(f"Trueno on {cpu()}", _machine(names), shown, tops, points, drawn, judged, takes, describe(),
                  _speeds(), measuring.notes + notes)  # fmt: skip


def _drawn(ops: Sequence[Op], quick: bool) -> list[str]:
    """The ops whose curves are drawn: well-known ones first, then one of each further class."""
    by_name = {op.name: op for op in ops}
    chosen = [name for name in TYPICAL if name in by_name]
    classes = {cost.op_class(by_name[name]) for name in chosen}
    for op in ops:
        if cost.op_class(op) not in classes:
            classes.add(cost.op_class(op))
            chosen.append(op.name)
    return chosen[: QUICK_CURVES if quick else CURVES]


def _device(backend: dict[str, Any]) -> str:
    return ", ".join(" ".join(filter(None, (d["name"], d["isa"]))) for d in backend["devices"])


def _machine(names: Sequence[str]) -> dict[str, str]:
    return {
        "processor": f"{cpu()}, {crew.processors()} used",
        "system": platform.platform(),
        "software": f"trueno {trueno.__version__}, Python {platform.python_version()}, NumPy {np.__version__}",
        "measured": ", ".join(names),
    }


def _speeds() -> list[dict[str, Any]]:
    return [
        {"backend": r.backend, "class": r.kind, "dtype": r.dtype, "band": r.band, "launch": r.rates.launch_s,
         "flops": r.rates.flops, "bytes": r.rates.bytes, "spread": r.spread, "measured": r.measured}
        for r in calibration.load().values()
    ]  # fmt: skip
