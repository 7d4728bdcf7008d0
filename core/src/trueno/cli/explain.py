"""`trueno explain`: which backend would run an op on operands of these shapes, and why not another."""

from contextlib import nullcontext
from dataclasses import replace
from textwrap import wrap
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from rich.text import Text

from trueno.cli.findings import WHOLE
from trueno.cli.report import (
    SET,
    Screen,
    find_dtypes,
    find_op,
    find_parameters,
    given_width,
    screen,
    table,
    write_json,
)
from trueno.dispatch.asking import use
from trueno.errors import ParameterError
from trueno.escape import escaped
from trueno.explaining import explain
from trueno.select.decision import Decision
from trueno.select.reasons import REASONS
from trueno.testing.halves import declare, known
from trueno.text import duration, number

DIGITS = 13
"""The most of an extent; Python does not parse numbers of thousands of digits."""
LONG = 40
"""The letters of a candidate's own sentence from which on it stands below the table."""


def command(
    op: Annotated[str, typer.Argument(help="The op.", show_default=False)],
    shapes: Annotated[
        list[str], typer.Argument(help="The operands' shapes in elements: 512x512 1000.", show_default=False)
    ],
    dtype: Annotated[str, typer.Option(help="The operands' type.")] = "float32",
    set_: SET = None,
    backend: Annotated[str, typer.Option(help="Backends to request by name, separated by commas.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show which backend would run a call, and why not another.

    `trueno explain matmul 512x512 512x512`: nothing is run.  Every candidate has a reason, and capable ones a predicted
    time.
    """
    row, T = find_op(op), find_dtypes(dtype, ("float32", "float64", *known()))[0]
    declare(T)
    rows = (*(("axis",) if row.over and not row.structured else ()), *(("keepdims",) if row.reduces else ()))
    parameters = find_parameters(row, set_, also=rows)
    for p in row.params:
        if p.name not in parameters and (p.required or p.default not in (p.choices or (p.default,))):
            parameters[p.name] = 1.0 if p.symbolic else p.typical  # the value of a float does not affect the choice
    blocks = row.blocks(parameters)
    operands = [
        _operand(spec.holds(np.dtype(T)), spec.held(row.name, _shape(text), blocks))
        for text, spec in zip(shapes, [*row.signature.inputs, *[row.signature.inputs[-1]] * len(shapes)], strict=False)
    ]
    if len(operands) != len(row.operands):
        count, given = len(row.operands), len(shapes)
        wanted = f"{count} operand{'s' * (count != 1)}, {', '.join(row.operands)}"
        raise ParameterError(f"explain: {row.name} takes {wanted}; got {given} shape{'s' * (given != 1)}")
    names = [word.strip() for word in backend.split(",") if word.strip()]
    with use(*names) if names else nullcontext():  # otherwise TRUENO_BACKEND applies
        decision = explain(row.name, *operands, **parameters)
    if names and decision.by == "named":
        decision = replace(decision, origin="--backend")
    if json:
        write_json(decision.json())
    else:
        show(decision, screen())


def show(decision: Decision, console: Screen) -> None:
    """The decision: on a terminal as a table that fits it, with long reasons below it, and in a pipe as lines, one per
    candidate.
    """
    head, _, rest = str(decision).partition("\n")
    width = given_width(console)
    if not rest or width is None:
        console.lines(str(decision))
        return
    console.print(Text(escaped(head), style="bold"))
    console.print()
    below = {c.name: c.detail for c in decision.candidates if len(c.detail) > LONG and REASONS.get(c.code)}
    moves = any(c.moved for c in decision.candidates)
    rows = table("backend", "reason", "predicted", "from", *["moves"] * moves, "meaning", right=("predicted", "moves"))
    for column in rows.columns[:-1]:
        column.no_wrap = True
    for c in decision.candidates:
        chosen, able = c.name == decision.chosen, c.name in decision.ranking
        rows.add_row(
            Text(c.name, style="bold green" if chosen else ""),
            Text(c.code, style="green" if chosen else "" if able else "yellow"),
            "" if c.seconds is None else duration(c.seconds),
            c.source,
            *[f"{number(c.moved)} B" if c.moved else ""] * moves,
            (REASONS.get(c.code, "") or c.detail) if c.name in below else c.detail or REASONS.get(c.code, ""),
        )
    console.print(rows)
    if below:
        console.print()
    for name, sentence in below.items():
        for line in wrap(escaped(f"{name}: {sentence}"), width, subsequent_indent="    ", **WHOLE):
            console.print(line, soft_wrap=True)


def _operand(dtype: npt.DTypeLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """An array of this shape that takes no memory."""
    try:
        return np.broadcast_to(np.zeros((), dtype), shape)
    except ValueError as error:  # too many axes, or elements
        written = "x".join(map(str, shape))
        written = written if len(written) < 60 else f"{written[:57]}…"
        raise ParameterError(
            f"explain: NumPy has no array of shape {written}, of {len(shape)} axes: {error}; give a smaller one"
        ) from None


def _shape(text: str) -> tuple[int, ...]:
    parts = [] if text in ("", "()", "scalar") else text.lower().replace("×", "x").split("x")
    if not all(p.isdecimal() and len(p) <= DIGITS and int(p) < 1 << 40 for p in parts):
        excerpt = text if len(text) < 60 else f"{text[:57]}…"
        raise ParameterError(f"explain: {excerpt!r} is not a shape; write 1000, 512x512 or scalar")
    return tuple(int(p) for p in parts)
