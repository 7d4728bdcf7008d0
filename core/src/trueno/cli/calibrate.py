"""`trueno calibrate`: measure the backends here, so that choices use measured and not declared speeds."""

from math import isfinite
from time import perf_counter
from typing import Annotated

import numpy as np
import typer

from trueno.calibrate import measure
from trueno.calibrate.run import Run, take
from trueno.cli import crew
from trueno.cli.report import find_dtypes, progress, screen, table, words, write_json
from trueno.cli.warmup import warm
from trueno.errors import ParameterError
from trueno.select import calibration, cost
from trueno.text import duration, number

SHOWN = 10  # sentences of a kind that are printed; --json has them all


def command(
    budget: Annotated[
        float, typer.Option("--seconds", help="Seconds of timing, about; compiling comes on top.", min=0.1)
    ] = 60,
    backend: Annotated[str, typer.Option(help="Only these backends; default: all that choose themselves.")] = "",
    dtype: Annotated[str, typer.Option(help="Types, separated by commas.")] = "float32,float64",
    merge: Annotated[str, typer.Option(metavar="FILE", help="Import what another run here measured.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be measured, and stop.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also say where declared speeds are off, for authors of backends.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure the backends' speeds here and keep them.

    One op of each class is timed at several sizes, cheap and common ones first.  Ctrl-C keeps what was measured until
    then.  Run it again when the machine is idle: a speed that has changed by less than a tenth stays.
    """
    if not isfinite(budget):
        raise ParameterError(f"--seconds is {budget}; give a number of seconds, such as 60")
    if merge:
        count = take(merge)
        _say(json, {"merged": count, "file": merge}, f"{count} speeds imported from {merge}")
        return
    run = Run(measure.available([name.lower() for name in words(backend)]), find_dtypes(dtype))
    if dry_run:
        _show_items(run.items, json)
        return
    start = perf_counter()
    interrupted = False
    try:
        run.skipped += _compile(run)
        with progress() as bar:
            task = bar.add_task("measuring", total=len(run.items))
            for item in run.measuring(budget):
                bar.update(task, description=str(item), completed=run.done)
            bar.update(task, completed=run.done)
    except KeyboardInterrupt:
        interrupted = True
    kept = run.keep(start)
    took = perf_counter() - start
    missing, whole = run.missing(), run.seconds_of_all()
    misdeclared = run.misdeclared() if json or verbose else []
    if json:
        file = calibration.file()
        write_json(
            {"backends": run.backends, "seconds": took, "interrupted": interrupted, "file": str(file) if kept else None,
             "rows": [_plain(row) for row in run.rows], "skipped": run.skipped, "not_measured": missing,
             "seconds_of_all": whole or None, "unsteady": run.unsteady(), "declared": misdeclared}
        )  # fmt: skip
    else:
        _show(run.rows, run.backends)
        console = screen()
        _list("left out", run.skipped)
        needs = f"did not fit into --seconds (all of it needs about {whole}, or more)" if whole else "not measured"
        _list(f"{needs}; smaller sizes answer, or what is declared", missing)
        _list("unsteady, as the machine was busy; run it again when it is not", run.unsteady())
        _list("declared and measured differ", misdeclared)
        where = f"kept in {calibration.file()}" if kept else "not kept: there is no cache folder that can be used"
        stopped = "interrupted; " if interrupted else ""
        console.print(f"{stopped}{len(run.rows)} speeds in {duration(took)}, {where}", soft_wrap=True)
    if interrupted:
        raise typer.Exit(130)


def _compile(run: Run) -> list[str]:
    """Compile the necessary kernels, with several processes where a backend compiles; a sentence per failure."""
    failures = []
    for name in run.backends:
        needed: dict[tuple[str, str], set[tuple[int, int]]] = {}
        for item in run.items:
            if name in item.backends:
                needed.setdefault((item.op.name, item.dtype), set()).update(measure.keys(item))
        todo: list[crew.Work] = [(op, dtype, sorted(keys)) for (op, dtype), keys in needed.items()]
        if not todo:
            continue
        start = perf_counter()
        outcomes = warm(name, todo[:1], 1)
        if perf_counter() - start > 0.25 and todo[1:]:  # it compiles: loading a kernel never takes this long
            outcomes += warm(name, todo[1:], crew.processors())
        failures += [f"{name}: {failure}" for outcome in outcomes for failure in outcome.failures]
    return failures


def _plain(row: calibration.Row) -> dict[str, object]:
    r = row.rates
    return {
        "backend": row.backend, "class": row.kind, "dtype": row.dtype, "band": row.band, "launch_s": r.launch_s,
        "flops": r.flops, "bytes": r.bytes, "link_s": r.link_s, "link_bytes": r.link_bytes,
        "samples": row.samples, "spread": row.spread, "measured": row.measured,
    }  # fmt: skip


def _say(json: bool, report: dict[str, object], sentence: str) -> None:
    if json:
        write_json(report)
    else:
        screen().print(sentence, soft_wrap=True)


def _list(title: str, sentences: list[str]) -> None:
    console = screen()
    if sentences:
        console.print(f"{title}:")
    for sentence in sentences[:SHOWN]:
        console.print(f"  {sentence}", soft_wrap=True)
    if len(sentences) > SHOWN:
        console.print(f"  … and {len(sentences) - SHOWN} more (--json has them all)")


def _show(rows: list[calibration.Row], names: list[str]) -> None:
    """Nanoseconds for each thousand elements would say little: a table of what a typical call takes, by the model."""
    if not rows:
        return
    by_key = {row.key: row for row in rows}
    shown = table("class", "dtype", "band", "elements", *names, right=("elements", *names))
    for kind, dtype, band in dict.fromkeys((r.kind, r.dtype, r.band) for r in rows):
        cells, at = [], 0.0
        for name in names:
            row = by_key.get((name, kind, dtype, band))
            if row is None:
                cells.append("–")
                continue
            *_, call = measure.calls(measure.typical(name, dtype)[kind], np.dtype(dtype), band)
            at = cost.work(call).elements
            cells.append(duration(cost.seconds(row.rates, cost.work(call))))
        shown.add_row(kind, dtype, band, number(int(at)), *cells)
    screen().print(shown)


def _show_items(items: list[measure.Item], json: bool) -> None:
    rows = [
        {"class": i.kind, "op": i.op.name, "dtype": i.dtype, "band": i.band, "backends": list(i.backends)}
        for i in items
    ]
    if json:
        write_json({"would_measure": rows})
        return
    shown = table("class", "op", "dtype", "band", "backends")
    for i in items:
        shown.add_row(i.kind, i.op.name, i.dtype, i.band, ", ".join(i.backends))
    screen().print(shown)
    screen().print(f"{len(items)} measurements; nothing was run")
