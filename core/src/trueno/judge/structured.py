"""The judge of structured ops: tolerance from the length of the chain of products.

Their bodies are NumPy code, so there is no program to interpret.  An op that sums products (`chain`) is
linear in each operand: its body on absolute values gives Σ|a·b|, on ones the number of products, and
any order of summation, with or without fma, errs by at most (products + 4) · u · Σ|a·b|.
An op without a chain rounds once (outer) or not at all (transpose).  An epilogue is judged by intervals over its
program, from what a correct kernel of its head may give.  Attention has a bound of its own (`trueno.judge.attention`).
An eigendecomposition is judged by the equations that it must
satisfy, because signs and bases of equal values are free; LZ4 by its own library (`trueno.judge.compression`).
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.discovery.protocol import Accuracy
from trueno.judge import attention, blocks, compression, selection
from trueno.judge.bound import EXACT, Bound, Verdict, bound, judge
from trueno.judge.interval import Array, Judge, Range, exact
from trueno.ops.op import FusedOp, Op
from trueno.ops.shared import SharedOp

BOUNDS: dict[str, Callable[..., list[Bound]]] = attention.BOUNDS | selection.BOUNDS
"""Ops with a bound of their own."""


def structured_bound(
    op: Op,
    operands: Sequence[Array],
    static: dict[str, Any],
    dtype: npt.DTypeLike,
    params: Sequence[float] = (),
    accuracy: Accuracy = EXACT,
) -> list[Bound]:
    """A `Bound` for each result, shaped as the result.  params: float parameters, in calling order."""
    if isinstance(op, FusedOp):
        return _finished(op, operands, static, dtype, params, accuracy)
    if isinstance(op, SharedOp):
        return _shared(op, operands, dtype, params, accuracy)
    scalars = dict(zip(op.symbolic, params, strict=True)) if params else {}
    if op.name in BOUNDS:
        return BOUNDS[op.name](operands, {p.name: p.default for p in op.params} | scalars | static, dtype, accuracy)
    arithmetic = Judge(np.dtype(dtype), EXACT)
    wide = arithmetic.wide

    def each(change: Any) -> list[Array]:
        """The operands, with `change` applied to those that hold the call's floats."""
        specs = op.signature.inputs
        return [x if s.type else change(np.asarray(x).astype(wide)) for s, x in zip(specs, operands, strict=True)]

    def run(inputs: list[Array]) -> list[Array]:
        result = op.body(*inputs, **scalars, **static)
        return [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]

    with np.errstate(all="ignore"):
        meant = run(each(lambda x: x))
        if op.chain is None:
            ranges = [exact(m) for m in meant]
            return [Bound(m, *arithmetic.rounded(*r)) for m, r in zip(meant, ranges, strict=True)]
        if op.magnitude is not None:
            products, sizes = _stated(op, operands, {**scalars, **static}, meant)
        else:
            products = run(each(np.ones_like))
            sizes = run(each(_size))
        lost = (
            [np.zeros(())] * len(meant)
            if accuracy.subnormals
            else _flushed(op, each(_size), {**scalars, **static}, run, dtype)
        )
        tiny = 0.0 if accuracy.subnormals else 2 * float(np.finfo(dtype).tiny)  # a product, and the sum so far
        bounds = []
        for m, count, size, less in zip(meant, products, sizes, lost, strict=True):
            slack = (count + 4) * arithmetic.u * size + count * (arithmetic.smallest + tiny) + less
            may = size * (1 + (count + 4) * arithmetic.u) > arithmetic.largest
            low, high, nan = exact(m)
            number = np.isfinite(m)
            low, high = np.where(number, m - slack, low), np.where(number, m + slack, high)
            low, high = np.where(may & ~nan, -inf, low), np.where(may & ~nan, inf, high)
            bounds.append(Bound(m, low, high, nan | may))
    return bounds


def _finished(
    op: FusedOp,
    operands: Sequence[Array],
    static: dict[str, Any],
    dtype: npt.DTypeLike,
    params: Sequence[float],
    accuracy: Accuracy,
    others: dict[int, Bound] | None = None,
) -> list[Bound]:
    """The bound of a fused op: the head's bound, passed through the program that follows.

    others: of operands that are results of other ops, by place.
    """
    head, epilogue = op.head, op.epilogue
    count, own = len(head.operands), len(head.symbolic)
    inner = _head(head, operands[:count], static, dtype, params[:own], others or {})
    program = epilogue.program(op.kinds)
    known = {0: inner} | {i - count + 1: b for i, b in (others or {}).items() if i >= count}
    ranges = {program.operands[i][0]: Range(b.low, b.high, b.nan) for i, b in known.items()}
    bounds = bound(program, [inner.value, *operands[count:]], params[own:], dtype, accuracy, ranges)
    return [b.reshape(np.shape(inner.value)) for b in bounds]


def _head(
    op: Op, operands: Sequence[Array], static: dict[str, Any], dtype: npt.DTypeLike, params: Sequence[float],
    others: dict[int, Bound],
) -> Bound:  # fmt: skip
    """The bound of a structured op with one result.  others: of operands that are results of other ops, by place."""
    (inner,) = structured_bound(op, operands, static, dtype, params)
    for i in (i for i in others if i < len(op.operands)):
        inner = blocks.loosened(inner, op, operands, static, i, others[i])
    return inner


def _shared(
    op: SharedOp, operands: Sequence[Array], dtype: npt.DTypeLike, params: Sequence[float], accuracy: Accuracy
) -> list[Bound]:
    """The bounds of the members' results, each from those of the members that it reads."""
    bounds: list[list[Bound]] = []
    numbers = list(params)
    for member in op.members:
        others = {i: bounds[k][0] for i, (where, k) in enumerate(member.sources) if where == "result"}
        inputs = [others[i].value if i in others else operands[k] for i, (_, k) in enumerate(member.sources)]
        count, static = len(member.op.symbolic), dict(member.static)
        own, numbers = numbers[:count], numbers[count:]
        if not member.op.structured:
            made = bound(member.op.program(), inputs, own, dtype, accuracy)
            bounds.append([b.reshape(np.shape(inputs[0])) for b in made])
        elif isinstance(member.op, FusedOp):
            bounds.append(_finished(member.op, inputs, static, dtype, own, accuracy, others))
        else:
            bounds.append([_head(member.op, inputs, static, dtype, own, others)])
    return [bounds[at][k] for at, k in op.kept]


def judge_structured(
    op: Op,
    operands: Sequence[Array],
    static: dict[str, Any],
    dtype: npt.DTypeLike,
    results: Sequence[Array],
    params: Sequence[float] = (),
    accuracy: Accuracy = EXACT,
) -> Verdict:
    """The worst verdict over the results of one call."""
    if op.name in PROPERTIES:
        return PROPERTIES[op.name](operands, results, np.dtype(dtype))
    return judge_results(op, results, structured_bound(op, operands, static, dtype, params, accuracy))


def judge_results(op: Op, results: Sequence[Array], bounds: Sequence[Bound]) -> Verdict:
    """The worst verdict over the results of one call, of which these are the bounds."""
    if op.magnitude is not None:
        # A scale that is Inf makes Inf − Inf in one order of sums and Inf in another: neither is a number.
        results = [_alike(np.asarray(g), b.value) for g, b in zip(results, bounds, strict=True)]
    verdicts = [judge(g, b) for g, b in zip(results, bounds, strict=True)]
    return min(verdicts, key=lambda v: (v.ok, -v.worst))


def _stated(
    op: Op, operands: Sequence[Array], parameters: dict[str, Any], meant: list[Array]
) -> tuple[list[Array], list[Array]]:
    """Products summed into each result, and Σ|a · b|, for an op that states them itself."""
    assert op.magnitude is not None
    blocks, specs = op.blocks(parameters), op.signature.inputs
    shapes = tuple(spec.meant(op.name, np.shape(x), blocks) for spec, x in zip(specs, operands, strict=True))
    count = op.chain_length(op.signature.bind(op.name, shapes)[0])
    return [np.full(m.shape, count) for m in meant], [op.magnitude(*operands, **parameters)]


def _size(x: Array) -> Array:
    """|x|, and 0 for what is not a finite number."""
    return np.abs(np.where(np.isfinite(x), x, 0))


def _flushed(op: Op, sizes: list[Array], parameters: dict[str, Any], run: Any, dtype: npt.DTypeLike) -> list[Array]:
    """The loss of results where subnormal operands are read as zeros: Σ|subnormal a| · |b|, over each operand a."""
    smallest = np.finfo(dtype).tiny
    total: list[Array] = []
    for i, spec in enumerate(op.signature.inputs):
        if spec.type:
            continue
        inputs = [np.where(x < smallest, x, 0) if k == i else x for k, x in enumerate(sizes)]
        if op.magnitude is not None:
            inputs = [x if s.type else x.astype(dtype) for s, x in zip(op.signature.inputs, inputs, strict=True)]
        lost = [op.magnitude(*inputs, **parameters)] if op.magnitude is not None else run(inputs)
        total = [a + b for a, b in zip(total, lost, strict=True)] if total else list(lost)
    return total


def _alike(got: Array, value: Array) -> Array:
    """`got`, with `value` where neither is a finite number."""
    if got.shape != value.shape:
        return got
    return np.where(np.isfinite(got) | np.isfinite(value), got, value)


def _eigen(operands: Sequence[Array], results: Sequence[Array], dtype: np.dtype[Any]) -> Verdict:
    """‖A v − λ v‖ ≤ 8 n u ‖A‖, ‖VᵀV − 1‖ ≤ 8 n u, λ descending, and each λ near one of LAPACK's in float64."""
    a = np.tril(np.asarray(operands[0], np.float64))
    a = a + np.tril(a, -1).T
    values, vectors = (np.asarray(r, np.float64) for r in results)
    n = len(a)
    if n == 0:
        return Verdict(True, 0.0, 0.0, 0)
    scale = float(np.linalg.norm(a))
    eps = 2.0**-7 if dtype.name == "bfloat16" else float(np.finfo(dtype).eps)  # NumPy does not know bfloat16
    slack = 8 * max(n, 4) * eps
    tests = {
        "residual": float(np.abs(a @ vectors - vectors * values).max()) / (slack * scale or 1.0),
        "orthogonality": float(np.abs(vectors.T @ vectors - np.eye(n)).max()) / slack,
        "order": 0.0 if np.all(np.diff(values) <= 0) else 2.0,
        "values": float(np.abs(values - np.linalg.eigvalsh(a)[::-1]).max()) / (slack * scale or 1.0),
    }
    name, worst = max(tests.items(), key=lambda item: item[1] if item[1] == item[1] else inf)
    if worst <= 1:
        return Verdict(True, worst, 0.0, n * (n + 1))
    return Verdict(False, worst, 0.0, n * (n + 1), 1, (list(tests).index(name),), worst, 0.0, 0.0, 1.0)


PROPERTIES: dict[str, Callable[..., Verdict]] = {"symmetric_eigen": _eigen} | compression.PROPERTIES
