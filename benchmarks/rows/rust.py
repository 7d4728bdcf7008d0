"""One call on 1000×1024, time a row, against what the Rust library publishes for a vector of 1 024."""

from collections.abc import Iterator
from functools import partial

from trueno.ops import TABLE

from benchmarks.compare import Record, ours
from benchmarks.inputs import arena
from benchmarks.rows import Cell, Plan
from benchmarks.timing import OURS, fastest, race

ROWS, N = 1000, 1024
SHAPE = f"{ROWS}×{N}"
PUBLISHED_NS = {"add": 85, "mul": 90, "dot": 95, "norm_l2": 110, "relu": 45, "gelu": 190}


def cells(plan: Plan) -> Iterator[Cell]:
    for name in PUBLISHED_NS:
        yield Cell("rust", name, SHAPE, partial(_one, name, plan))


def _one(name: str, plan: Plan) -> list[Record]:
    op, memory = TABLE[name], arena((ROWS, N))
    operands = memory.operands(op)
    call = ours(op, operands, {}, memory.out(op, operands, {}))
    seconds = fastest(race({OURS: call}, plan.budget))[OURS] / ROWS
    return [Record("rust", name, SHAPE, "s", seconds, seconds={"a row": seconds}, family=op.family)]
