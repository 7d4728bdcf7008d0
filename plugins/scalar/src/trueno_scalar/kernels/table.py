"""The table of structured kernels, and the checks that all of them make.

A factory gives `checked` what runs, `run(*operands, *numbers, *results, **static)`, and the shapes of results, of which
an op's key says nothing.  Results must not overlap operands: the core copies where they do.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from trueno.backend import Call, Kernel, KernelTable

from trueno_scalar.operands import apart, clash, ignoring, seen

Array = np.ndarray[Any, np.dtype[Any]]
Shapes = tuple[tuple[int, ...], ...] | None

KERNELS = KernelTable("float32", "float64", guarded=True)


def checked(
    call: Call, run: Callable[..., int | None], shapes: Callable[..., Shapes], ranks: tuple[int, ...] = ()
) -> Kernel:
    """The kernel that runs `run` where everything fits.

    shapes: those of results, given the operands; None where these do not fit.  ranks: of the operands, where fixed.
    """
    if call.static:
        run, shapes = partial(run, **dict(call.static)), partial(shapes, **dict(call.static))
    inputs, outputs = call.op.signature.inputs, call.op.signature.outputs
    count, first = len(inputs), len(inputs) + len(call.op.symbolic)
    dtypes = [spec.holds(call.dtype) for spec in inputs]
    floats = [j for j, spec in enumerate(inputs) if not spec.index]  # any whole numbers do for an index
    results = [spec.holds(call.dtype) for spec in outputs]
    shared = (0, 1) if call.op.updates else (0,)  # the result may be the operand that it updates

    def kernel(*arrays: Any) -> int:
        operands, outs = arrays[:count], arrays[first:]
        for j in floats:
            if operands[j].dtype is not dtypes[j] and operands[j].dtype != dtypes[j]:
                return -1
        for x, rank in zip(operands, ranks, strict=False):
            if x.ndim != rank:
                return -1
        expected = shapes(*operands)
        if expected is None or len(expected) != len(outs):
            return -1
        for y, shape, dtype in zip(outs, expected, results, strict=True):
            if y.shape != shape or y.dtype != dtype or not (y.flags.c_contiguous and y.flags.writeable):
                return -1
        if not apart(operands, outs) and clash(operands, outs) not in shared:
            return -1
        if refused := ignoring(run, *arrays):
            return refused  # type: ignore[no-any-return]
        return ignoring(_status, outs) if call.guarded else 0

    return kernel


def _status(outs: tuple[Array, ...]) -> int:
    """Status bits of all results together."""
    status = 0
    for y in outs:
        status |= seen(y) if y.dtype.kind == "f" else 0
    return status
