"""What all kernels do about their operands: NumPy kept quiet, memory that may overlap, status bits of results."""

import math
from collections.abc import Callable
from contextvars import Context
from typing import Any

import numpy as np

Array = Any  # ndarray or NumPy scalar

# NumPy's error state is a context variable.  Running in a copy of a context that ignores everything costs
# 20 ns where `with np.errstate(...)` costs 500, and a copy is this call's alone: threads and re-entry are free.
QUIETLY = Context()
QUIETLY.run(np.seterr, all="ignore")


def ignoring(function: Callable[..., Any], *args: Any) -> Any:
    """Call `function` where NumPy neither warns nor raises."""
    return QUIETLY.copy().run(function, *args)


def apart(operands: tuple[Any, ...], outs: tuple[Any, ...]) -> bool:
    """Whether it is plain that no result shares memory: each owns its own, and no operand is a view or a result.

    0.1 µs, where may_share_memory takes 0.2 for each pair; what is not plain is for `clash` to find out.
    """
    for y in outs:
        if not y.flags.owndata:
            return False
        for x in operands:
            if x.base is not None or x is y:
                return False
    return len(outs) < 2 or len({id(y) for y in outs}) == len(outs)


def clash(operands: tuple[Any, ...], outs: tuple[Any, ...], hazards: frozenset[tuple[int, int]] = frozenset()) -> int:
    """0: no result shares memory with anything.  1: some result is an operand of the same extent.  −1: refuse."""
    alias = 0
    for k, y in enumerate(outs):
        for j, x in enumerate(operands):
            if x is not y and not np.may_share_memory(x, y):
                continue
            same = x.shape == y.shape and x.strides == y.strides
            if not same or x.__array_interface__["data"][0] != y.__array_interface__["data"][0] or (k, j) in hazards:
                return -1
            alias = 1
        if any(np.may_share_memory(y, other) for other in outs[:k]):
            return -1
    return alias


def seen(y: Array) -> int:
    """Status bits of a result: 1 a NaN, 2 an Inf.  A finite sum has only finite terms; else look closely."""
    if math.isfinite(np.add.reduce(y, None)):
        return 0
    return int(np.isnan(y).any()) | int(np.isinf(y).any()) << 1
