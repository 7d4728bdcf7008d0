"""The plan of a batch: which kernels run, on which values, in which order; decided from shapes alone."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from trueno.batch.buffers import Buffers, assign
from trueno.batch.fuse import Fusion, Group, recipe_of
from trueno.batch.graph import Graph, Recorded, Shape, arranged, kind
from trueno.batch.merged import Part, Recipe, merged, sound
from trueno.discovery import registry
from trueno.discovery.protocol import Call
from trueno.ops.op import Op
from trueno.select import policy

CHAIN = Recipe(
    "e", 0, (Part("neg", (("x", 0, 0),), (), ()), Part("neg", (("v", 0, 0),), (), ())), ((1, 0, "e"),), rows=False
)
"""The shortest chain: −(−x)."""


@dataclass(slots=True)
class Step:
    """One kernel.

    ops: the recorded ops that it runs.  reads, makes: values, and their shapes as the kernel sees them.  call: what the
    selector is asked; None where the general path runs the op.  apart: (op, reason) where one did not fuse.
    """

    op: Op
    ops: list[int]
    reads: list[tuple[int, Shape]]
    params: list[float]
    makes: list[tuple[int, Shape]]
    call: Call | None
    entry: Recorded
    apart: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Steps in order, the buffers of their results, and the values that can be read when all have run."""

    steps: list[Step]
    buffers: Buffers
    results: set[int]


def takes_chains(name: str, residency: str) -> bool:
    """Whether a backend takes ops that are not in the table, as a chain is; one that has a few functions does not."""
    call = Call(merged(CHAIN), np.dtype(np.float32), "e", 1, (10,), (), residency)
    return policy.rejection(registry.load(name), call) is None


def schedule(graph: Graph, wanted: Iterable[int], residency: str, asked: tuple[str, ...] = ()) -> Schedule:
    """The steps that compute the values `wanted`, and nothing else, on the backends `asked` for (none: any)."""
    results = {v for v in wanted if graph.values[v].maker >= 0}
    live = _live(graph, results)
    fusion = Fusion(graph, live, all(takes_chains(name, residency) for name in asked))
    needed = set(results)
    for index in live:
        here = fusion.of(index)
        needed |= {v for v in graph.ops[index].inputs if fusion.maker(v) not in (None, here)}
    steps: list[Step] = []
    for group in fusion.groups:
        for step in _steps(graph, group, needed, residency):
            step.apart = {i: fusion.why[i] for i in step.ops if i in fusion.why}
            steps.append(step)
    moves = [([v for v, _ in s.reads], [v for v, _ in s.makes]) for s in steps]
    return Schedule(steps, assign(graph.values, moves, results), results)


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


def _steps(graph: Graph, group: Group, needed: set[int], residency: str) -> list[Step]:
    entries = [graph.ops[i] for i in group.members]
    if not group.program:
        return [_single(graph, group.members[0], residency)]
    outputs = [v for e in entries for v in e.results if v in needed]
    plain = len(entries) == 1 and len(outputs) == len(entries[0].results)
    if plain and not any(not isinstance(v, int) for v in entries[0].operands):
        return [_program(graph, group.members[0], residency)]
    recipe, operands, params = recipe_of(graph, group, group.members, outputs)
    if not sound(recipe):  # an op whose result does not vary as its signature says
        return [_program(graph, i, residency) for i in group.members]
    op, entry = merged(recipe), entries[0]
    split = arranged(group.domain, group.split, set(group.outside.values()))
    assert split is not None
    shape = _shapes(group.domain, split)
    rank, size = (2 if shape["r"] else 1), prod(group.domain).bit_length()
    call = Call(op, entry.dtype, recipe.kinds, rank, (size,), (), residency)
    reads = [(v, shape[k]) for v, k in operands]
    makes = [(v, shape[space]) for v, (_, _, space) in zip(outputs, recipe.outputs, strict=True)]
    return [Step(op, list(group.members), reads, params, makes, call, entry)]


def _shapes(domain: Shape, split: int) -> dict[str, Shape]:
    """Shapes of operands and results as kernels see them."""
    rows, n = prod(domain[:split]), prod(domain[split:])
    if rows == 1:
        return {"e": (n,), "w": (n,), "r": (), "u": ()}
    return {"e": (rows, n), "w": (n,), "r": (rows,), "u": ()}


def _program(graph: Graph, index: int, residency: str) -> Step:
    """An op that runs by itself as it does outside of a batch, with the same kernel."""
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
    if entry.form == "structured":
        sizes = tuple(prod(s).bit_length() for _, s in reads)
        static = tuple(entry.static.items())
        call = Call(entry.op, entry.dtype, entry.op.layout, len(reads[0][1]), sizes, static, residency)
    return Step(entry.op, [index], reads, list(entry.params), makes, call, entry)
