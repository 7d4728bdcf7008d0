"""`trueno warmup`: compile every kernel into the disk cache now, so that no first call has to wait."""

from time import perf_counter
from typing import Annotated

import typer

from trueno.cli import crew
from trueno.cli.plans import ready
from trueno.cli.report import find_dtypes, find_ops, progress, screen, write_json
from trueno.discovery import registry
from trueno.errors import ParameterError
from trueno.ops import TABLE
from trueno.select.available import select_best_available_backend
from trueno.text import duration

SHOWN = 10  # failures that are printed; --json has them all


def command(
    backend: Annotated[str, typer.Option(help="The backend to warm up; default: the best that is available.")] = "",
    dtype: Annotated[str, typer.Option(help="Types, separated by commas.")] = "float32,float64",
    ops: Annotated[str, typer.Option(help="Ops, separated by commas; default: all.")] = "",
    jobs: Annotated[int, typer.Option(help="Processes that compile; default: the CPUs this process may use.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compile all kernels to the disk cache.

    Needed once per machine and version; existing kernels are only loaded.  Exit code 1 if any failed.
    """
    if jobs < 0:
        raise ParameterError(f"--jobs is {jobs}; it must be 1 or more")
    name = backend.lower() or select_best_available_backend().name
    registry.load(name)
    work: list[crew.Work] = [(op.name, T, ()) for op in find_ops(ops) for T in find_dtypes(dtype)]
    count = min(jobs or crew.processors(), len(work))
    start = perf_counter()
    outcomes = warm(name, work, count)
    kernels = sum(o.done for o in outcomes)
    failures = [f for o in outcomes for f in o.failures]
    took = perf_counter() - start
    if json:
        rows = [{"op": o.op, "dtype": o.dtype, "kernels": o.done, "failures": o.failures} for o in outcomes]
        write_json(
            {"backend": name, "jobs": count, "seconds": took, "kernels": kernels, "failed": len(failures), "rows": rows}
        )
    else:
        console = screen()
        for failure in failures[:SHOWN]:
            console.print(f"failed: {failure}", soft_wrap=True, style="red")
        if len(failures) > SHOWN:
            console.print(f"… and {len(failures) - SHOWN} more (--json has them all)")
        verdict = f"{len(failures)} failed" if failures else "none failed"
        console.print(
            f"{kernels} kernels of {len({o.op for o in outcomes})} ops are ready on {name}, {verdict}; "
            f"{duration(took)} with {count} process{'es' if count > 1 else ''}",
            soft_wrap=True,
        )
    if failures:
        raise typer.Exit(1)


def warm(backend: str, work: list[crew.Work], jobs: int) -> list[crew.Outcome]:
    """Compile every item of `work`, with a progress bar; in this process if one job is enough."""
    outcomes = []
    with progress() as bar:
        task = bar.add_task(f"compiling for {backend}", total=len(work))
        if jobs > 1:
            for outcome in crew.compile_all(backend, work, jobs):
                outcomes.append(outcome)
                bar.advance(task)
        else:
            for name, dtype, keys in work:
                outcomes.append(crew.Outcome(name, dtype, *ready(backend, TABLE[name], dtype, keys)))
                bar.advance(task)
    order = {item[:2]: i for i, item in enumerate(work)}
    return sorted(outcomes, key=lambda o: order[o.op, o.dtype])
