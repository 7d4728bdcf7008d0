"""Which ops become one kernel: recorded ops join the group of an op that computes one of their operands.

A structured op takes elementwise ops on its result into its group, if the backend's kernel supports it.

Groups are kept in an order in which each needs only earlier ones.  An op may join the latest group that it needs
a value of, or any that no other group needs yet (which then moves to the end); other groups that it needs, and that
no other group does, are merged in.  So no group ever waits for itself, and the time is linear in the ops.

In a group a value varies per element, or per row: a fold's result, and values computed only from such results.
A value with several users is stored, not computed again: users over the same domain are in its group, and for others
the kernel writes it to memory.  `benchmarks/rows/batch.py` measured the limits of a group; see the constants.
"""

from collections.abc import Callable
from math import prod

from trueno.batch.epilogue import takes_tail
from trueno.batch.graph import Graph, Number, Recorded, Shape, arranged, kind
from trueno.batch.merged import Part, Recipe, Source, again, elementary, merged

MOST_OPS = 24
"""Ops of a group.  48 cheap ones in kernels of 4, 8, 12, 24, 48 over 4 million elements: 22, 7.8, 2.5, 1.1, 1.3 ms."""
MOST_ARRAYS = 16
"""Arrays that a group reads.  A sum of 25 over a million elements, with 4, 8, 16, 24 a kernel: 1.9, 1.7, 1.4, 1.4 ms;
over 16 384 elements 24 take half as long again as 16."""
MOST_FUNCTIONS = 12.0
"""Flops an element in elementary functions: exp with tanh, but not two tanh.  Eight tanh in kernels of 1, 2, 4, 8 take
87, 135, 194, 293 µs over 100 000 elements and 4.2, 5.7, 7.9, 12.8 ms over 4 million, for their constants no longer fit
the registers; three exp in one kernel still gain over 4 million."""
MOST_AGAIN, MOST_AGAIN_LONG = 5.0, 30.0
"""Flops an element that a group may compute again in later passes over a row, beyond what its parts do; and where a row
is LONG and comes from memory.  exp before variance gains 5 to 25 % on 4096 rows of 1024, tanh loses as much; over one
row of 16 million exp gains 40 %, tanh 25, three of them nothing."""
LONG = 1 << 22


class Group:
    """Ops that run as one kernel.

    order: groups with a smaller one run before.  into: the group that took this in.  head: the structured op on whose
    result the others are computed.
    """

    __slots__ = (
        "by_row",
        "domain",
        "functions",
        "head",
        "into",
        "members",
        "order",
        "outside",
        "program",
        "rowwise",
        "spaces",
        "split",
        "users",
    )

    def __init__(self, order: int, index: int, entry: Recorded) -> None:
        self.order = order
        self.members = [index]
        self.program = entry.form == "program"
        self.domain = entry.domain
        self.functions = functions(entry)
        self.split = entry.split
        self.outside: dict[int, Shape] = {}  # values of other groups that vary over the domain
        self.rowwise: dict[int, Shape] = {}  # values of other groups used beside row values
        self.spaces: dict[int, str] = {}  # the group's own values: "e" or "r"
        self.users: set[Group] = set()
        self.into: Group | None = None
        self.by_row: set[int] = set()  # members that compute with one value per row
        self.head: int | None = None

    @property
    def tail(self) -> list[int]:
        """The members except the head."""
        return [m for m in self.members if m != self.head]

    @property
    def rows(self) -> int:
        return prod(self.domain[: self.split])


def find(group: Group) -> Group:
    """The group that has merged this one, or this one."""
    while group.into is not None:
        if group.into.into is not None:
            group.into = group.into.into
        group = group.into
    return group


Refusal = Callable[[Group, list[int], list[int]], str]
"""Why no backend runs a structured op with a tail: its group, the tail, the needed values; empty if one does."""


class Fusion:
    """Groups the live ops of a graph.  why: for every op that is separate from one that it needs, the reason.

    single: why every op stays single; empty if ops fuse.
    """

    def __init__(self, graph: Graph, live: list[int], refusal: Refusal, single: str = "") -> None:
        self.graph = graph
        self.refusal = refusal
        self.single = single
        self.why: dict[int, str] = {}
        self._of: dict[int, Group] = {}
        self._order = 0
        for index in live:
            self._place(index)
        self.groups = sorted({id(g): g for g in map(find, self._of.values())}.values(), key=lambda g: g.order)
        for group in self.groups:
            group.members.sort()

    def of(self, index: int) -> Group:
        """The group of an op."""
        return find(self._of[index])

    def maker(self, value: int) -> Group | None:
        """The group that computes a value; None for an upload."""
        made_by = self.graph.values[value].maker
        return None if made_by < 0 else self.of(made_by)

    def _next(self) -> int:
        self._order += 1
        return self._order

    def _place(self, index: int) -> None:
        entry = self.graph.ops[index]
        needed = {g for v in entry.inputs if (g := self.maker(v)) is not None}
        group = self._joined(index, entry, needed) if needed and entry.form != "view" else None
        if group is None:
            group = Group(self._next(), index, entry)
            if group.program:
                self._admit(group, entry)
            elif entry.form == "structured" and takes_tail(entry.op):
                (value,) = entry.results
                shape = self.graph.values[value].shape
                group.head, group.domain, group.split = index, shape, len(shape) - 1
                group.spaces[value] = "e"
        self._of[index] = group
        for other in needed:
            if (other := find(other)) is not group:
                other.users.add(group)

    def _joined(self, index: int, entry: Recorded, needed: set[Group]) -> Group | None:
        if self.single:
            self.why[index] = self.single
            return None
        why: dict[Group, str] = {}
        for group in sorted(needed, key=lambda g: (g.head is None, -g.order)):
            if group.into is not None:
                continue
            movable = not any(find(u) is not group for u in group.users)
            last = max(map(find, needed), key=lambda g: g.order)
            why[group] = self._apart(group, entry)
            if not why[group] and group is not last and not movable:
                why[group] = "another kernel has to run between them"
            if why[group]:
                continue
            if movable:
                group.order = self._next()
            taken = [self._absorb(group, other) for other in needed - {group}]
            if any(taken):
                why[group] = self._apart(group, entry)  # its operands may be in the group now, and row values there
            if not why[group] and self._admit(group, entry):
                group.members.append(index)
                group.functions += functions(entry)
                self._tell(index, {g: w for g, w in why.items() if find(g) is not group})
                return group
            why[group] = why[group] or "a later pass over the row would repeat too much work"
        self._tell(index, why)
        return None

    def _tell(self, index: int, why: dict[Group, str]) -> None:
        if reasons := list(dict.fromkeys(why.values())):
            self.why[index] = "; ".join(reasons)

    def _absorb(self, group: Group, other: Group) -> bool:
        """Merge `other` in, if no other group needs it and it fits; return whether it is in; the graph stays valid."""
        users = {find(u) for u in other.users} if len(other.users) <= 8 else {other}
        if other.into is not None or users - {group} or not other.program or other.domain != group.domain:
            return False
        if group.head is not None:
            before = self.graph.ops[group.head].inputs  # the head reads these from memory
            if other.split is not None or any(v in other.spaces for v in before):
                return False
        splits = {s for s in (group.split, other.split) if s is not None}
        if len(splits) > 1 or len(group.members) + len(other.members) >= MOST_OPS:
            return False
        if group.functions + other.functions > MOST_FUNCTIONS:
            return False
        split = next(iter(splits), None)
        outside = {**group.outside, **other.outside}
        outside = {v: s for v, s in outside.items() if v not in group.spaces and v not in other.spaces}
        rowwise = {**group.rowwise, **other.rowwise}
        if len(outside) + len(rowwise) > MOST_ARRAYS:
            return False
        # One of them has read a row value of the other from memory, where it has another shape.
        for one, two in ((group, other), (other, group)):
            if any(v in two.spaces for v in one.rowwise) or any(two.spaces.get(v) == "r" for v in one.outside):
                return False
        if arranged(group.domain, split, set(outside.values())) is None:
            return False
        group.members += other.members
        group.members.sort()
        group.split, group.outside, group.rowwise = split, outside, rowwise
        group.spaces |= other.spaces
        group.by_row |= other.by_row
        group.users |= other.users
        group.functions += other.functions
        other.into = group
        return True

    def _apart(self, group: Group, entry: Recorded) -> str:
        """Why an op cannot join a group; empty if it can."""
        graph, maker = self.graph, self.graph.ops[group.members[-1]].op.name
        if entry.form == "structured":
            return f"{entry.op.name} is structured, and no kernel fuses with what comes before"
        if entry.form != "program":
            return f"{entry.op.name}: {entry.reason}"
        if not group.program and group.head is None:
            how = {
                "structured": "is structured, and runs separately",
                "view": "gives a view, and no kernel fuses with it",
            }
            return f"{maker} {how.get(graph.ops[group.members[-1]].form, 'goes through the general path')}"
        if len(group.members) >= MOST_OPS:
            return f"{MOST_OPS} ops are together already"
        if (more := functions(entry)) and group.functions + more > MOST_FUNCTIONS:
            return f"{group.functions:g} and {more:g} flops in elementary functions are too many for one kernel"
        own = [v for v in entry.inputs if v in group.spaces]
        others = {v: graph.values[v].shape for v in entry.inputs if v not in group.spaces}
        if len({*group.outside, *group.rowwise, *others}) > MOST_ARRAYS:
            return f"together they would read more than {MOST_ARRAYS} arrays"
        if entry.split is None and group.split is not None and self._by_row(group, entry, own, others):
            return ""
        if group.head is not None and entry.split is not None and not entry.pointwise:
            return f"{entry.op.name} needs whole rows, and {graph.ops[group.head].op.name} makes them in blocks"
        if entry.domain != group.domain:
            return f"{entry.op.name} runs over {entry.domain}, {maker} over {group.domain}"
        split = group.split if entry.split is None else entry.split
        if group.split not in (None, split):
            return f"{entry.op.name} and {maker} have different axes as rows"
        if arranged(group.domain, split, {*group.outside.values(), *others.values()}) is None:
            return "operands are broadcast in different ways"
        if entry.split is not None and any(group.spaces[v] == "r" for v in own):
            return f"{entry.op.name} folds one value per row"
        for v in own:
            if group.spaces[v] == "r" and not _row_value(graph.values[v].shape, group):
                return "a row's result is not stored beside its row; keepdims=True would do that"
        if group.head is not None:
            index = graph.values[entry.results[0]].maker
            trial = self._trial(group, entry, index, dict.fromkeys(entry.results, "e"), others)
            return self.refusal(trial, [*group.tail, index], _unused(graph, [*group.tail, index]))
        return ""

    def _by_row(self, group: Group, entry: Recorded, own: list[int], others: dict[int, Shape]) -> bool:
        """Whether an op computes with one value per row."""
        rows, values = group.rows, self.graph.values
        if prod(entry.domain) != rows or not any(group.spaces[v] == "r" for v in own):
            return False
        return all(group.spaces[v] == "r" and prod(values[v].shape) == rows for v in own) and all(
            prod(s) in (1, rows) for s in others.values()
        )

    def _admit(self, group: Group, entry: Recorded) -> bool:
        """Add an op's reads and results to its group; False, with nothing added, if a pass over rows is wasted."""
        values = self.graph.values
        own = [v for v in entry.inputs if v in group.spaces]
        others = {v: values[v].shape for v in entry.inputs if v not in group.spaces}
        index = values[entry.results[0]].maker
        if entry.split is None and group.split is not None and self._by_row(group, entry, own, others):
            group.by_row.add(index)
            group.rowwise |= others
            group.spaces |= dict.fromkeys(entry.results, "r")
            return True
        before = group.split
        group.split = entry.split if before is None else before
        spaces = {}
        for v, spec in zip(entry.results, entry.op.signature.outputs, strict=True):
            spaces[v] = "e" if entry.op.over is None or entry.op.over in spec.dims else "r"
        if own and group.split is not None and not self._worthwhile(group, entry, index, spaces, others):
            group.split = before
            return False
        group.outside |= others
        group.spaces |= spaces
        return True

    def _worthwhile(
        self, group: Group, entry: Recorded, index: int, spaces: dict[int, str], others: dict[int, Shape]
    ) -> bool:
        """Whether the group with this op repeats little work, beyond what its parts do separately."""
        graph = self.graph
        if not any(graph.ops[m].op.over and not graph.ops[m].pointwise for m in (*group.members, index)):
            return True
        members = [*group.members, index]
        trial = self._trial(group, entry, index, spaces, others)
        recipe, _, _ = recipe_of(graph, trial, members, _unused(graph, members))
        alone = sum(_alone(graph.ops[m]) for m in members)
        most = MOST_AGAIN_LONG if prod(trial.domain[trial.split :]) >= LONG else MOST_AGAIN
        return again(merged(recipe), recipe.kinds, {}) <= alone + most

    def _trial(
        self, group: Group, entry: Recorded, index: int, spaces: dict[int, str], others: dict[int, Shape]
    ) -> Group:
        """The group with an op that it may take, to get the resulting recipe."""
        trial = Group(group.order, index, entry)
        trial.domain, trial.split, trial.by_row, trial.head = group.domain, group.split, group.by_row, group.head
        trial.outside, trial.rowwise = {**group.outside, **others}, group.rowwise
        trial.spaces = {**group.spaces, **spaces}
        return trial


def _unused(graph: Graph, members: list[int]) -> list[int]:
    """Values that members compute and no member reads."""
    used = {v for m in members for v in graph.ops[m].inputs}
    return [v for m in members for v in graph.ops[m].results if v not in used]


def functions(entry: Recorded) -> float:
    """Flops an element that an op spends in elementary functions."""
    return elementary(entry.op, tuple(entry.static.items())) if entry.form == "program" else 0.0


def _alone(entry: Recorded) -> float:
    return again(entry.op, entry.op.layout, entry.static) if entry.op.over is not None else 0.0


def _row_value(shape: Shape, group: Group) -> bool:
    """Whether one value per row, stored under this shape, broadcasts over the domain as one value per row."""
    assert group.split is not None
    letter = kind(shape, group.domain, group.split)
    n = prod(group.domain[group.split :])
    return letter == "r" or (group.rows == 1 and letter in ("u", "e")) or (n == 1 and letter == "e")


def recipe_of(
    graph: Graph, group: Group, members: list[int], outputs: list[int]
) -> tuple[Recipe, list[tuple[int, str]], list[float]]:
    """The recipe of these members of a group, its operands as (value, kind), and the values of its parameters.

    Where the group has a head, its result is the first operand, and may be among the outputs.
    """
    split = arranged(group.domain, group.split, set(group.outside.values()))
    assert split is not None
    rows = prod(group.domain[:split])
    first = None if group.head is None else graph.ops[group.head].results[0]
    slots: dict[tuple[int, str], int] = {} if first is None else {(first, "e"): 0}
    params: list[float] = []
    parts: list[Part] = []
    place: dict[int, tuple[int, int]] = {}

    def source(v: int | Number, by_row: bool) -> Source:
        if isinstance(v, Number):
            params.append(v.value)
            return "s", len(params) - 1, 0
        if v in place:
            return "v", *place[v]
        shape = graph.values[v].shape
        letter = kind(shape, group.domain, split) if not by_row else "r" if prod(shape) == rows > 1 else "u"
        return "x", slots.setdefault((v, letter), len(slots)), 0

    for at, index in enumerate(members):
        entry = graph.ops[index]
        by_row = index in group.by_row
        taken = tuple(source(v, by_row) for v in entry.operands)
        before = len(params)
        params.extend(entry.params)
        symbolic = tuple(("s", before + j, 0) for j in range(len(entry.params)))
        parts.append(Part(entry.op.name, taken, symbolic, tuple(entry.static.items())))
        place |= {v: (at, k) for k, v in enumerate(entry.results)}
    locations = tuple((-1, 0, "e") if v == first else (*place[v], group.spaces[v]) for v in outputs)
    # The first operand should fill the rows, if any does: a key's size class is that of the first operand.
    operands = sorted(slots, key=lambda slot: (slot[0] != first, "ewru".index(slot[1])))
    moved = {slots[o]: i for i, o in enumerate(operands)}

    def settled(s: Source) -> Source:
        return ("x", moved[s[1]], 0) if s[0] == "x" else s

    parts = [p._replace(operands=tuple(map(settled, p.operands))) for p in parts]
    kinds = "".join(k for _, k in operands)
    rowed = group.split is not None and first is None
    return Recipe(kinds, len(params), tuple(parts), locations, rowed), operands, params


__all__ = ["Fusion", "Group", "find", "recipe_of"]
