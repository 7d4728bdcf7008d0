"""The derivation: from a row program to what chunks compute, how that is merged, and what follows.

A fold of a stage is computed of every chunk, merged over the chunks of a row, and then known to all; a fold whose
operand needs it belongs to the next stage.  So a program of k stages reads its operands k times, and once more if a
result is an element of the row.  Two patterns need a stage less, since chunks can be merged without knowing the whole:

moment   Σ (x − mean x)(y − mean y), each mean centred as by `language.centred`: the sums about a chunk's own centre, by
         Chan, Golub and LeVeque (1979), Updating formulae and a pairwise algorithm for computing sample variances.
shifted  Σ e^(x − max x): the sum below a chunk's own maximum, by Milakov and Gimelshein (2018), arXiv 1805.02867.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from trueno.ops import TABLE
from trueno.programs.program import FOLDS, Node, Program

Static = tuple[tuple[str, Any], ...]
"""The static parameters of a call."""


class Fold(NamedTuple):
    """A value of a row that is merged: its kind, its node, and the element nodes of which it is computed."""

    kind: str  # one of FOLDS, "moment" or "shifted"
    node: int
    args: tuple[int, ...]


@dataclass(frozen=True)
class Split:
    """A program in stages.

    stages: the folds of each.  Of a program without folds that needs the length of a row, the first stage is empty.
    """

    program: Program
    stages: tuple[tuple[Fold, ...], ...]

    @cached_property
    def along(self) -> tuple[int, ...]:
        """Numbers of the results with a value per element."""
        return tuple(k for k, o in enumerate(self.program.outputs) if self.program.nodes[o].space == "e")

    @cached_property
    def per_row(self) -> tuple[int, ...]:
        """Numbers of the results with a value per row."""
        return tuple(k for k in range(len(self.program.outputs)) if k not in self.along)

    @cached_property
    def waiting(self) -> tuple[bool, ...]:
        """For each node whether its value depends on the whole row."""
        return _waiting(self.program.nodes)

    def frontier(self, roots: Iterable[int]) -> tuple[int, ...]:
        """The values per row, or the length of a row, on which element nodes depend directly."""
        return tuple(sorted(i for i in self._cone(roots) if self.waiting[i] and self.program.nodes[i].space != "e"))

    def leaves(self, roots: Iterable[int]) -> tuple[str, ...]:
        """The names of the operands, and of the parameters, that they need, in the program's order."""
        nodes = self.program.nodes
        names = {nodes[i].value for i in self._cone(roots) if nodes[i].kind in ("leaf", "param")}
        listed = [*(name for name, _ in self.program.operands), *self.program.params]
        return tuple(name for name in listed if name in names)

    def _cone(self, roots: Iterable[int]) -> set[int]:
        """The nodes that roots need, down to values per row that depend on the whole row."""
        seen: set[int] = set()
        todo = list(roots)
        while todo:
            i = todo.pop()
            if i in seen:
                continue
            seen.add(i)
            if not (self.waiting[i] and self.program.nodes[i].space != "e"):
                todo += self.program.nodes[i].args
        return seen


@lru_cache(maxsize=1024)
def split(op: str, static: Static) -> Split | None:
    """The split of an op of the table; None if a result depends on the place of an element in its row."""
    program = TABLE[op].program(**dict(static))
    nodes = program.nodes
    if any(nodes[i].kind == "position" for i in program.live(program.outputs)):
        return None
    needed: dict[int, Fold] = {}
    seen: set[int] = set()
    todo = list(program.outputs)
    while todo:
        i = todo.pop()
        if i in seen:
            continue
        seen.add(i)
        if nodes[i].kind in FOLDS:
            needed[i] = _fold(nodes, i)
            todo += needed[i].args
        else:
            todo += nodes[i].args
    stage = _stages(nodes, needed)
    count = max((stage[i] for i in seen), default=0)
    stages = tuple(
        tuple(fold for i, fold in sorted(needed.items()) if stage[i] == k) for k in range(1, max(count, 1) + 1)
    )
    return Split(program, stages)


def _fold(nodes: Sequence[Node], i: int) -> Fold:
    """A fold, as the pattern that it is part of."""
    (arg,) = nodes[i].args
    if nodes[i].kind == "sum":
        node = nodes[arg]
        if node.kind == "mul":
            x, y = (_centred(nodes, a) for a in node.args)
            if x is not None and y is not None:
                return Fold("moment", i, (x, y))
        if node.kind == "exp" and nodes[node.args[0]].kind == "sub":
            x, top = nodes[node.args[0]].args
            if nodes[top].kind == "max" and nodes[top].args == (x,):
                return Fold("shifted", i, (x,))
    return Fold(nodes[i].kind, i, (arg,))


def _centred(nodes: Sequence[Node], i: int) -> int | None:
    """The x of a node x − mean x, whose mean is kept within [min x, max x]; None for any other node."""
    if nodes[i].kind != "sub":
        return None
    x, centre = nodes[i].args
    low = _beside(nodes, centre, "minimum", "max", x)
    mean = None if low is None else _beside(nodes, low, "maximum", "min", x)
    if mean is None or nodes[mean].kind != "div":
        return None
    total, count = nodes[mean].args
    return x if (nodes[total].kind, nodes[total].args, nodes[count].kind) == ("sum", (x,), "count") else None


def _beside(nodes: Sequence[Node], i: int, kind: str, fold: str, x: int) -> int | None:
    """The other argument of a node of two, one of which is a fold of x; None for any other node."""
    if nodes[i].kind != kind:
        return None
    others = [a for a in nodes[i].args if (nodes[a].kind, nodes[a].args) != (fold, (x,))]
    return others[0] if len(others) == 1 else None


def _waiting(nodes: Sequence[Node]) -> tuple[bool, ...]:
    waits: list[bool] = []
    for node in nodes:
        waits.append(node.kind in FOLDS or node.kind == "count" or any(waits[a] for a in node.args))
    return tuple(waits)


def _stages(nodes: Sequence[Node], needed: dict[int, Fold]) -> list[int]:
    """The stage after which each node is known; the length of a row is known after the first."""
    stage: list[int] = []
    for i, node in enumerate(nodes):
        if i in needed:
            stage.append(1 + max(stage[a] for a in needed[i].args))
        elif node.kind == "count":
            stage.append(1)
        elif node.kind in FOLDS:  # only inside a pattern
            stage.append(0)
        else:
            stage.append(max((stage[a] for a in node.args), default=0))
    return stage
