"""`trueno demo`: find the backends, run every op, check each against float64, compare with NumPy."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import typer
from rich.text import Text

import trueno
from trueno.cli import crew
from trueno.cli.doctor import show
from trueno.cli.examination import described
from trueno.cli.findings import backends as backend_lines
from trueno.cli.peers import numpy_peer
from trueno.cli.report import (
    Screen,
    find_ops,
    geometric_mean,
    given_width,
    progress,
    screen,
    table,
    times,
    words,
    write_json,
)
from trueno.cli.samples import Sample, sample
from trueno.cli.timing import race
from trueno.cli.warmup import warm
from trueno.discovery import registry
from trueno.errors import BackendUnavailable, TruenoError
from trueno.formats.lz4 import missing
from trueno.ops.op import Op
from trueno.select.available import automatic
from trueno.settings import settings
from trueno.testing.checks import rejected
from trueno.testing.expected import verdict
from trueno.text import duration, number

SIZES = (1_000, 100_000, 1_000_000)
DTYPE = "float32"
CELL_S = 0.02  # timing per op and size
COLD_S = 0.4  # a longer first call has compiled something


@dataclass
class Row:
    """One op at one size."""

    op: str
    size: int
    backend: str
    shapes: list[tuple[int, ...]]
    ok: bool = False
    worst: float | None = None  # error over the allowed error
    seconds: float | None = None
    numpy_seconds: float | None = None
    speedup: float | None = None
    error: str = ""


@dataclass
class Tally:
    """All rows, and their summary."""

    sizes: tuple[int, ...]
    rows: list[Row] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def wrong(self) -> list[Row]:
        return [r for r in self.rows if not r.ok]

    def speedup(self, size: int) -> float | None:
        return geometric_mean([r.speedup for r in self.rows if r.size == size and r.speedup])


def command(
    backend: Annotated[str, typer.Option(help="Run on this backend; default: the best that is available.")] = "",
    ops: Annotated[str, typer.Option(help="Ops, separated by commas; default: all.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run and check every op, and compare it with NumPy.

    Three sizes each; the results are checked against float64.  Exit code 1 if any result is wrong.
    """
    chosen = find_ops(ops)
    names = tuple(word.lower() for word in words(backend))
    named = names or settings.get("TRUENO_BACKEND")
    order = tuple(registry.load(name).name for name in named) or tuple(entry.name for entry in automatic())
    if not json:
        _show_backends(screen(), order)
    tally = run(chosen, order)
    if not tally.rows:
        why = "".join(f"; {name}: {reason}" for name, reason in tally.skipped.items())
        raise BackendUnavailable(f"{', '.join(order)}: none of the requested ops runs there{why}")
    if json:
        _write(tally, order)
    else:
        _show(tally, order, screen())
    if tally.wrong:
        raise typer.Exit(1)


def run(ops: Iterable[Op], order: tuple[str, ...], sizes: tuple[int, ...] = SIZES) -> Tally:
    """Every op at every size, each on the first backend of `order` that takes it."""
    start, tally, ops = perf_counter(), Tally(sizes), list(ops)
    hands: dict[str, str] = {}
    for op in ops:
        takers = [name for name in order if rejected(op, name, DTYPE) is None]
        if op.family == "compression" and (problem := missing()):  # their samples need a package
            tally.skipped[op.name] = problem
        elif takers:
            hands[op.name] = takers[0]
        else:
            reject = rejected(op, order[0], DTYPE)
            tally.skipped[op.name] = f"{order[0]}: {reject.detail or reject.code}" if reject else ""
    todo = [op for op in ops if op.name in hands]
    warmed = False
    with progress() as bar:
        task = bar.add_task("running", total=len(todo) * len(sizes))
        for i, op in enumerate(todo):
            bar.update(task, description=op.name)
            slowest = 0.0
            for size in sizes:
                row, first = _cell(op, hands[op.name], size)
                slowest = max(slowest, first)
                tally.rows.append(row)
                bar.advance(task)
            rest = todo[i + 1 :]
            if slowest > COLD_S and i and len(rest) > 3 and not warmed:
                warmed = True  # nothing is compiled yet: child processes do it in parallel
                bar.stop()
                _compile(rest, hands, sizes)
                bar.start()
    tally.seconds = perf_counter() - start
    return tally


def _compile(ops: list[Op], hands: dict[str, str], sizes: tuple[int, ...]) -> None:
    """Let child processes compile the kernels that the rest of the demo will call, and no more."""
    for backend in dict.fromkeys(hands[op.name] for op in ops):
        work: list[crew.Work] = []
        for op in (op for op in ops if hands[op.name] == backend):
            firsts = [sample(op, DTYPE, size).operands[0] for size in sizes]
            work.append((op.name, DTYPE, [(x.ndim, x.size.bit_length()) for x in firsts]))
        warm(backend, work, min(crew.processors(), len(work)))


def _cell(op: Op, backend: str, size: int) -> tuple[Row, float]:
    """Run, judge and time one op at one size; also return the time of its very first call."""
    inputs = sample(op, DTYPE, size)
    row = Row(op.name, size, backend, inputs.shapes)
    first = 0.0
    try:
        with trueno.use(backend):
            function = partial(getattr(trueno, op.name), *inputs.operands, **inputs.kwargs)
            start = perf_counter()
            result = function()
            first = perf_counter() - start
            row.ok, row.worst, row.error = _judge(op, backend, inputs, result)
            if row.ok:
                _time(op, inputs, function, result, row)
    except (TruenoError, ArithmeticError, RuntimeError, ValueError, TypeError, MemoryError) as error:
        row.ok, row.error = False, f"{type(error).__name__}: {error}"
    return row, first


def _judge(op: Op, backend: str, given: Sample, result: Any) -> tuple[bool, float, str]:
    results = result if isinstance(result, tuple) else (result,)
    accuracy = registry.load(backend).accuracy
    judged = verdict(op, given.operands, given.kwargs, DTYPE, results, accuracy, given.repeat)
    return judged.ok, judged.worst, "" if judged.ok else str(judged)


def _time(op: Op, given: Sample, function: Any, result: Any, row: Row) -> None:
    """Both sides write into an existing array where they can."""
    results = result if isinstance(result, tuple) else (result,)
    outs = tuple(np.empty(np.shape(r), np.asarray(r).dtype) for r in results)
    ours = partial(function, out=outs if len(outs) > 1 else outs[0])
    best = race({"trueno": ours, "numpy": numpy_peer(op, given.operands, given.kwargs)}, CELL_S)
    row.seconds, row.numpy_seconds = best["trueno"], best["numpy"]
    row.speedup = best["numpy"] / best["trueno"]


def _write(tally: Tally, order: tuple[str, ...]) -> None:
    write_json(
        {
            "backend": order[0],
            "backends": described(),
            "dtype": DTYPE,
            "rows": [asdict(row) for row in tally.rows],
            "skipped": tally.skipped,
            "summary": {
                "ops": len({r.op for r in tally.rows}),
                "wrong": sorted({r.op for r in tally.wrong}),
                "speedup": {size: tally.speedup(size) for size in tally.sizes},
                "seconds": tally.seconds,
            },
        }
    )


def _show_backends(console: Screen, order: tuple[str, ...]) -> None:
    show(backend_lines(described(), (), given_width(console)), console)
    console.print()
    device = registry.entries()[order[0]].devices
    isa = f" ({device[0].isa})" if device and device[0].isa else ""
    console.print(f"Running on {order[0]}{isa}, {DTYPE}, against NumPy {np.__version__}", soft_wrap=True)
    console.print()


def _show(tally: Tally, order: tuple[str, ...], console: Screen) -> None:
    headers = [h for size in tally.sizes for h in (number(size), "×")]
    rows = table("op", *headers, "check", right=tuple(headers))
    rows.columns[0].no_wrap = True
    by_op: dict[str, list[Row]] = {}
    for row in tally.rows:
        by_op.setdefault(row.op, []).append(row)
    for name, group in by_op.items():
        cells: list[Any] = []
        for row in group:
            fast = (row.speedup or 0) >= 1
            cells += [duration(row.seconds), Text(times(row.speedup), style="green" if fast else "yellow")]
        right = all(row.ok for row in group)
        elsewhere = "" if group[0].backend == order[0] else f" on {group[0].backend}"
        rows.add_row(
            name, *cells, Text(("right" if right else "WRONG") + elsewhere, style="green" if right else "bold red")
        )
    console.print(rows)
    console.print()
    for row in tally.wrong:
        console.print(f"{row.op} at {number(row.size)} on {row.backend}: {row.error}", style="red", soft_wrap=True)
    for name, reason in tally.skipped.items():
        console.print(f"{name} was left out, {reason}", style="yellow", soft_wrap=True)
    wrong = sorted({r.op for r in tally.wrong})
    verdict = f"{len(wrong)} wrong: {', '.join(wrong)}" if wrong else "all right"
    gains = ", ".join(f"{times(tally.speedup(size))} at {number(size)}" for size in tally.sizes)
    console.print(
        Text.assemble(
            (f"{len(by_op)} ops on {order[0]}: {verdict}. ", "bold red" if wrong else "bold green"),
            f"Speed-up over NumPy, geometric mean: {gains}. {tally.seconds:.0f} s.",
        ),
        soft_wrap=True,
    )
