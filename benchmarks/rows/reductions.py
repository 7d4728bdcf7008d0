"""Reductions at every shape, and some on narrow rows and on a few long ones."""

from collections.abc import Iterator

from trueno.ops import TABLE

from benchmarks.rows import Cell, Plan, families
from benchmarks.rows.rowwise import NARROW

LONG = (16, 262_144)


def cells(plan: Plan) -> Iterator[Cell]:
    yield from families.cells("reductions", families.ops("reductions"), plan.shapes, plan)
    if not plan.quick:
        some = [TABLE[name] for name in ("sum", "max", "argmax", "norm_l2")]
        yield from families.cells("reductions", some, (*NARROW, LONG), plan)
