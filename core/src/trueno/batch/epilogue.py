"""A structured op and the ops that follow it, as one op: `matmul` with a bias and an activation.

The tail is a row program over the result's elements, merged as any chain is.  It reads the result as its first operand,
and beside it arrays of the result's shape, rows shared by all (a bias), one value a row, and single values.  The
body of the whole calls the head's and then the tail's, so reference and judge need not know about the fusion.  A
backend gets it only if it supports it: `supports` is called for the fused call.
"""

from inspect import Parameter as Signed
from typing import Any

import numpy as np

from trueno.batch.merged import title
from trueno.dispatch.state import CHAINS
from trueno.ops.op import FusedOp, Op, Parameter
from trueno.ops.signature import ArraySpec, Signature
from trueno.programs.evaluate import evaluate

_ops: dict[tuple[str, str, str], FusedOp] = {}  # the last `CHAINS` that were created


def takes_tail(op: Op) -> bool:
    """Whether a tail can follow: the op has one float result, whose shape the signature determines."""
    outputs = op.signature.outputs
    return op.structured and op.shapes is None and len(outputs) == 1 and not outputs[0].index and op.check is None


def with_epilogue(head: Op, tail: Op, kinds: str, names: list[str]) -> FusedOp:
    """`head`, and on its result `tail`, whose operands are of these kinds; `names` of the ops in the tail."""
    key = (head.name, tail.name, kinds)
    fused = _ops.get(key)
    if fused is None:
        fused = _ops[key] = _make(head, tail, kinds, names)
        while len(_ops) > CHAINS:
            _ops.pop(next(iter(_ops.copy()), key), None)  # another thread may do so at the same time
    return fused


def shapes(result: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Shapes of a tail's operands by kind, beside a result of this shape."""
    return {"e": result, "w": result[-1:], "r": result[:-1], "u": ()}


def _make(head: Op, tail: Op, kinds: str, names: list[str]) -> FusedOp:
    (result,) = head.signature.outputs
    dims = {
        "e": (result.dims, result.leading),
        "w": (result.dims[-1:], False),
        "r": (result.dims[:-1], result.leading),
        "u": ((), False),
    }
    inputs = [ArraySpec(f"arg{i}", *dims[k]) for i, k in enumerate(kinds) if i]
    outputs = [ArraySpec(spec.name, result.dims, result.leading) for spec in tail.signature.outputs]
    program = tail.program(kinds)
    each = "*".join([*result.dims, *(["rows"] if result.leading else [])])
    body = _body(head, tail, kinds)
    body.__doc__ = f"{' → '.join([head.name, *names])}, in one kernel."
    return FusedOp(
        name=f"{title([head.name, *names])}_{tail.name.rpartition('_')[2]}",
        family="batch",
        signature=Signature((*head.signature.inputs, *inputs), tuple(outputs)),
        body=body,
        params=(*head.params, *(Parameter(p, float, Signed.empty, True) for p in tail.symbolic)),
        structured=True,
        over=None,
        rules=(),
        flops_text=f"{head.flops_text} + {program.flops[0]:g}*{each}",
        aliases=(),
        chain=head.chain,
        domain=None,
        head=head,
        epilogue=tail,
        kinds=kinds,
    )


def _body(head: Op, tail: Op, kinds: str) -> Any:
    count = len(head.operands)

    def body(*operands: Any, **given: Any) -> Any:
        numbers = [given.pop(name) for name in tail.symbolic]
        result = np.asarray(head.body(*operands[:count], **given))
        outputs = evaluate(tail.program(kinds), [result, *operands[count:]], numbers, result.dtype)
        results = tuple(r.reshape(result.shape) for r in outputs)
        return results[0] if len(results) == 1 else results

    return body
