"""Guarded programs: a program that also reports whether it made something that is not finite.

Each float result gets one more output, a flag a row: `any(isnan(y − y))`, true for NaN and ±Inf alone.
It folds in the very pass that stores the result, so printers need nothing but to or the flags together.
"""

from trueno.ops.program import FOLDS, Node, Program


def guarded(program: Program) -> Program:
    """`program` with one flag after its results for every float result."""
    nodes = list(program.nodes)

    def add(node: Node) -> int:
        nodes.append(node)
        return len(nodes) - 1

    flags = []
    for o in program.outputs:
        node = program.nodes[o]
        if node.type != "T":
            continue
        lost = add(Node("sub", (o, o), None, node.space, "T"))
        bad = add(Node("isnan", (lost,), None, node.space, "bool"))
        flags.append(add(Node("any", (bad,), None, "r", FOLDS["any"].result)) if node.space == "e" else bad)
    return Program(tuple(nodes), (*program.outputs, *flags), program.operands, program.params)
