"""One run of the benchmarks, from the machine's facts to the files."""

from collections.abc import Sequence
from pathlib import Path

import trueno
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import report
from benchmarks.compare import Record
from benchmarks.machine import Watch
from benchmarks.peers import ggml, torch
from benchmarks.rows import CALIBRATION, Cell, Plan, groups, wgpu
from benchmarks.targets import verdicts

WIDTH = 200  # of tables in a file or a pipe
ON_CUDA = ("cuda", "language_cuda", "engine_cuda", "gpus")
"""Groups that nothing but CUDA can measure."""


def _measured(cell: Cell) -> list[Record]:
    """A cell's records; one that fails is reported and does not end the run."""
    try:
        return cell.measure()
    except Exception as error:
        return [Record(cell.group, cell.name, cell.shape, problem=f"{type(error).__name__}: {error}")]


def run(
    wanted: Sequence[str],
    sizes: tuple[int, ...] | None,
    ops: Sequence[str] | None,
    quick: bool,
    threads: int,
    json: Path | None,
    dtype: str,
    keep: bool,
) -> int:
    """Measure these groups, print, and write to `json` and, if `keep`, to results/."""
    if quick:
        plan = Plan.short(sizes, dtype) if sizes else Plan.short(dtype=dtype)
    else:
        plan = Plan(sizes, dtype=dtype) if sizes else Plan(dtype=dtype)
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    if torch is None:
        console.print("[yellow]PyTorch is not installed: NumPy is the only peer[/]")
    else:
        torch.set_num_threads(threads)
    if "quant" in wanted and ggml.library() is None:
        console.print(f"[yellow]{ggml.MISSING}; figures of another machine are scaled instead[/]", soft_wrap=True)
    named = [group for group in wanted if group in ON_CUDA]
    if named and not (cuda := trueno.backends()["cuda"]).available:
        console.print(f"[yellow]{', '.join(named)}: not measured; cuda: {cuda.reason}[/]", soft_wrap=True)
    watch = Watch(threads)
    if "wgpu" in wanted:
        watch.facts["adapter"] = wgpu.adapter()
    for warning in watch.warnings():
        console.print(f"[yellow]Warning[/]: {warning}", soft_wrap=True)
    makers = groups()
    cells = {name: [c for c in makers[name](plan) if _asked(c, ops)] for name in makers if name in wanted}
    records: list[Record] = []
    columns = (TextColumn("{task.description:32}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as progress:
        task = progress.add_task("", total=sum(map(len, cells.values())))
        for group, listed in cells.items():
            measured: list[Record] = []
            for cell in listed:
                progress.update(task, description=cell.label, refresh=True)
                measured += _measured(cell)
                progress.advance(task)
            if measured:
                report.show_group(console, group, measured)
                console.print()
            records += measured
    facts, judged = watch.finish(), verdicts(records)
    report.show_summary(console, judged, records)
    console.print(", ".join(f"{k} {v}" for k, v in facts.items() if k != "versions"), soft_wrap=True, highlight=False)
    warnings = watch.warnings()
    for warning in warnings:
        console.print(f"[yellow]Warning[/]: {warning}", soft_wrap=True)
    for path in _paths(json, keep, facts):
        report.save_json(path, facts, judged, records)
        path.with_suffix(".md").write_text(report.markdown(facts, warnings, judged, records), encoding="utf-8")
        console.print(f"written: {path} and {path.with_suffix('.md').name}", soft_wrap=True, highlight=False)
    return int(any(r.problem for r in records))


def _asked(cell: Cell, ops: Sequence[str] | None) -> bool:
    return ops is None or cell.name == CALIBRATION or any(word in ops for word in cell.name.replace(",", " ").split())


def _paths(json: Path | None, keep: bool, facts: dict[str, object]) -> list[Path]:
    kept = [report.RESULTS / f"{report.stem(facts)}.json"] if keep else []
    return kept + ([json] if json else [])
