"""The same call writing over its operand and beside it: `out=x` against `out=y`.

Operands are such that the result is the operand: repeated calls in place see the same values forever
(gelu(x) is x for x in (8, 9), x + 0 is x, and softmax comes to rest at 1/n).
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
from trueno.ops import TABLE

from benchmarks.compare import Record, ours
from benchmarks.inputs import arena, values
from benchmarks.rows import Cell, Plan, text
from benchmarks.timing import fastest, median, race

NAMES = ("gelu", "softmax", "add")
SIZES = (1_024, 1_000_000)


def cells(plan: Plan) -> Iterator[Cell]:
    for n in SIZES:
        for name in NAMES:
            yield Cell("inplace", name, text((n,)), partial(_one, name, n, plan))


def _one(name: str, n: int, plan: Plan) -> list[Record]:
    op, memory = TABLE[name], arena((n,))
    x = values(("uniform", 8.0, 9.0), (n,))
    operands = (x, np.zeros_like(x)) if name == "add" else (x,)
    beside = memory.out(op, operands, {})
    calls = {"in place": ours(op, operands, {}, x), "beside": ours(op, operands, {}, beside)}
    runs = race(calls, plan.budget, tuple(calls))
    ratios = [run["in place"] / run["beside"] for run in runs]
    return [Record("inplace", name, text((n,)), "×", median(ratios), "", ratios, fastest(runs), op.family)]
