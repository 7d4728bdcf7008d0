"""Which row programs are alike to a printer: a sample of ops has to have one of each."""

from trueno.ops import TABLE
from trueno.ops.lower import lower
from trueno.ops.program import FOLDS


def program_shape(name):
    """Kinds of operands and results, folds, and passes: what decides what a printer writes."""
    plan = lower(TABLE[name].program(), "memory")
    nodes = plan.program.nodes
    kinds = "".join(kind for _, kind in plan.program.operands)
    results = "".join("e" if nodes[o].space == "e" else "r" for o in plan.program.outputs)
    return kinds, results, frozenset(n.kind for n in nodes if n.kind in FOLDS), len(plan.passes)


def program_shapes(names):
    """Of these ops."""
    return {program_shape(name) for name in names}
