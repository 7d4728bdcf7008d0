"""Lowering: a program becomes the fewest passes over a row, once for all printers.

`when(node)` is the pass at which a node can be known: leaves 0, an op the latest of its arguments, a fold
one later.  A fold of time k runs in pass k−1, a row op of time k between passes, an element output of time
k is stored in pass k; so the number of passes is the critical path, hence minimal.  Softmax takes three:
max; exp and sum; scale.

An element value that a later pass needs again is *reloaded* when an output already holds it, *kept* in an
output that will only later get its own value when recomputing costs more than a memory access where the
row resides, and *recomputed* otherwise.  Kernels therefore never allocate.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from trueno.programs.program import ELEMENTS, FOLDS, Program

Residence = Literal["registers", "cache", "memory", "narrow"]
KEEP_ABOVE: dict[Residence, float] = {"registers": 0.0, "cache": 3.0, "memory": 30.0, "narrow": float("inf")}
"""Flops above which a kept value beats a recomputed one (measured for cache and memory on a CPU).

narrow: outputs have fewer digits than values, so that nothing is kept in them, and nothing read back.
"""


@dataclass(frozen=True, slots=True)
class Pass:
    """One sweep over the elements of a row.

    `before`: row and uniform ops to evaluate first.  `loads`: (node, leaf name or output number) pairs.
    `body`: element ops in order.  `folds`: folds that accumulate here.  `stores`: (output number, node).
    """

    before: tuple[int, ...]
    loads: tuple[tuple[int, str | int], ...]
    body: tuple[int, ...]
    folds: tuple[int, ...]
    stores: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Lowering:
    """A lowered program: `passes`, then the row ops in `tail`.

    `hazards`: (output number, operand) pairs that must not share memory, because the output is written
    in an earlier pass than the last one that reads the operand.
    """

    program: Program
    passes: tuple[Pass, ...]
    tail: tuple[int, ...]
    hazards: frozenset[tuple[int, str]]

    @property
    def row_outputs(self) -> tuple[int, ...]:
        """Numbers of the outputs that hold one value per row."""
        nodes = self.program.nodes
        return tuple(k for k, o in enumerate(self.program.outputs) if nodes[o].space != "e")


@lru_cache(maxsize=1024)
def lower(program: Program, residence: Residence = "cache") -> Lowering:
    """Plan the passes of `program` for rows that live in `residence`."""
    nodes = program.nodes
    when: list[int] = []
    flops: list[float] = []  # to recompute an element node from leaves
    for node in nodes:
        when.append(max((when[a] for a in node.args), default=0) + (node.kind in FOLDS))
        own = ELEMENTS[node.kind].flops if node.kind in ELEMENTS and node.space == "e" else 0.0
        flops.append(own + sum(flops[a] for a in node.args if nodes[a].space == "e"))

    element_outputs = {k: o for k, o in enumerate(program.outputs) if nodes[o].space == "e"}
    folds = program.folds
    count = max([when[f] for f in folds] + [when[o] + 1 for o in element_outputs.values()], default=0)

    first: dict[int, int] = {}  # element node → pass that computed it first
    held: dict[int, int] = {}  # element node → output number that holds it
    kept: list[tuple[int, int, int]] = []  # (pass, output number, node)

    def holds(k: int, i: int, p: int) -> bool:
        """Whether output k still holds node i when pass p begins: its own value has not replaced it yet."""
        return element_outputs[k] == i or p <= when[element_outputs[k]]

    sketches: list[tuple[dict[int, str | int], set[int], list[int], list[tuple[int, int]]]] = []
    for p in range(count):
        here = [f for f in folds if when[f] == p + 1]
        stores = [(k, o) for k, o in element_outputs.items() if when[o] == p]
        loads: dict[int, str | int] = {}
        body: set[int] = set()
        todo = [nodes[f].args[0] for f in here] + [o for _, o in stores]
        while todo:
            i = todo.pop()
            node = nodes[i]
            if node.space != "e" or i in loads or i in body:
                continue
            if node.kind == "leaf":
                loads[i] = str(node.value)
                continue
            if i not in held and first.get(i, p) < p and node.type == "T" and flops[i] > KEEP_ABOVE[residence]:
                homes = {k for k, o in element_outputs.items() if when[o] >= p and nodes[o].type == "T"}
                free = sorted(homes - {k for _, k, _ in kept}, key=lambda k: (-when[element_outputs[k]], k))
                if free:
                    held[i] = free[0]
                    kept.append((first[i], free[0], i))
            if i in held and first.get(i, p) < p and holds(held[i], i, p):
                loads[i] = held[i]
                continue
            body.add(i)
            first.setdefault(i, p)
            todo += node.args
        for k, o in stores if residence != "narrow" else ():
            held.setdefault(o, k)
        sketches.append((loads, body, here, stores))

    def row_ops(time: int) -> tuple[int, ...]:
        return tuple(i for i, n in enumerate(nodes) if n.space != "e" and n.kind in ELEMENTS and when[i] == time)

    passes = []
    for p, (loads, body, here, stores) in enumerate(sketches):
        keeps = [(k, node) for at, k, node in kept if at == p]
        passes.append(
            Pass(row_ops(p), tuple(sorted(loads.items())), tuple(sorted(body)), tuple(here), tuple(stores + keeps))
        )
    tail = tuple(i for t in range(count, max(when, default=0) + 1) for i in row_ops(t))
    return Lowering(program, tuple(passes), tail, _hazards(tuple(passes)))


def _hazards(passes: tuple[Pass, ...]) -> frozenset[tuple[int, str]]:
    written: dict[int, int] = {}
    hazards = set()
    for p, sweep in enumerate(passes):
        for _, source in sweep.loads:
            if isinstance(source, str):
                hazards |= {(k, source) for k, at in written.items() if at < p}
        for k, _ in sweep.stores:
            written.setdefault(k, p)
    return frozenset(hazards)
