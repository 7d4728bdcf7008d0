"""The requirements on `trueno.aio` for every backend: the same results as the sync call."""

import asyncio
from typing import Any

import numpy as np
import numpy.typing as npt

import trueno
from trueno.discovery import registry
from trueno.ops.op import Op
from trueno.testing.calls import takes
from trueno.testing.case import Case
from trueno.testing.cases import cases
from trueno.testing.expected import verdict

ROW = "one row of 65"


def check_aio(op: Op, backend: str, dtype: npt.DTypeLike, seed: int = 0) -> None:
    """One small case, awaited three times: without and with `out=`, and once more with its plan made.

    The results have the sync call's types and are equal bit by bit, or (because two calls of one kernel may differ
    if it adds in no fixed order) within their bound; operands are unchanged.
    """
    T = np.dtype(dtype)
    case = _small(op, T, seed, backend)
    if case is None:
        return
    where = f"{backend}: {case}, seed {seed}"
    before = [x.tobytes() for x in case.operands if isinstance(x, np.ndarray)]
    with trueno.use(backend):
        wanted = _tuple(getattr(trueno, op.name)(*case.operands, **case.kwargs))
    outs = tuple(np.full(np.shape(w), 77, np.asarray(w).dtype) for w in wanted)
    results = asyncio.run(_awaited(op, backend, case, outs))
    for how, got in zip(("awaited", "awaited with out=", "awaited again"), results, strict=True):
        for spec, g, w in zip(op.signature.outputs, got, wanted, strict=True):
            if how != "awaited with out=" and type(g) is not type(w):
                raise AssertionError(f"{where}: {how}, {spec.name} is {type(g).__name__}, not {type(w).__name__}")
            if np.asarray(g).dtype != np.asarray(w).dtype or np.shape(g) != np.shape(w):
                raise AssertionError(f"{where}: {how}, {spec.name} is not of the sync call's dtype and shape")
        if not all(_equal(g, w) for g, w in zip(got, wanted, strict=True)):
            judged = verdict(op, case.operands, case.kwargs, T, got, registry.load(backend).accuracy)
            if not judged.ok:
                raise AssertionError(f"{where}: {how}: {judged}")
    if any(g is not o for g, o in zip(results[1], outs, strict=True)):
        raise AssertionError(f"{where}: out= was given, but something else returned")
    if before != [x.tobytes() for x in case.operands if isinstance(x, np.ndarray)]:
        raise AssertionError(f"{where}: awaited, an operand was changed")


async def _awaited(op: Op, backend: str, case: Case, outs: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    twin = getattr(trueno.aio, op.name)
    with trueno.use(backend):
        first = await twin(*case.operands, **case.kwargs)
        into = await twin(*case.operands, **case.kwargs, out=outs if len(outs) > 1 else outs[0])
        again = await twin(*case.operands, **case.kwargs)
    return [_tuple(first), _tuple(into), _tuple(again)]


def _small(op: Op, dtype: np.dtype[Any], seed: int, backend: str) -> Case | None:
    """A row of 65, or an early case of a structured op that has elements; None if the backend takes no such case."""
    small = [
        case
        for case in cases(op, dtype, seed, long=False)
        if case.label == ROW or (op.structured and min(np.size(x) for x in case.operands) > 1)
    ]
    assert small, f"{op.name}: no small case in {dtype}"
    return next((case for case in small if not op.structured or takes(op, case, backend)), None)


def _equal(a: Any, b: Any) -> bool:
    return bool(np.array_equal(a, b, equal_nan=True))


def _tuple(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)
