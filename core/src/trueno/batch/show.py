"""`print(b)`: the plan of a batch, one line per kernel: which ops run together, where, and why others do not."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from trueno.batch.graph import Graph, Number
from trueno.batch.shared import OPERAND
from trueno.batch.step import Step
from trueno.errors import TruenoError
from trueno.text import columns

if TYPE_CHECKING:
    from trueno.dispatch.state import State

LINES = 64
"""The most kernels that are shown of a long batch."""
NUMBERS = 8
"""The most kernels that are named when a reason applies to more."""


def text(name: str, graph: Graph, steps: Sequence[Step], now: "State", device: Any) -> str:
    """The plan as text."""
    head = heading(name, graph, steps)
    shown = list(enumerate(steps[:LINES], 1))
    where = {at: _where(step, now, device) for at, step in shown}
    rows = [_row(at, graph, step, where[at][0]) for at, step in shown]
    lines = [head, *columns(rows, right=(0,))]
    if len(steps) > LINES:
        lines.append(f"and {len(steps) - LINES} more")
    return "\n".join([*lines, *_reasons(graph, [(at, step, where[at][1]) for at, step in shown])])


def heading(name: str, graph: Graph, steps: Sequence[Step]) -> str:
    """How many ops became how many kernels."""
    kernels = f"{len(steps)} kernel{'' if len(steps) == 1 else 's'}"
    ops = sum(len(s.ops) for s in steps)
    dropped = sum(entry.form != "view" for entry in graph.ops) - ops
    head = f"{name}: {ops} op{'' if ops == 1 else 's'} in {kernels}"
    if dropped:
        head += f", {dropped} left out (their results are not used)"
    return head


def placed(steps: Sequence[Step], now: "State") -> list[str]:
    """The backends of the kernels that are shown."""
    return [_where(step, now, None)[0] for step in steps[:LINES]]


def _reasons(graph: Graph, shown: Sequence[tuple[int, Step, str]]) -> Iterator[str]:
    """Why kernels are separate or missing, each reason once, with the kernels to which it applies."""
    holds: dict[tuple[str, str], list[int]] = {}
    for at, step, reason in shown:
        if reason:
            holds.setdefault((graph.ops[step.ops[0]].op.name, reason), []).append(at)
        for i, why in step.apart.items():
            entry = graph.ops[i]
            why = why.removeprefix(f"{entry.op.name}: ")
            if why not in reason:
                holds.setdefault((entry.op.name, why), []).append(at)
    for (name, why), kernels in holds.items():
        first = ", ".join(map(str, kernels[:NUMBERS])) + (", …" if len(kernels) > NUMBERS else "")
        yield f"{f'kernel {first}' if len(kernels) == 1 else f'{len(kernels)} kernels ({first})'}, {name}: {why}"


def _row(at: int, graph: Graph, step: Step, where: str) -> tuple[str, ...]:
    members = [" → ".join(graph.ops[i].op.name for i in ops) for ops in step.members or [step.ops]]
    names = ", ".join(members) + _together(step)
    read = ", ".join(_array(graph, v) for v, _ in step.reads)
    written = ", ".join(_array(graph, v) for v, _ in step.makes)
    numbers = sum(isinstance(v, Number) for i in step.ops for v in graph.ops[i].operands)
    return f"{at}", names, f"{read}{', numbers' if numbers else ''} → {written}", where


def _together(step: Step) -> str:
    """What the members of a kernel have in common."""
    if not step.members:
        return ""
    return " of one operand" if step.op.table_op.name in OPERAND else " of the same tokens"


def _array(graph: Graph, v: int) -> str:
    shape = "×".join(map(str, graph.values[v].shape)) or "1"
    return f"h{v} {shape}"


def _where(step: Step, now: "State", device: Any) -> tuple[str, str]:
    """The backend of a kernel, or the reason why it has none."""
    if step.call is None:
        return "general path", step.reason or step.entry.reason
    try:
        return now._choice(step.call)[0].chosen, ""
    except TruenoError as error:
        return "no backend", str(error)
