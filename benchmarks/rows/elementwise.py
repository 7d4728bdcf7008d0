"""Arithmetic, mathematics and activations at every shape."""

from collections.abc import Iterator

from benchmarks.rows import Cell, Plan, families


def cells(plan: Plan) -> Iterator[Cell]:
    ops = families.ops("arithmetic", "mathematics", "activations")
    return families.cells("elementwise", ops, plan.shapes, plan)
