"""The same call under a guard for NaN and Inf, and without one, on the simd backend: time on over time off.

Results are healthy and go to a given output beside the operands.  Both calls run in a context of their own, one that
is inside the guard, so that entering it is not timed: it is paid once a block of calls.
"""

from collections.abc import Iterator
from contextvars import copy_context
from functools import partial
from typing import Any

import numpy as np
import trueno
from trueno import Action, Condition
from trueno.cli.samples import sample
from trueno.ops.op import Op

from benchmarks.compare import Record, ours
from benchmarks.inputs import arena, required, values
from benchmarks.rows import Cell, Plan, families, text
from benchmarks.timing import Thunk, bind, fastest, median, race

BACKEND = "simd"
SIZE = 1_000_000
FAMILIES = ("arithmetic", "mathematics", "activations", "reductions", "normalization")
Shape = tuple[int, ...]
MATRIX: dict[str, tuple[Shape, ...]] = {
    "matmul": ((1000, 1000), (1000, 1000)),
    "matvec": ((1000, 1000), (1000,)),
    "vecmat": ((1000,), (1000, 1000)),
    "batched_matmul": ((64, 125, 125), (64, 125, 125)),
    "transpose": ((1000, 1000),),
    "outer": ((1000,), (1000,)),
    "convolve2d": ((1000, 1000), (3, 3)),
    "embedding_lookup": ((32_000, 500), (2000,)),
    "symmetric_eigen": ((200, 200),),
}
"""A million elements; a hundred times fewer to decompose, which takes n³.  Others get a sample's operands."""
SHORT = ("add", "gelu", "softmax", "sum", "outer")


def cells(plan: Plan) -> Iterator[Cell]:
    for op in families.ops(*FAMILIES, "matrix"):
        if not plan.quick or op.name in SHORT:
            shapes = _shapes(op) if op.family == "matrix" else ((SIZE,),)
            label = " ".join(map(text, shapes))
            yield Cell("guards", op.name, label, partial(_one, op, shapes, label, plan))


def _shapes(op: Op) -> tuple[Shape, ...]:
    return MATRIX.get(op.name) or tuple(sample(op, "float32", SIZE).shapes)


def _operands(op: Op, shapes: tuple[Shape, ...]) -> tuple[np.ndarray[Any, Any], ...]:
    if op.family != "matrix":
        return arena(shapes[0]).operands(op)
    if op.name not in MATRIX:
        return sample(op, "float32", SIZE).operands
    arrays = [values(("uniform", 0.1, 1.1), shape, i) for i, shape in enumerate(shapes)]
    if op.name == "embedding_lookup":
        arrays[1] = np.random.default_rng(0).integers(0, shapes[0][0], shapes[1])
    if op.name == "symmetric_eigen":
        arrays[0] += arrays[0].T
    return tuple(arrays)


def _inside(call: Thunk, guard: trueno.JidokaGuard) -> Thunk:
    with trueno.use(BACKEND), guard:
        return bind(copy_context().run, call)


def _one(op: Op, shapes: tuple[Shape, ...], label: str, plan: Plan) -> list[Record]:
    memory, keywords, operands = arena(shapes[0]), required(op), _operands(op, shapes)
    call = ours(op, operands, keywords, memory.out(op, operands, keywords))
    guard = trueno.JidokaGuard().on(Condition.NAN, Action.STOP).on(Condition.INF, Action.STOP)
    calls = {"on": _inside(call, guard), "off": _inside(call, trueno.JidokaGuard())}
    runs = race(calls, plan.budget, tuple(calls))
    ratios = [run["on"] / run["off"] for run in runs]
    return [Record("guards", op.name, label, "×", median(ratios), "", ratios, fastest(runs), op.family)]
