"""Light ops on two threads, by the lower quartile of many short windows: the best alone hides a pool that often loses.

A window is 0.3 ms of calls of one contestant; a piece that the wrong core takes, or a worker that sleeps, makes some of
them slow.  The minimum, which other groups quote, would not show it.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
from trueno.ops import TABLE

from benchmarks.compare import OURS, Record, ours, ways, wrong
from benchmarks.inputs import arena, variants
from benchmarks.rows import Cell, Plan, text
from benchmarks.timing import once, settle

OPS = ("add", "abs", "relu")
N = 100_000
LEAST = 1.1
"""The better peer's quartile over ours."""
WINDOW_S = 0.3e-3
WINDOWS = 200


def cells(plan: Plan) -> Iterator[Cell]:
    for name in OPS:
        yield Cell("quartiles", name, text((N,)), partial(_one, name, plan))


def _one(name: str, plan: Plan) -> list[Record]:
    op, memory = TABLE[name], arena((N,))
    operands, given = memory.operands(op), variants(op)[0]
    out = memory.out(op, operands, given)
    calls = {OURS: ours(op, operands, given, out), **ways(op, operands, given, out, memory)}
    problem = ", ".join(wrong(op, operands, out, calls))
    times = {who: max(1, round(WINDOW_S / once(call, 20))) for who, call in calls.items()}
    windows: dict[str, list[float]] = {who: [] for who in calls}
    for _ in range(20 if plan.quick else WINDOWS):
        for who, call in calls.items():
            call()  # which may wake a worker
            windows[who].append(once(call, times[who]))
            settle()
    quartile = {who: float(np.quantile(seconds, 0.25)) for who, seconds in windows.items()}
    peer = min((who for who in calls if who != OURS), key=quartile.__getitem__)
    ratio = quartile[peer] / quartile[OURS]
    return [Record("quartiles", name, text((N,)), "×", ratio, peer, [ratio], quartile, problem=problem)]
