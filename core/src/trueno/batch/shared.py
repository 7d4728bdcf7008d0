"""Products of one input, as one kernel: the steps of a plan whose structured ops read the same value.

Queries, keys and values are three products of one vector, a gated layer's gate and up are two.  Each step brings what
fused with it, its bias or activation, and may read the result of another one element by element, as `swiglu` does that
fused with one of its two products.  The kernel runs where the first of the steps stood, so the others join it only if
they need nothing that is computed in between.  Where they alone read what a norm makes, the norm is the whole's first
member, so that a normalized vector need not be stored.  A backend gets the whole only if it supports it: `supports` is
called for the `SharedOp`, and where it refuses the steps stay as they are.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from inspect import Parameter as Signed
from math import prod
from typing import Any

import numpy as np

from trueno.batch.graph import Graph
from trueno.batch.merged import title
from trueno.batch.step import Step
from trueno.dispatch.state import CHAINS
from trueno.ops.op import FusedOp, Op, Parameter
from trueno.ops.shared import Member, SharedOp
from trueno.ops.signature import ArraySpec, Signature
from trueno.programs.evaluate import evaluate
from trueno.text import HASH

OPERAND = {"quant_matvec": 1, "quant_matmul": 0}
"""The ops that share an operand, and which one it is."""
FIRST = OPERAND | {"rope": 1}
"""By the first structured op: which of its operands is the first one of the whole, or the norm's result."""
NORM = "rms_norm"
"""The row op that products of its result may begin with."""
MOST = 8
"""Members of one kernel."""

Accept = Callable[[Step, Sequence[Step]], str]
"""Why no backend runs a `SharedOp` in place of these steps; empty if one does."""

_ops: dict[tuple[Any, ...], SharedOp] = {}  # the last `CHAINS` that were created


def share(graph: Graph, steps: list[Step], results: set[int], refusal: Accept) -> list[Step]:
    """The steps, those that read one operand as one step each; `results` are the values to compute."""
    made = {v: at for at, step in enumerate(steps) for v, _ in step.makes}
    families: dict[Any, list[list[int]]] = {}
    for at, step in enumerate(steps):
        if (key := _family(step)) is not None:
            groups = families.setdefault(key, [])
            for group in groups:
                if len(group) < MOST and _joins(graph, steps, group, step, made):
                    group.append(at)
                    break
            else:
                groups.append([at])
    readers: dict[int, set[int]] = {}
    for at, step in enumerate(steps):
        for v, _ in step.reads:
            readers.setdefault(graph.whole(v), set()).add(at)
    gone: set[int] = set()
    for group in (g for groups in families.values() for g in groups):
        products = [steps[at] for at in group]
        norm = _norm(steps, group, results, readers, made)
        for some in ([[norm, *group]] if norm is not None else []) + ([group] if len(group) > 1 else []):
            asked = results | {v for v, by in readers.items() if by - set(some)}
            whole = together([steps[at] for at in some], asked)
            reason = refusal(whole, products)
            if not reason:
                steps[group[0]] = whole
                gone.update(set(some) - {group[0]})
                break
            for step in products[1:] if some is group else ():
                step.apart.setdefault(step.ops[0], reason)
    return [step for at, step in enumerate(steps) if at not in gone]


def _norm(
    steps: list[Step], group: list[int], results: set[int], readers: dict[int, set[int]], made: dict[int, int]
) -> int | None:
    """The step of the norm whose result nothing but a group's products read, as their common operand."""
    first = steps[group[0]]
    x = first.reads[OPERAND[first.op.table_op.name]]
    norm = steps[at] if (at := made.get(x[0], -1)) >= 0 else None
    if norm is None or norm.op.name != NORM or norm.call is None or norm.makes != [x] or x[0] in results:
        return None
    alike = norm.entry.dtype == first.entry.dtype and [shape for _, shape in norm.reads] == [x[1], x[1][-1:]]
    alone = readers[x[0]] <= set(group) and all(sum(v == x[0] for v, _ in steps[i].reads) == 1 for i in group)
    return at if alike and alone else None


def _family(step: Step) -> Any:
    """What steps have in common that may share an operand; None for one that shares none."""
    if step.call is None or isinstance(step.op, SharedOp) or (place := OPERAND.get(step.op.table_op.name)) is None:
        return None
    static = tuple((name, value) for name, value in step.call.static if name != "format")
    return step.op.table_op.name, step.reads[place], step.call.dtype, static


def _joins(graph: Graph, steps: list[Step], group: list[int], step: Step, made: dict[int, int]) -> bool:
    """Whether a step's operands are there where the first of a group stands, or are results within the group."""
    for i, (v, _) in enumerate(step.reads):
        at = made.get(graph.whole(v), -1)
        if at < group[0]:
            continue
        if graph.whole(v) != v or at not in group or len(steps[at].makes) > 1 or not isinstance(step.op, FusedOp):
            return False
        own = len(step.op.head.operands)
        if i < own or step.op.kinds[i - own + 1] != "e":
            return False
    return True


def together(members: list[Step], asked: set[int]) -> Step:
    """Several steps as one; asked: the values that are results, or that other steps read."""
    first = next(step for step in members if step.op.structured)
    dtype = first.entry.dtype
    maker = {v: at for at, step in enumerate(members) for v, _ in step.makes}
    slots = {members[0].reads[_place(members[0].op)]: 0}
    parts, kept, makes = [], [], []
    for at, step in enumerate(members):
        assert step.call is not None
        sources = tuple(
            ("result", maker[v]) if v in maker else ("operand", slots.setdefault((v, shape), len(slots)))
            for v, shape in step.reads
        )
        parts.append(Member(step.op, step.call.static, sources))
        for k, (v, shape) in enumerate(step.makes):
            if v in asked:
                kept.append((at, k))
                makes.append((v, shape))
    reads = list(slots)
    op = _op(tuple(parts), tuple(kept))
    sizes = tuple(prod(shape).bit_length() for _, shape in reads)
    assert first.call is not None
    call = replace(first.call, op=op, dtype=dtype, layout=op.layout, rank=len(reads[0][1]), sizes=sizes, static=())
    whole = Step(op, sorted(i for s in members for i in s.ops), reads, [p for s in members for p in s.params],
                 makes, call, first.entry, members=[s.ops for s in members])  # fmt: skip
    for step in members:
        whole.apart |= step.apart
    return whole


def _place(op: Op) -> int:
    """Which operand of a first member is the first one of the whole."""
    return FIRST[op.table_op.name] if op.structured else 0


def _op(members: tuple[Member, ...], kept: tuple[tuple[int, int], ...]) -> SharedOp:
    """The op of some members; two of the same are one op, so that a kernel is made once."""
    key = (tuple((m.op.name, m.static, m.sources) for m in members), kept)
    op = _ops.get(key)
    if op is None:
        op = _ops[key] = shared(members, kept, blake2b(repr(key).encode(), digest_size=HASH // 2).hexdigest())
        while len(_ops) > CHAINS:
            _ops.pop(next(iter(_ops.copy()), key), None)  # another thread may do so at the same time
    return op


def shared(members: tuple[Member, ...], kept: tuple[tuple[int, int], ...], digest: str) -> SharedOp:
    """Some members as one op, whose name ends in `digest`."""
    first = next(m.op for m in members if m.op.structured)
    common = first.signature.inputs[FIRST[first.table_op.name]]
    symbols = [_symbols(members, at, common) for at in range(len(members))]
    inputs: dict[int, ArraySpec] = {0: common}
    for member, own in zip(members, symbols, strict=True):
        for (where, i), spec in zip(member.sources, member.op.signature.inputs, strict=True):
            if where == "operand" and i not in inputs:
                dims = tuple(own.get(d, d) for d in spec.dims)
                inputs[i] = ArraySpec(f"{spec.name}{i}", dims, spec.leading, spec.type)
    outputs = []
    for k, (at, result) in enumerate(kept):
        spec = members[at].op.signature.outputs[result]
        dims = tuple(symbols[at].get(d, d) for d in spec.dims)
        outputs.append(ArraySpec(f"result{k}", dims, spec.leading, spec.type))
    flops = [re.sub(r"[a-z]\w*", lambda m, own=own: own.get(m[0], m[0]), member.op.flops_text or "0")  # type: ignore[misc]
             for member, own in zip(members, symbols, strict=True)]  # fmt: skip
    names = [m.op.name.rpartition("_")[0] if isinstance(m.op, FusedOp) else m.op.name for m in members]
    body = _body(members, kept)
    body.__doc__ = f"{', '.join(names)} of one operand, in one kernel."
    return SharedOp(
        name=f"{title(names)}_{digest}",
        family="batch",
        signature=Signature(tuple(inputs[i] for i in range(len(inputs))), tuple(outputs)),
        body=body,
        params=tuple(
            Parameter(f"number{j}", float, Signed.empty, True) for j in range(sum(len(m.op.symbolic) for m in members))
        ),
        structured=True,
        over=None,
        rules=(),
        flops_text=" + ".join(flops),
        aliases=(),
        chain=first.chain,
        domain=None,
        shapes=_shapes(members, kept),
        updates=any(m.op.updates for m in members),
        members=members,
        kept=kept,
    )


def _symbols(members: tuple[Member, ...], at: int, common: ArraySpec) -> dict[str, str]:
    """New names for the symbols of a member: those of members whose results it reads, and its own for all but k."""
    root, sources = at, _products(members, at)
    while sources:
        root = min(sources)
        sources = _products(members, root)
    op: Op = members[at].op
    if not op.structured:
        return {str(op.over): common.dims[-1]}  # a norm's rows are those of x
    dims = {d for spec in (*op.signature.inputs, *op.signature.outputs) for d in spec.dims}
    return {d: f"{d}{root}" for d in dims - set(common.dims)}


def _products(members: tuple[Member, ...], at: int) -> list[int]:
    """The structured members whose results a member reads."""
    return [i for where, i in members[at].sources if where == "result" and members[i].op.structured]


def _inputs(member: Member, operands: Sequence[Any], results: Sequence[tuple[Any, ...]]) -> list[Any]:
    return [operands[i] if where == "operand" else results[i][0] for where, i in member.sources]


def _body(members: tuple[Member, ...], kept: tuple[tuple[int, int], ...]) -> Callable[..., Any]:
    def body(*operands: Any, **given: Any) -> Any:
        numbers = (given[f"number{j}"] for j in range(len(given)))
        results: list[tuple[Any, ...]] = []
        for member in members:
            scalars = {name: next(numbers) for name in member.op.symbolic}
            run = member.op.body if member.op.structured else partial(_by_rows, member.op)
            result = run(*_inputs(member, operands, results), **scalars, **dict(member.static))
            results.append(result if isinstance(result, tuple) else (result,))
        values = tuple(results[at][k] for at, k in kept)
        return values[0] if len(values) == 1 else values

    return body


def _by_rows(op: Op, x: Any, *others: Any, **scalars: float) -> Any:
    """The only result of a row op."""
    x = np.asarray(x)
    (result,) = evaluate(op.program(), [x, *others], list(scalars.values()), x.dtype)
    return result.reshape(x.shape)


def _shapes(members: tuple[Member, ...], kept: tuple[tuple[int, int], ...]) -> Callable[..., Any]:
    def shapes(*operands: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        results: list[tuple[tuple[int, ...], ...]] = []
        for member in members:
            own = tuple(_inputs(member, operands, results))
            results.append(member.op.result_shapes(own, dict(member.static)))
        return tuple(results[at][k] for at, k in kept)

    return shapes


__all__ = ["Accept", "share", "shared", "together"]
