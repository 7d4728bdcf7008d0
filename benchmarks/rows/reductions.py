"""Reductions at every shape."""

from collections.abc import Iterator

from benchmarks.rows import Cell, Plan, families


def cells(plan: Plan) -> Iterator[Cell]:
    return families.cells("reductions", families.ops("reductions"), plan.shapes, plan)
