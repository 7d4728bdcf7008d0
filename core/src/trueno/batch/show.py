"""`print(b)`: the plan of a batch, a line a kernel: what runs together, where, and why the rest does not."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trueno.batch.graph import Graph, Number
from trueno.batch.steps import Step
from trueno.errors import TruenoError
from trueno.text import columns

if TYPE_CHECKING:
    from trueno.dispatch.state import State

LINES = 64
"""Kernels that are shown of a long batch."""


def text(name: str, graph: Graph, steps: Sequence[Step], now: "State", device: Any) -> str:
    """The plan as text."""
    kernels = f"{len(steps)} kernel{'' if len(steps) == 1 else 's'}"
    ops = sum(len(s.ops) for s in steps)
    dropped = len(graph.ops) - ops
    head = f"{name}: {ops} op{'' if ops == 1 else 's'} in {kernels}"
    if dropped:
        head += f", {dropped} left out (nobody reads what they make)"
    rows = [_row(at, graph, step, now, device) for at, step in enumerate(steps[:LINES], 1)]
    lines = [head, *columns(rows, right=(0,))]
    if len(steps) > LINES:
        lines.append(f"and {len(steps) - LINES} more")
    for at, step in enumerate(steps[:LINES], 1):
        lines += [f"kernel {at}, {graph.ops[i].op.name}: {why}" for i, why in step.apart.items()]
    return "\n".join(lines)


def _row(at: int, graph: Graph, step: Step, now: "State", device: Any) -> tuple[str, ...]:
    names = " → ".join(graph.ops[i].op.name for i in step.ops)
    read = ", ".join(_array(graph, v) for v, _ in step.reads)
    made = ", ".join(_array(graph, v) for v, _ in step.makes)
    numbers = sum(isinstance(v, Number) for i in step.ops for v in graph.ops[i].operands)
    return f"{at}", names, f"{read}{', numbers' if numbers else ''} → {made}", _where(step, now, device)


def _array(graph: Graph, v: int) -> str:
    shape = "×".join(map(str, graph.values[v].shape)) or "1"
    return f"h{v} {shape}"


def _where(step: Step, now: "State", device: Any) -> str:
    if step.call is None:
        return f"general path: {step.reason or step.entry.reason}"
    try:
        return now._choice(step.call)[0].chosen
    except TruenoError as error:
        return f"nobody: {error}"
