"""Which entry an op needs: derived from its row of the table."""

from typing import Any

from trueno.door.contract import KEYWORDS, EntryKind
from trueno.ops.op import Op


def kind_of(op: Op) -> EntryKind | None:
    """The kind of an op's entry; None for an op that keeps its Python function."""
    inputs, outputs = op.signature.inputs, op.signature.outputs
    if op.structured or op.check is not None or len(outputs) != 1 or any(spec.type for spec in inputs):
        return None
    if not set(op.layout) <= {"e", "w"} or op.layout[0] != "e":
        return None
    floats = [p for p in op.params if p.symbolic]
    if floats != sorted(floats, key=lambda p: p.keyword) or any(not p.keyword for p in op.static):
        return None  # positional parameters come first, and are floats
    constants = fixed(op)
    if len(floats) + len(constants) > KEYWORDS:
        return None
    names = {p.name: f"p{i}" for i, p in enumerate(floats)}
    rules = tuple(" ".join(names.get(word, word) for word in rule.split()) for rule in op.rules)
    parameters = tuple((not p.keyword, p.required) for p in floats)
    index = outputs[0].type == "index"
    return EntryKind(op.layout, op.reduces, index, op.over is None, parameters, rules, len(constants))


def fixed(op: Op) -> list[tuple[str, Any]]:
    """Keywords that an entry takes with one value only: static parameters with their defaults, and the row axis."""
    constants: list[tuple[str, Any]] = [(p.name, p.default) for p in op.static]
    if op.over is not None:
        constants.append(("axis", -1))
    if op.reduces:
        constants.append(("keepdims", False))
    return constants
