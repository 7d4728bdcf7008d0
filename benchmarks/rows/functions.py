"""Elementary functions alone: the kernel's nanoseconds an element on one thread, of arrays that L2 holds."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import trueno
from trueno.ops import TABLE

from benchmarks.compare import Record
from benchmarks.rows import Cell, Plan, text
from benchmarks.timing import bind, fastest, race

MOST_NS = {"exp": 0.14, "ln": 0.15, "tanh": 0.18, "sin": 0.15}
"""What an element may take where there is AVX-512."""
N = 100_000


def cells(plan: Plan) -> Iterator[Cell]:
    for name in MOST_NS:
        yield Cell("functions", name, text((N,)), partial(_one, name, plan))


def _one(name: str, plan: Plan) -> list[Record]:
    from trueno_simd.rows.rowprogram import compiled

    x = np.random.default_rng(0).random(N, np.float32) + np.float32(0.1)
    out = np.empty_like(x)
    kernel = compiled(TABLE[name], "float32", "e", 1, (), False, False)
    problem = "" if kernel(x, out) == 0 and np.array_equal(out, getattr(trueno, name)(x)) else "another result"
    seconds = fastest(race({"kernel": bind(kernel, x, out)}, plan.budget, ("kernel",)))
    return [Record("functions", name, text((N,)), "s", seconds["kernel"] / N, seconds=seconds, problem=problem)]
