"""Declared speeds against measured ones: the selector's prediction, and the time of a call here.

A table for people.  Speeds depend on the machine, so nothing here fails; factors above three are remarks.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.ops import TABLE
from trueno.ops.op import Op
from trueno.select.cost import elements, op_class, seconds, work
from trueno.testing.case import Case, rng_for
from trueno.testing.cases import natural
from trueno.testing.subject import subject

OFF = 3.0
"""The factor from which a declared time is reported."""
SIZES: dict[str, tuple[int, ...]] = {
    "add": (10, 16, 21),
    "gelu": (10, 16, 20),
    "sum": (10, 16, 21),
    "softmax": (10, 16, 20),
    "matmul": (10, 16, 18),
    "convolve2d": (10, 16),
}
"""Ops that represent their classes, and the size classes of their first operand."""
BUDGET = 0.2
"""Seconds per row, about."""


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison; times in seconds."""

    backend: str
    op: str
    op_class: str
    dtype: str
    shapes: str
    declared: float
    measured: float

    @property
    def ratio(self) -> float:
        """Measured over declared: above 1 if the backend promises too much."""
        return self.measured / self.declared

    @property
    def off(self) -> bool:
        """Whether the two differ by more than the factor that is tolerated."""
        return not 1 / OFF <= self.ratio <= OFF


def compare(backend: str, dtype: npt.DTypeLike, seed: int = 0, ops: tuple[str, ...] = ()) -> list[Row]:
    """A row for each op and size of `SIZES` that the backend takes; only of `ops`, if some are named."""
    by, T = subject(backend), np.dtype(dtype)
    rows = []
    for name, sizes in SIZES.items():
        if ops and name not in ops:
            continue
        op = TABLE[name]
        for size in sizes:
            case = _case(op, T, size, seed)
            call = by.call(case)
            if by.backend.supports(call) is not None:
                continue
            declared = seconds(by.backend.rates(call), work(call))
            kernel = by.backend.kernel(call)
            operands = [by.give(x) for x in case.operands]
            shapes = op.result_shapes(tuple(x.shape for x in case.operands), dict(call.static))
            outs = [by.backend.empty(s, T) for s in shapes]

            def run(kernel: Any = kernel, arguments: tuple[Any, ...] = (*operands, *outs)) -> None:
                kernel(*arguments)

            measured = fastest(run, by.backend.synchronize)
            text = " ".join("×".join(map(str, x.shape)) for x in case.operands)
            rows.append(Row(backend, name, op_class(op), T.name, text, declared, measured))
    return rows


def fastest(run: Callable[[], Any], wait: Callable[[], Any]) -> float:
    """Seconds per call, the best of several rounds, each long enough for the clock."""
    run()
    wait()
    begin = perf_counter()
    run()
    wait()
    once = max(perf_counter() - begin, 1e-7)
    count = max(1, min(1000, math.ceil(BUDGET / 8 / once)))
    best, end = math.inf, perf_counter() + BUDGET
    while True:
        begin = perf_counter()
        for _ in range(count):
            run()
        wait()
        best = min(best, (perf_counter() - begin) / count)
        if perf_counter() > end:
            return best


def _case(op: Op, T: np.dtype[Any], size: int, seed: int) -> Case:
    """Operands of the sizes that a size class stands for, as square as possible."""
    many, rng = int(elements(size)), rng_for(op, T, seed)
    side = max(1, math.isqrt(many))
    if op.structured:
        shapes: tuple[tuple[int, ...], ...] = ((side, side), (3, 3) if op.name == "convolve2d" else (side, side))
    elif op.over is not None and not op.reduces:
        n = min(side, 1024)
        shapes = ((many // n, n),)
    else:
        shapes = ((many,),) * len(op.operands)
    return Case(op, T, f"size class {size}", tuple(natural(op, rng, s).astype(T) for s in shapes))
