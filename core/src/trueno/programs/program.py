"""Row programs: what an op's body becomes when it runs with symbols.

A program is a small DAG over one row of `n` elements, repeated over `rows`.  Nodes are frozen data in
topological order and refer to each other by index, so that equal programs have equal text and one hash.
Every node has a space, and the space of an op is the largest of its arguments': this alone hoists
everything constant over a row out of the loop.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Literal, NamedTuple

Space = Literal["u", "r", "e"]  # uniform, one value per row, one value per element
Type = Literal["T", "bool", "index"]  # the program's float, a truth value, a position
SPACES: tuple[Space, ...] = ("u", "r", "e")
LEAF_SPACE: dict[str, Space] = {"e": "e", "w": "e", "r": "r", "u": "u"}
"""Operand kinds: `e` [rows, n], `w` [n] shared by all rows, `r` [rows], `u` one value."""


def extents(kinds: Iterable[str], shapes: Iterable[tuple[int, ...]], rank: int) -> tuple[int, int] | None:
    """Rows, and elements of a row, of arrays of these kinds and shapes in calls of this rank; None if they disagree."""
    axes = {"e": ("rows", "n")[2 - rank :], "w": ("n",), "r": ("rows",)[2 - rank :], "u": ()}
    sizes: dict[str, int] = {}
    for kind, shape in zip(kinds, shapes, strict=True):
        if len(shape) != len(axes[kind]):
            return None
        for axis, size in zip(axes[kind], shape, strict=True):
            if sizes.setdefault(axis, size) != size:
                return None
    return sizes.get("rows", 1), sizes.get("n", 1)


class Element(NamedTuple):
    """The core's facts about an element kind: arity, result type, and cost in flops.

    The flops of functions are in units of one element of a cache-resident sum, as measured on a CPU
    (docs/adr/0003): they rank work, they do not count instructions.
    """

    arity: int
    result: Type
    flops: float


ELEMENTS: dict[str, Element] = {
    **{k: Element(1, "T", 1) for k in ("neg", "abs", "floor", "ceil", "trunc", "rint")},
    **{k: Element(2, "T", 1) for k in ("add", "sub", "mul", "maximum", "minimum", "copysign")},
    "div": Element(2, "T", 2),
    "fma": Element(3, "T", 1),
    **{k: Element(2, "bool", 1) for k in ("lt", "le", "gt", "ge", "eq", "ne", "and", "or")},
    **{k: Element(1, "bool", 1) for k in ("isnan", "isinf", "not")},
    "where": Element(3, "T", 1),
    "sqrt": Element(1, "T", 2),
    "rsqrt": Element(1, "T", 3),
    **{k: Element(1, "T", 4) for k in ("exp", "exp2", "log1p_unit")},
    **{k: Element(1, "T", 7) for k in ("expm1", "tanh", "log", "log2", "log10", "sin", "cos", "atan", "erf")},
    "log1p": Element(1, "T", 9),
    "pow": Element(2, "T", 20),
    "cast": Element(1, "T", 1),
}


class Fold(NamedTuple):
    """A reduction of one row: its identity, and the result for an empty row (None: an error)."""

    identity: float
    empty: float | None
    result: Type


FOLDS: dict[str, Fold] = {
    "sum": Fold(0.0, 0.0, "T"),
    "fsum": Fold(0.0, 0.0, "T"),
    "prod": Fold(1.0, 1.0, "T"),
    "max": Fold(-inf, None, "T"),
    "min": Fold(inf, None, "T"),
    "any": Fold(0.0, 0.0, "bool"),
    "all": Fold(1.0, 1.0, "bool"),
    "argmax": Fold(-inf, None, "index"),
    "argmin": Fold(inf, None, "index"),
}
"""Every fold by name.

NaN: in `max min argmax argmin` it wins, the first index among equals; `any all` count it as true.
"""
NUMBERS = "numbers"
"""The value of a `max` or `min` node whose result does not matter in a row with a NaN: a printer may give any float."""

LEAVES = ("leaf", "param", "const", "count", "position")
"""Kinds of nodes without arguments: operands, parameters, constants, a row's length, an element's place in it."""


@dataclass(frozen=True, slots=True)
class Node:
    """One value of a program: `kind` of an element, a fold or a leaf; arguments by index."""

    kind: str
    args: tuple[int, ...]
    value: str | float | None
    space: Space
    type: Type

    def __str__(self) -> str:
        inside = ", ".join([*(f"%{a}" for a in self.args), *([repr(self.value)] if self.value is not None else [])])
        return f"{self.kind}({inside}) {self.space} {self.type}"


@dataclass(frozen=True)
class Program:
    """A traced op: nodes, output indices, and the operands and parameters in calling order."""

    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    operands: tuple[tuple[str, str], ...]  # (name, kind letter of LEAF_SPACE)
    params: tuple[str, ...]

    @cached_property
    def text(self) -> str:
        """Canonical text: equal programs print equally; names of operands do not enter."""
        names = {name: f"x{i}" for i, (name, _) in enumerate(self.operands)}
        names |= {name: f"p{i}" for i, name in enumerate(self.params)}
        lines = [f"operands {' '.join(kind for _, kind in self.operands)} params {len(self.params)}"]
        for i, node in enumerate(self.nodes):
            value = names.get(node.value, node.value) if node.kind in ("leaf", "param") else node.value  # type: ignore[arg-type]
            lines.append(f"%{i} = {Node(node.kind, node.args, value, node.space, node.type)}")
        return "\n".join([*lines, f"out {' '.join(f'%{o}' for o in self.outputs)}"])

    @cached_property
    def key(self) -> str:
        """Sixteen hex digits that name the program in caches and file names."""
        from hashlib import blake2b  # 3 ms that only printers need

        return blake2b(self.text.encode(), digest_size=8).hexdigest()

    @property
    def folds(self) -> list[int]:
        """Indices of the folds, in order."""
        return [i for i, node in enumerate(self.nodes) if node.kind in FOLDS]

    @property
    def flops(self) -> tuple[float, float]:
        """Flops per element and flops per row; a node shared by many users counts once."""
        element = row = 0.0
        for node in self.nodes:
            if node.kind in ELEMENTS and node.space != "u":
                cost = ELEMENTS[node.kind].flops
                element, row = (element + cost, row) if node.space == "e" else (element, row + cost)
            elif node.kind in FOLDS:
                element += 1
        return element, row

    def live(self, roots: Sequence[int]) -> set[int]:
        """Every node that the roots need."""
        seen: set[int] = set()
        todo = list(roots)
        while todo:
            i = todo.pop()
            if i not in seen:
                seen.add(i)
                todo += self.nodes[i].args
        return seen
