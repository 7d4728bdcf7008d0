"""One call on 1000×1024, time a row, against what the Rust library publishes for a vector of 1 024."""

from collections.abc import Iterator
from functools import partial

from benchmarks.compare import Record, ours
from benchmarks.inputs import arena
from benchmarks.rows import Cell, Plan
from benchmarks.timing import race
from trueno.ops import TABLE

ROWS, N = 1000, 1024
PUBLISHED_NS = {"add": 85, "mul": 90, "dot": 95, "norm_l2": 110, "relu": 45, "gelu": 190}


def cells(plan: Plan) -> Iterator[Cell]:
    for name in PUBLISHED_NS:
        yield Cell(f"{name} {ROWS}×{N}, a row", partial(_one, name, plan))


def _one(name: str, plan: Plan) -> list[Record]:
    op, memory = TABLE[name], arena((ROWS, N))
    operands = memory.operands(op)
    call = ours(op, operands, {}, memory.out(op, operands, {}))
    seconds = min(race({"trueno": call}, plan.budget)["trueno"] for _ in range(plan.budget.runs)) / ROWS
    return [Record("rust", name, f"{ROWS}×{N}", "s", seconds, seconds={"trueno, a row": seconds}, family=op.family)]
