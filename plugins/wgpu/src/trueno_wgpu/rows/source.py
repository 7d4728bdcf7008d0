"""The shaders of an op's row program, as text: what golden files and `trueno_wgpu.rows.rowprogram` print."""

from functools import partial
from typing import Any

from trueno.backend import Lowering, Op, Program, lower

from trueno_wgpu.rows.multi_pass import MultiPass
from trueno_wgpu.rows.printer import THREADS, Printed


def planned(program: Program) -> Lowering:
    """Values that a later pass needs are computed again, unless that is dear: a GPU waits for memory, not for flops."""
    return lower(program, "memory")


def title(op: Op, layout: str) -> str:
    says = next(iter((op.doc or "").splitlines()), "")  # nothing under `python -OO`
    return f"{op.name}: {op.signature.text}, operands {layout}.  {says}".rstrip()


def is_flat(program: Program) -> bool:
    """Nothing folds and nothing is stored once a row: rows do not matter but for what is shared among elements."""
    return not program.folds and all(program.nodes[o].space == "e" for o in program.outputs)


def printed(
    op: Op,
    layout: str,
    static: tuple[tuple[str, Any], ...] = (),
    guarded: bool = False,
    schedule: str = "",
    alias: tuple[int, ...] = (),
) -> str:
    """Source of the shaders of one kernel, without a device.

    schedule: `flat`, `rows8`, `rows64`, `rows256` or `long`; by default `flat` or `rows256`, as the program is.
    alias: for each operand and result the first of them in the same buffer.
    """
    program = op.program(layout, **dict(static))
    schedule = schedule or ("flat" if is_flat(program) else "rows256")
    return "\n".join(p.shader.source for p in shaders(planned(program), title(op, layout), schedule, guarded, alias))


def shaders(plan: Lowering, title: str, schedule: str, guarded: bool, alias: tuple[int, ...]) -> tuple[Printed, ...]:
    """The shaders of a schedule, in the order in which they run."""
    printer = partial(MultiPass, plan, title, guarded=guarded, alias=alias)
    if schedule == "flat":
        return (printer().flat(),)
    if schedule == "long":
        parts = [printer().partial(k) for k in range(len(plan.passes))]
        return (*parts, printer().final()) if plan.row_outputs else tuple(parts)
    lanes = int(schedule.removeprefix("rows"))
    return (printer().rows(lanes, blocked=lanes == THREADS),)
