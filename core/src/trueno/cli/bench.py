"""`trueno bench OP`: one op, every backend that can run it, against NumPy and PyTorch.

A quick look for one question on one machine; published figures come from `make bench`.
"""

from contextvars import Context, copy_context
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer
from rich.text import Text

import trueno
from trueno.cli.peers import numpy_peer, torch_peer
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
from trueno.cli.timing import race
from trueno.discovery import registry
from trueno.dispatch.coerce import coerce_params, lower
from trueno.errors import KernelError
from trueno.ops.op import Op
from trueno.testing.cases import keywords
from trueno.testing.checks import rejected
from trueno.text import duration, number


@dataclass
class Run:
    """One size: seconds per call of each backend that could run it, and why the others could not."""

    size: int
    dtype: str
    shapes: list[tuple[int, ...]]
    seconds: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def command(
    op: Annotated[str, typer.Argument(help="The op.", show_default=False)],
    sizes: Annotated[str, typer.Option(help="Elements of the first operand.")] = "1000,100_000,1_000_000",
    backend: Annotated[str, typer.Option(help="Only these backends; default: all that are available.")] = "",
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    set_: SET = None,
    time: Annotated[float, typer.Option(help="Seconds of timing per size.", min=0.001, max=60)] = 0.5,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Time one op on every backend, beside NumPy and PyTorch.

    PyTorch only if it is installed.
    """
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
    if json:
        write_json(
            {"op": row.name, "signature": row.signature.text, "set": parameters, "runs": [asdict(r) for r in runs]}
        )
    else:
        _show(row, runs, names, parameters, screen())


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
    run.seconds = race(calls, time, within)
    return run


def _show(op: Op, runs: list[Run], backends: list[str], parameters: dict[str, Any], console: Screen) -> None:
    names = [name for name in (*backends, "numpy", "torch") if any(name in r.seconds for r in runs)]
    rows = table("elements", *names, right=("elements", *names))
    for run in runs:
        cells = []
        base = run.seconds["numpy"]
        for name in names:
            t = run.seconds.get(name)
            if t is None or name == "numpy":
                cells.append(Text(duration(t)))
                continue
            style = "green" if t <= base else "yellow"
            cells.append(Text.assemble(duration(t), (f" {times(base / t)}", style)))
        rows.add_row(number(run.size), *cells)
    settings = "".join(f", {name}={value}" for name, value in parameters.items())
    console.print(
        f"{op.name}: {op.signature.text}, {runs[0].dtype}{settings}; a call, and how many times faster than NumPy",
        style="bold",
    )
    console.print()
    console.print(rows)
    for name, reason in runs[0].left_out.items():
        console.print(f"{name} was left out: {reason}", style="yellow", soft_wrap=True)
