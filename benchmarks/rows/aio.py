"""What awaiting costs: `await trueno.aio.add(x, y)` over `trueno.add(x, y)`, on 1 024 elements of float32.

Both run in an event loop's thread, in batches that take turns.  Beside it stands what a hop to a worker thread and back
costs, which is what larger calls pay (`hop`), and the same for ops of other forms.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import repeat
from math import inf
from time import perf_counter
from typing import Any

import trueno
from trueno.ops import TABLE
from trueno.ops.op import Op

from benchmarks import inputs
from benchmarks.compare import Record
from benchmarks.rows import Cell, Plan, text
from benchmarks.timing import Budget

SHAPE = (1_024,)
OPS = ("add", "gelu", "softmax", "sum")
HOP = "hop"
BATCH = 200
ROUNDS = 30


def cells(plan: Plan) -> Iterator[Cell]:
    for name in OPS:
        yield Cell("aio", name, text(SHAPE), partial(_one, TABLE[name], plan))
    yield Cell("aio", HOP, text(SHAPE), partial(_hop, plan))


def _one(op: Op, plan: Plan) -> list[Record]:
    operands, keywords = inputs.arena(SHAPE).operands(op), inputs.required(op)
    return _record(
        op.name, op, partial(getattr(trueno.aio, op.name), *operands, **keywords), operands, keywords, plan.budget
    )


def _hop(plan: Plan) -> list[Record]:
    """The same addition, in a worker thread although it is small."""
    from trueno.aio.calls import away

    op = TABLE["add"]
    operands = inputs.arena(SHAPE).operands(op)
    return _record(HOP, op, partial(away, trueno.add, operands, {}), operands, {}, plan.budget)


def _record(
    name: str,
    op: Op,
    awaited: Callable[[], Awaitable[Any]],
    operands: tuple[Any, ...],
    given: dict[str, Any],
    budget: Budget,
) -> list[Record]:
    best = asyncio.run(_race(awaited, partial(getattr(trueno, op.name), *operands, **given), budget))
    beyond = best["await"] - best["call"]
    return [Record("aio", name, text(SHAPE), "s", beyond, seconds=best, family=op.family)]


async def _race(awaited: Callable[[], Awaitable[Any]], call: Callable[[], Any], budget: Budget) -> dict[str, float]:
    """Seconds each takes: the minimum over batches that alternate."""
    best = {"await": inf, "call": inf}
    await awaited()
    for _ in range(min(budget.rounds, ROUNDS) * budget.runs):
        start = perf_counter()
        for _ in repeat(None, BATCH):
            await awaited()
        middle = perf_counter()
        for _ in repeat(None, BATCH):
            call()
        end = perf_counter()
        best["await"] = min(best["await"], (middle - start) / BATCH)
        best["call"] = min(best["call"], (end - middle) / BATCH)
    return best
