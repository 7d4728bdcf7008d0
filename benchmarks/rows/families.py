"""What elementwise ops, reductions and row ops have in common: every op of some families at every shape."""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import product
from typing import Any

from trueno.ops import TABLE
from trueno.ops.op import Op

from benchmarks.compare import Record, measure, title
from benchmarks.inputs import arena, variants
from benchmarks.rows import Cell, Plan, text


def _one(group: str, op: Op, given: dict[str, Any], shape: tuple[int, ...], plan: Plan) -> list[Record]:
    memory = arena(shape)
    operands = memory.operands(op)
    return [measure(group, op, text(shape), operands, given, memory, plan.budget)]


def ops(*families: str) -> list[Op]:
    """The ops of some families, in the table's order."""
    return [op for op in TABLE.values() if op.family in families]


def cells(group: str, ops: Iterable[Op], shapes: Iterable[tuple[int, ...]], plan: Plan) -> Iterator[Cell]:
    """Shape by shape, so that the arrays of one are made once."""
    for shape, op in product(shapes, ops):
        for keywords in variants(op):
            yield Cell(group, title(op, keywords), text(shape), partial(_one, group, op, keywords, shape, plan))
