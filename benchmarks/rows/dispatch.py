"""What a call costs beyond its kernel where no entry is compiled: the Python function with `out=` minus the bare kernel
from `op.plan`.

Both take turns, and of both the minimum over all runs counts: noise only adds, and a difference of two
calls of half a microsecond has none to spare.
"""

from collections.abc import Iterator
from functools import partial

from trueno.ops.op import Op

from benchmarks import inputs
from benchmarks.compare import Record, function, ours, python_functions
from benchmarks.rows import Cell, Plan, families, text
from benchmarks.timing import bind, fastest, race

SHAPE = (1_024,)
SHORT = ("add", "gelu", "softmax", "sum", "rms_norm", "clamp")


def cells(plan: Plan) -> Iterator[Cell]:
    listed = families.ops("arithmetic", "mathematics", "activations", "reductions", "normalization")
    for op in listed:
        if not plan.quick or op.name in SHORT:
            yield Cell("dispatch", op.name, text(SHAPE), partial(_one, op, plan))


def _one(op: Op, plan: Plan) -> list[Record]:
    with python_functions():
        return _raced(op, plan)


def _raced(op: Op, plan: Plan) -> list[Record]:
    memory, keywords = inputs.arena(SHAPE), inputs.required(op)
    operands = memory.operands(op)
    out = memory.out(op, operands, keywords)
    call = ours(op, operands, keywords, out)
    call()
    static = {p.name: keywords[p.name] for p in op.static if p.name in keywords}
    params = inputs.complete(op, keywords)
    symbolic = [params[name] for name in op.symbolic]
    outs = out if isinstance(out, tuple) else (out,)
    kernel = bind(function(op).plan(*operands, **static), *operands, *symbolic, *outs)
    pair = {"call": call, "kernel": kernel}
    best = fastest(race(pair, plan.budget, tuple(pair)))
    beyond = best["call"] - best["kernel"]
    return [Record("dispatch", op.name, text(SHAPE), "s", beyond, seconds=best, family=op.family)]
