"""Row ops: one long row of every size, many rows, and softmax on narrow rows."""

from collections.abc import Iterator

from trueno.ops import TABLE

from benchmarks.rows import ROWS, Cell, Plan, families

NARROW = ((16_384, 64), (262_144, 4))


def cells(plan: Plan) -> Iterator[Cell]:
    yield from families.cells("rows", families.ops("normalization"), (*plan.lengths, ROWS), plan)
    yield from families.cells("rows", [TABLE["softmax"]], NARROW, plan)
