"""The expected results of a public call: operands as a user passes them, judged against the op's own body.

`expected` canonicalises by itself, with plain broadcasting, so that a mistake in the core's
canonical forms cannot hide.
"""

from collections.abc import Sequence
from math import inf, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.discovery.protocol import Accuracy
from trueno.judge.bound import EXACT, Bound, Verdict, bound, judge
from trueno.judge.structured import PROPERTIES, judge_results, judge_structured, structured_bound
from trueno.ops.op import Op
from trueno.programs.program import ELEMENTS
from trueno.testing.halves import computing, rounded_bound
from trueno.testing.kept import bounds_of

Array = npt.NDArray[Any]


def split(op: Op, kwargs: dict[str, Any]) -> tuple[tuple[float, ...], dict[str, Any]]:
    """Keyword arguments as symbolic values in calling order, and static ones by name."""
    values = {p.name: kwargs.get(p.name, p.default) for p in op.params}
    return tuple(float(values[n]) for n in op.symbolic), {p.name: values[p.name] for p in op.static}


def expected(
    op: Op, operands: Sequence[Any], kwargs: dict[str, Any], dtype: npt.DTypeLike, accuracy: Accuracy = EXACT
) -> list[Bound]:
    """A `Bound` for each result of a row program, shaped as the result."""
    how = f"rows {np.dtype(dtype)} {sorted(kwargs.items())}"
    return bounds_of((op, accuracy), how, operands, lambda: _expected(op, operands, kwargs, dtype, accuracy))


def _expected(
    op: Op, operands: Sequence[Any], kwargs: dict[str, Any], dtype: npt.DTypeLike, accuracy: Accuracy
) -> list[Bound]:
    T = computing(dtype)
    arrays = [np.asarray(x).astype(dtype).astype(T) for x in operands]
    params, static = split(op, kwargs)
    sizes, leading = op.signature.bind(op.name, tuple(a.shape for a in arrays))
    shapes = op.signature.result_shapes(sizes, leading)
    n = sizes[op.over] if op.over else prod(leading)
    if n == 0 or prod(leading) == 0:
        return [_nothing(s) for s in shapes]
    if op.over is None:
        inputs = [np.broadcast_to(a, leading).reshape(1, n) for a in arrays]
        program = op.program("e" * len(arrays), **static)
    else:
        full = {"e": (*leading, n), "w": (n,), "r": leading}
        flat = {"e": (-1, n), "w": (n,), "r": (-1,)}
        inputs = [np.broadcast_to(a, full[k]).reshape(flat[k]) for a, k in zip(arrays, op.layout, strict=True)]
        program = op.program(**static)
    bounds = bound(program, inputs, params, T, accuracy)
    return [rounded_bound(b.reshape(s), dtype) for b, s in zip(bounds, shapes, strict=True)]


def _nothing(shape: tuple[int, ...]) -> Bound:
    """Empty results, and the sums and norms of empty rows: 0."""
    zeros = np.zeros(shape)
    return Bound(zeros, zeros, zeros, np.zeros(shape, bool))


def verdict(
    op: Op,
    operands: Sequence[Any],
    kwargs: dict[str, Any],
    dtype: npt.DTypeLike,
    results: Sequence[Any],
    accuracy: Accuracy = EXACT,
    repeat: int = 1,
) -> Verdict:
    """The worst verdict over the results of one call, whose operands repeat their first part."""
    if op.structured:
        params, static = split(op, kwargs)
        arrays = [
            np.asarray(x) if s.type else np.asarray(x).astype(dtype)
            for s, x in zip(op.signature.inputs, operands, strict=True)
        ]
        outputs, T = [np.asarray(r) for r in results], computing(dtype)
        if op.name in PROPERTIES:
            return judge_structured(op, arrays, static, dtype, outputs, params, accuracy)
        wide = [x if s.type else x.astype(T) for s, x in zip(op.signature.inputs, arrays, strict=True)]
        how = f"structured {T} {params} {sorted(static.items())}"
        meant = bounds_of((op, accuracy), how, wide, lambda: structured_bound(op, wide, static, T, params, accuracy))
        if np.dtype(dtype) == T:
            return judge_results(op, outputs, meant)
        judged = [
            judge(g, b if o.index else rounded_bound(b, dtype))
            for g, b, o in zip(outputs, meant, op.signature.outputs, strict=True)
        ]
        return min(judged, key=lambda v: (v.ok, -v.worst))
    if repeat > 1:
        shared = [s for s in op.signature.inputs if not s.leading]
        names = {s.name for s in shared}
        operands = [
            x if s.name in names else x[: len(x) // repeat] for s, x in zip(op.signature.inputs, operands, strict=True)
        ]
    bounds = expected(op, operands, kwargs, dtype, accuracy)
    verdicts = []
    for got, b in zip(results, bounds, strict=True):
        g = np.asarray(got)
        if repeat > 1:
            b = _repeated(b, repeat)
        verdicts.append(judge(g, b))
    return min(verdicts, key=lambda v: (v.ok, -v.worst))


def _repeated(b: Bound, times: int) -> Bound:
    def tile(a: Array) -> Array:
        return np.broadcast_to(a, (times, *a.shape)).reshape(times * a.shape[0], *a.shape[1:])

    allowed = None if b.allowed is None else tile(b.allowed)
    return Bound(tile(b.value), tile(b.low), tile(b.high), tile(b.nan), allowed)


def stated(v: Verdict, op: Op, accuracy: Accuracy) -> str:
    """A verdict in words; for a wrong one how far off the worst value is, and what the backend states."""
    if v.ok or op.structured:
        return str(v)
    ulp = {"sqrt": accuracy.ulp.get("sqrt", 0.5), "div": accuracy.ulp.get("div", 0.5)}
    kinds = sorted({node.kind for node in op.program().nodes if ELEMENTS.get(node.kind, FREE).flops > FREE.flops})
    limits = [f"{ulp.get(kind, accuracy.ulp.get(kind, accuracy.default)):g} ulp for {kind}" for kind in kinds]
    limits += [f"chains of {accuracy.chain} additions"] if op.program().folds else []
    off = f", {v.worst:.3g} times as far from it as allowed" if 1 < v.worst < inf else ""
    return f"{v}{off}; `accuracy` states {', '.join(limits)}" if limits else f"{v}{off}"


FREE = ELEMENTS["add"]
"""Element kinds that cost no more than this have no error of their own except rounding."""
