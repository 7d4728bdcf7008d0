"""The kernels of an op's row program, as golden files and `trueno_cuda.rows.rowprogram` print them."""

from typing import Any

import numpy as np
from trueno.backend import Lowering, Op, Program, lower

from trueno_cuda.ptx import Kernel, bf16, f16, f32, f64
from trueno_cuda.rows.flat import Flat
from trueno_cuda.rows.multi_pass import MultiPass
from trueno_cuda.rows.register_resident import RegisterResident
from trueno_cuda.rows.schedule import Schedule, parse

KINDS = {"float32": (f32, f32), "float64": (f64, f64), "float16": (f32, f16), "bfloat16": (f32, bf16)}
"""By the arrays' dtype: what is computed with, and what memory holds."""


def planned(program: Program, kind: str, narrow: bool = False) -> Lowering:
    """Registers keep whatever a later pass needs; a later pass computes it again, unless that is dear.

    narrow: memory holds fewer digits than values have, so that a later pass computes everything again.
    """
    return lower(program, "registers" if kind == "held" else "narrow" if narrow else "memory")


def is_flat(program: Program) -> bool:
    """Nothing folds and nothing is stored once a row: rows do not matter but for what is shared among elements."""
    return not program.folds and all(program.nodes[o].space == "e" for o in program.outputs)


def kernels(
    program: Program, name: str, dtype: np.dtype[Any], schedule: Schedule, *, arch: str, wide: bool, guarded: bool
) -> tuple[Kernel, ...]:
    """The kernels of a schedule, in the order in which they run."""
    kind, stored = KINDS[dtype.name]
    plan = planned(program, schedule.kind, stored is not kind)
    match schedule.kind:
        case "flat":
            flat = Flat(plan, name, kind, wide=wide, guarded=guarded, stored=stored)
            return ((flat.batched if schedule.along_y else flat.flat)(arch, schedule.lanes, schedule.groups),)
        case "held":
            resident = RegisterResident(plan, name, kind, wide=wide, guarded=guarded, stored=stored)
            options = {"tails": schedule.tails, "along_y": schedule.along_y, "early": schedule.early}
            return (resident.rows(arch, schedule.lanes, schedule.groups, **options),)
    passes = MultiPass(plan, name, kind, wide=wide, guarded=guarded, stored=stored)
    if schedule.kind == "swept":
        return (passes.rows(arch, schedule.lanes, schedule.groups),)
    partials = [passes.partial(arch, i, schedule.lanes, schedule.groups) for i in range(len(plan.passes))]
    return (*partials, passes.final(arch, schedule.joiners)) if plan.row_outputs else tuple(partials)


HELD = "held256x4"
"""The schedule for which a program that folds is printed where none is named."""


def printed(
    op: Op,
    layout: str,
    static: tuple[tuple[str, Any], ...] = (),
    guarded: bool = False,
    schedule: str = "",
    arch: str = "sm_90",
    dtype: Any = np.float32,
    wide: bool = True,
) -> tuple[Kernel, ...]:
    """The kernels of one op and schedule, without a device.

    schedule: as `trueno_cuda.rows.schedule` names them; by default `flat`, or HELD of what folds.
    """
    program = op.program(layout, **dict(static))
    chosen = parse(schedule or ("flat" if is_flat(program) else HELD))
    return kernels(program, op.name, np.dtype(dtype), chosen, arch=arch, wide=wide, guarded=guarded)
