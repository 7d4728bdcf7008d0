"""The plan of a batch: which kernels run, on which values, in which order; decided from shapes alone."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from trueno.batch.buffers import Buffers, assign
from trueno.batch.epilogue import shapes, with_epilogue
from trueno.batch.fuse import Fusion, Group, recipe_of
from trueno.batch.graph import Graph, Number, Shape, arranged, kind
from trueno.batch.merged import Part, Recipe, merged, sound
from trueno.batch.shared import share
from trueno.batch.step import Step
from trueno.batch.tokens import bring
from trueno.discovery import registry
from trueno.discovery.protocol import Call
from trueno.dispatch import state
from trueno.errors import TruenoError
from trueno.select import policy
from trueno.settings import settings

CHAIN = Recipe(
    "e", 0, (Part("neg", (("x", 0, 0),), (), ()), Part("neg", (("v", 0, 0),), (), ())), ((1, 0, "e"),), rows=False
)
"""The shortest chain: −(−x)."""
SINGLE = "its backend runs only single ops of the table"
OFF = "TRUENO_FUSION is off"


@dataclass(frozen=True, slots=True)
class Schedule:
    """Steps in order, the buffers of their results, and the values that can be read when all steps have run.

    names: the backends that were named when this was planned, and fused: whether ops were to be fused, because the
    plan depends on them.
    """

    steps: list[Step]
    buffers: Buffers
    results: set[int]
    names: tuple[str, ...]
    fused: bool


def names(asked: tuple[str, ...]) -> tuple[str, ...]:
    """The backends on which kernels have to run: the batch's own, else those in force; empty if the choice is free."""
    if asked:
        return asked
    now = state.current.get().request
    return now.names or (() if now.automatic else settings.get("TRUENO_BACKEND"))


def fusing() -> bool:
    """Whether ops may become one kernel."""
    return bool(settings.get("TRUENO_FUSION"))


def takes_chains(name: str, residency: str) -> bool:
    """Whether a backend takes ops that are not in the table, such as chains; one with a few functions does not."""
    call = Call(merged(CHAIN), np.dtype(np.float32), "e", 1, (10,), (), residency)
    return policy.rejection(registry.load(name), call) is None


def schedule(graph: Graph, wanted: Iterable[int], residency: str, asked: tuple[str, ...] = (), apart: str = ""
             ) -> Schedule:  # fmt: skip
    """The steps that compute the values `wanted`, and nothing else, on the backends `asked` (empty: any).

    apart: why structured ops fuse with nothing here, if they do not.
    """
    results = {v for v in wanted if graph.values[v].maker >= 0}
    live = _live(graph, results)
    results |= {whole for v in results if graph.values[whole := graph.whole(v)].maker >= 0}
    on = names(asked)
    planner = _Planner(graph, residency, asked, all(takes_chains(name, residency) for name in on), apart)
    fused = fusing()
    single = "" if planner.chains and fused else SINGLE if fused else OFF
    fusion = Fusion(graph, live, planner.refusal, single)
    needed = set(results)
    for index in live:
        here = fusion.of(index)
        needed |= {v for v in graph.ops[index].inputs if fusion.maker(v) not in (None, here)}
    steps: list[Step] = []
    for group in fusion.groups:
        for step in planner.steps(group, needed):
            step.apart |= {i: fusion.why[i] for i in step.ops if i in fusion.why}
            steps.append(step)
    if fused and not apart:
        steps = share(graph, steps, results, planner.shared_refusal)
        if residency != "host":
            steps = bring(steps, results, planner.shared_refusal)
    moves = [([graph.whole(v) for v, _ in s.reads], [v for v, _ in s.makes]) for s in steps]
    return Schedule(steps, assign(graph.values, moves, results), results, on, fused)


def updating(graph: Graph, steps: Iterable[Step]) -> str:
    """The first op whose second run may give something else: it updates an upload, or reads one that is updated."""
    values = graph.values
    return next((step.op.name for step in steps if step.op.updates
                 or any(values[w := graph.whole(v)].updated or values[w].upload >= 0 for v, _ in step.reads)),
                "")  # fmt: skip


def _live(graph: Graph, wanted: set[int]) -> list[int]:
    """Ops that the values `wanted` need, in order."""
    needed = set(wanted)
    live = []
    for index in range(len(graph.ops) - 1, -1, -1):
        entry = graph.ops[index]
        if any(v in needed for v in entry.results):
            live.append(index)
            needed.update(entry.inputs)
    return live[::-1]


class _Planner:
    """Makes steps of groups.  chains: whether the named backends take ops that are not in the table.

    apart: why no structured op has a tail.
    """

    def __init__(self, graph: Graph, residency: str, asked: tuple[str, ...], chains: bool, apart: str = "") -> None:
        self.graph = graph
        self.residency = residency
        self.request = state.choosing(asked, "trueno.Batch").request
        self.chains, self.apart = chains, apart
        self._runners: dict[tuple[Any, ...], str] = {}

    def steps(self, group: Group, needed: set[int]) -> list[Step]:
        """The steps of a group, which compute those of its values that are `needed`."""
        graph = self.graph
        entries = [graph.ops[i] for i in group.members]
        if entries[0].form == "view":
            return []
        outputs = [v for e in entries for v in e.results if v in needed]
        if group.head is not None and group.tail:
            outcome = self._finished(group, group.tail, outputs)
            if isinstance(outcome, Step):
                return [outcome]
            step = _single(graph, group.head, self.residency)
            tail = _tail(graph, group)
            rest = self.steps(tail, needed | {graph.ops[group.head].results[0]})
            rest[0].apart |= dict.fromkeys(tail.members[:1], outcome)
            return [step, *rest]
        if not group.program:
            return [_single(graph, group.members[0], self.residency)]
        numbers = any(isinstance(v, Number) for e in entries for v in e.operands)
        if numbers and not self.chains:
            step = _single(graph, group.members[0], self.residency)
            step.reason = f"a number is an operand, and {SINGLE}"
            return [step]
        plain = len(entries) == 1 and len(outputs) == len(entries[0].results)
        if plain and not numbers:
            return [_program(graph, group.members[0], self.residency)]
        recipe, operands, params = recipe_of(graph, group, group.members, outputs)
        if not sound(recipe):  # an op whose result does not vary as its signature states
            return [_program(graph, i, self.residency) for i in group.members]
        op, entry = merged(recipe), entries[0]
        split = arranged(group.domain, group.split, set(group.outside.values()))
        assert split is not None
        shape = _shapes(group.domain, split)
        rank, size = (2 if shape["r"] else 1), prod(group.domain).bit_length()
        call = Call(op, entry.dtype, recipe.kinds, rank, (size,), (), self.residency)
        reads = [(v, shape[k]) for v, k in operands]
        makes = [(v, shape[space]) for v, (_, _, space) in zip(outputs, recipe.outputs, strict=True)]
        return [Step(op, list(group.members), reads, params, makes, call, entry)]

    def refusal(self, group: Group, tail: list[int], outputs: list[int]) -> str:
        """Why the backend of a group's head does not run this tail with it; empty if it does."""
        if self.apart:
            return self.apart
        outcome = self._finished(group, tail, outputs)
        return outcome if isinstance(outcome, str) else ""

    def _finished(self, group: Group, tail: list[int], outputs: list[int]) -> Step | str:
        """A structured op with a tail as one step, or the reason why not."""
        graph = self.graph
        assert group.head is not None
        entry = graph.ops[group.head]
        recipe, operands, params = recipe_of(graph, group, tail, outputs)
        if not sound(recipe):
            return f"a result of the ops on {entry.op.name} does not vary as its elements do"
        op = with_epilogue(entry.op, merged(recipe), recipe.kinds, [graph.ops[i].op.name for i in tail])
        shape = shapes(group.domain)
        alone = [(v, graph.values[v].shape) for v in entry.inputs]
        reads = alone + [(v, shape[k]) for v, k in operands[1:]]
        sizes, static = tuple(prod(s).bit_length() for _, s in reads), tuple(entry.static.items())
        call = Call(op, entry.dtype, op.layout, len(reads[0][1]), sizes, static, self.residency)
        name = self._runner(replace(call, op=entry.op, layout=entry.op.layout, sizes=sizes[: len(alone)]))
        if reason := _rejected(name, call):
            return f"{name} has no {entry.op.name} that fuses with it ({reason})"
        makes = [(v, group.domain) for v in outputs]
        return Step(op, sorted([group.head, *tail]), reads, [*entry.params, *params], makes, call, entry)

    def shared_refusal(self, whole: Step, members: Sequence[Step]) -> str:
        """Why no backend runs one step in place of some that read one operand; empty if one does."""
        assert whole.call is not None
        runners = set()
        for step in members:
            assert step.call is not None
            head = step.call.op.table_op
            sizes = step.call.sizes[: len(head.operands)]
            runners.add(self._runner(replace(step.call, op=head, layout=head.layout, sizes=sizes)))
        if len(runners) > 1:
            return "ops of one operand run on different backends"
        (name,) = runners
        reason = _rejected(name, whole.call)
        return f"{name} runs ops of one operand separately ({reason})" if reason else ""

    def _runner(self, call: Call) -> str:
        """The backend that would run a structured op alone; empty if none would."""
        key = (call.op.name, call.dtype, call.rank, call.sizes, call.static)
        if key not in self._runners:
            try:
                self._runners[key] = policy.decide(call, self.request).chosen
            except TruenoError:  # execution will report it
                self._runners[key] = ""
        return self._runners[key]


def _rejected(name: str, call: Call) -> str:
    """Why a backend refuses a key; empty if it does not, or if there is no backend."""
    reject = policy.rejection(registry.load(name), call) if name else None
    if reject is None:
        return ""
    return reject.code + (f": {reject.detail}" if reject.detail else "")


def _tail(graph: Graph, group: Group) -> Group:
    """The rest of a group without its head: a separate chain."""
    assert group.head is not None
    (result,) = graph.ops[group.head].results
    tail = Group(group.order, group.tail[0], graph.ops[group.tail[0]])
    tail.members, tail.domain, tail.split = group.tail, group.domain, None
    tail.outside = {**group.outside, result: graph.values[result].shape}
    tail.spaces = {v: space for v, space in group.spaces.items() if v != result}
    return tail


def _shapes(domain: Shape, split: int) -> dict[str, Shape]:
    """Shapes of operands and results as kernels see them."""
    rows, n = prod(domain[:split]), prod(domain[split:])
    if rows == 1:
        return {"e": (n,), "w": (n,), "r": (), "u": ()}
    return {"e": (rows, n), "w": (n,), "r": (rows,), "u": ()}


def _program(graph: Graph, index: int, residency: str) -> Step:
    """An op that runs separately as it does outside of a batch, with the same kernel."""
    entry = graph.ops[index]
    op, values = entry.op, graph.values
    inputs = entry.inputs
    split = arranged(entry.domain, entry.split, [values[v].shape for v in inputs])
    assert split is not None
    shape = _shapes(entry.domain, split)
    letters = "".join(kind(values[v].shape, entry.domain, split) for v in inputs)
    if not shape["r"] and op.over is not None:
        letters = op.layout
    size = prod(entry.domain).bit_length()
    call = Call(op, entry.dtype, letters, 2 if shape["r"] else 1, (size,), tuple(entry.static.items()), residency)
    reads = [(v, shape[k]) for v, k in zip(inputs, letters, strict=True)]
    spaces = ["e" if op.over is None or op.over in s.dims else "r" for s in op.signature.outputs]
    makes = [(v, shape[s]) for v, s in zip(entry.results, spaces, strict=True)]
    return Step(op, [index], reads, list(entry.params), makes, call, entry)


def _single(graph: Graph, index: int, residency: str) -> Step:
    """A structured op, or one for the general path."""
    entry, values = graph.ops[index], graph.values
    reads: list[tuple[int, Any]] = [(v, values[v].shape) for v in entry.inputs]
    makes = [(v, values[v].shape) for v in entry.results]
    call = None
    checkable = residency == "host" or any(spec.index for spec in entry.op.signature.inputs)  # kernels check indices
    if entry.form == "structured" and (checkable or not entry.reason):
        sizes = tuple(prod(s).bit_length() for _, s in reads)
        static = tuple(entry.static.items())
        call = Call(entry.op, entry.dtype, entry.op.layout, len(reads[0][1]), sizes, static, residency)
        # Kernels of devices accept an index that the host cannot check; an op without a kernel is run by the host.
        if residency != "host" and entry.reason and policy.rejection(registry.load(residency), call) is not None:
            call = None
    return Step(entry.op, [index], reads, list(entry.params), makes, call, entry)
