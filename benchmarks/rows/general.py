"""What a call beside the fast path costs beyond its kernel: the call with `out=` minus the bare kernel on operands that
are as kernels take them, on simd.

Where the kernel needs an operand copied first, NumPy's own copy of it is taken off as well (`copy` among the times).
All take turns, and the minimum over all runs counts, as in `dispatch`.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import trueno
from trueno.dispatch import state
from trueno.dispatch.call import request
from trueno.ops import TABLE
from trueno.ops.op import Op

from benchmarks.compare import Record, function, python_functions
from benchmarks.rows import Cell, Plan, text
from benchmarks.timing import Thunk, bind, fastest, race

SQUARE, ROW = (32, 32), (1_024,)
F4 = np.dtype(np.float32)
Operands = tuple[Any, ...]


def _operands(name: str) -> tuple[Op, Operands, dict[str, Any], Operands, Thunk | None]:
    """Op, operands, arguments, the operands as the kernel gets them, and the copy that one of them is."""
    rng = np.random.default_rng(0)
    matrix, bias, x, y, wide = (rng.random(n, F4).reshape(s) for n, s in
                                ((1_024, SQUARE), (32, 32), (1_024, ROW), (1_024, ROW), (2_048, 2_048)))  # fmt: skip
    strided = wide[::2]
    match name:
        case "a broadcast bias":
            return TABLE["add"], (matrix, bias), {}, (matrix, bias), None
        case "axis=0":
            return TABLE["sum"], (matrix,), {"axis": 0}, (matrix[None],), None
        case "a Python number":
            return TABLE["mul"], (x, 2.0), {}, (x, np.asarray(2.0, F4)), None
        case _:
            copy = partial(np.array, strided, order="C")
            return TABLE["add"], (strided, y), {}, (copy(), y), copy


CASES = {"a broadcast bias": SQUARE, "axis=0": SQUARE, "a Python number": ROW, "a strided operand": ROW}


def cells(plan: Plan) -> Iterator[Cell]:
    for name, shape in CASES.items():
        yield Cell("general", name, text(shape), partial(_one, name, text(shape), plan))


def _one(name: str, shape: str, plan: Plan) -> list[Record]:
    with python_functions(), trueno.use("simd"):  # the kernels that refuse most, having been compiled for one layout
        return _raced(name, shape, plan)


def _raced(name: str, shape: str, plan: Plan) -> list[Record]:
    op, operands, keywords, prepared, copy = _operands(name)
    out = np.empty_like(function(op)(*operands, **keywords))
    call = request(op, operands, keywords)
    chosen = state.current.get().chosen(call)
    assert chosen is not None
    across = state.current.get().across(call) if "axis" in keywords else None
    calls: dict[str, Callable[[], Any]] = {
        "call": bind(function(op), *operands, **keywords, out=out),
        "kernel": bind(chosen.kernel, *prepared, out) if across is None else bind(across.kernel, *prepared, out[None]),
    }
    if copy is not None:
        calls["copy"] = copy
    for _ in range(3):
        calls["call"]()
    best = fastest(race(calls, plan.budget, tuple(calls)))
    beyond = best["call"] - best["kernel"] - best.get("copy", 0.0)
    return [Record("general", name, shape, "s", beyond, seconds=best, family=op.family)]
