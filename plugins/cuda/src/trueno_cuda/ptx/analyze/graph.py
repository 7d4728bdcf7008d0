"""The control-flow graph of a function: blocks, dominators, post-dominators, what decides whether a block runs, loops.

Dominators are computed by iteration over the reverse postorder (Cooper, Harvey and Kennedy 2001).  A block depends on
a branch if it post-dominates one of the branch's successors and not the branch (Ferrante, Ottenstein and Warren 1987).
"""

from dataclasses import dataclass, field
from functools import cached_property

from trueno_cuda.ptx.analyze.effects import ENDS, aborts, label_of
from trueno_cuda.ptx.syntax.tree import Function, Instruction, Label

LEAST = {"ld": 2, "ldu": 2, "st": 2, "atom": 2, "red": 2, "setp": 3, "mov": 2, "selp": 4, "shfl": 4, "ldmatrix": 2,
         "stmatrix": 2, "cvta": 2, "cvt": 2, "shl": 3, "shr": 3}  # fmt: skip
"""Operands without which an instruction counts as one that was not read."""
OUT = -1
"""The place behind every return, as a successor."""


@dataclass
class Block:
    """Instructions `start:end`.  successors: of a guarded branch (taken, not taken); OUT where a thread ends."""

    start: int
    end: int
    successors: list[int] = field(default_factory=list)
    predecessors: list[int] = field(default_factory=list)


class Graph:
    """The blocks of a function in the order of its text; the first one is where a thread starts."""

    def __init__(self, function: Function) -> None:
        self.code: list[Instruction] = []
        self.labels: dict[str, int] = {}
        for item in function.body:
            if isinstance(item, Label):
                self.labels[item.name] = len(self.code)
            else:
                short = len(item.operands) < LEAST.get(item.opcode, 0)
                self.code.append(item.but(unread=True) if short else item)
        self.blocks: list[Block] = []
        self._cut()
        self.block_of = [n for n, b in enumerate(self.blocks) for _ in range(b.start, b.end)]

    def _cut(self) -> None:
        code = self.code
        leaders = {0, *self.labels.values()}
        leaders |= {at + 1 for at, ins in enumerate(code) if ins.opcode in ENDS or aborts(ins)}
        starts = sorted(s for s in leaders if s < len(code))
        number = {s: n for n, s in enumerate(starts)}
        ends = [*starts[1:], len(code)] if starts else []
        self.blocks = [Block(s, e) for s, e in zip(starts, ends, strict=True)]
        for n, block in enumerate(self.blocks):
            last = code[block.end - 1]
            after = n + 1 if n + 1 < len(self.blocks) else OUT
            if last.opcode in ("bra", "brx"):
                targets = [number.get(self.labels.get(name, -1), OUT) for name in label_of(last)]
                block.successors = targets or [OUT]
                if last.guard is not None or (last.opcode == "brx" and not targets):
                    block.successors.append(after)
            elif last.opcode in ENDS or aborts(last):
                block.successors = [OUT] if last.guard is None else [OUT, after]
            else:
                block.successors = [after]
        for n, block in enumerate(self.blocks):
            for t in dict.fromkeys(block.successors):
                if t != OUT:
                    self.blocks[t].predecessors.append(n)

    def last(self, block: int) -> Instruction:
        return self.code[self.blocks[block].end - 1]

    # ---- order ----------------------------------------------------------------------------------

    @cached_property
    def order(self) -> list[int]:
        """Reachable blocks in reverse postorder."""
        return reverse_postorder(0, [[t for t in b.successors if t != OUT] for b in self.blocks]) if self.blocks else []

    @cached_property
    def reachable(self) -> set[int]:
        return set(self.order)

    @cached_property
    def dominator(self) -> dict[int, int]:
        """The immediate dominator of each reachable block; the first block is its own."""
        return immediate(self.order, {n: self.blocks[n].predecessors for n in self.order})

    def dominates(self, a: int, b: int) -> bool:
        """Whether every way to block b passes block a."""
        first, last = self._intervals
        return a in first and b in first and first[a] <= first[b] and last[b] <= last[a]

    @cached_property
    def _intervals(self) -> tuple[dict[int, int], dict[int, int]]:
        return intervals(self.dominator, 0)

    # ---- ways out -------------------------------------------------------------------------------

    @cached_property
    def ending(self) -> set[int]:
        """Blocks from which some way leads to the end."""
        todo = [n for n in self.order if OUT in self.blocks[n].successors]
        reached = set(todo)
        while todo:
            for p in self.blocks[todo.pop()].predecessors:
                if p in self.reachable and p not in reached:
                    reached.add(p)
                    todo.append(p)
        return reached

    @cached_property
    def postdominator(self) -> dict[int, int]:
        """The immediate post-dominator of each reachable block; OUT where there is no block."""
        out = len(self.blocks)
        follow = {n: [out if t == OUT else t for t in dict.fromkeys(self.blocks[n].successors)] for n in self.order}
        for part in self.loops.endless:  # a loop without a way out ends where its last block is
            follow[max(part)] = [*follow[max(part)], out]
        back: list[list[int]] = [[] for _ in range(out + 1)]
        for n, targets in follow.items():
            for t in targets:
                back[t].append(n)
        order = reverse_postorder(out, back)
        parents = immediate(order, {**follow, out: []})
        return {n: OUT if parents[n] == out else parents[n] for n in order if n != out}

    def postdominates(self, a: int, b: int) -> bool:
        """Whether every way from block b to the end passes block a."""
        at = b
        while at != OUT:
            if at == a:
                return True
            at = self.postdominator.get(at, OUT)
        return False

    @cached_property
    def deciders(self) -> dict[int, set[tuple[int, int]]]:
        """Of each block, the branches that decide whether it runs, each with the successor that leads to it."""
        result: dict[int, set[tuple[int, int]]] = {n: set() for n in self.order}
        for n in self.order:
            targets = dict.fromkeys(self.blocks[n].successors)
            if len(targets) < 2:
                continue
            end = self.postdominator.get(n, OUT)
            for target in targets:
                at = target
                while at not in (OUT, end):
                    result[at].add((n, target))
                    at = self.postdominator.get(at, OUT)
        return result

    def all_deciders(self, block: int) -> set[int]:
        """The branches that decide whether a block runs, directly or through others."""
        if block not in self._closed:
            reached: set[int] = set()
            todo = [block]
            while todo:
                for branch, _ in self.deciders.get(todo.pop(), ()):
                    if branch not in reached:
                        reached.add(branch)
                        todo.append(branch)
            self._closed[block] = reached
        return self._closed[block]

    @cached_property
    def _closed(self) -> dict[int, set[int]]:
        return {}

    @cached_property
    def loops(self) -> "Loops":
        return Loops(self)


class Loops:
    """bodies: blocks of each loop by its head.  around: the heads of the loops around a block.  endless: loops that no
    way leaves."""

    def __init__(self, graph: Graph) -> None:
        self.bodies: dict[int, set[int]] = {}
        for n in graph.order:
            for head in graph.blocks[n].successors:
                if head != OUT and graph.dominates(head, n):
                    body = self.bodies.setdefault(head, {head})
                    todo = [n]
                    while todo:
                        at = todo.pop()
                        if at not in body:
                            body.add(at)
                            todo += [p for p in graph.blocks[at].predecessors if p in graph.reachable]
        self.around: dict[int, list[int]] = {n: [] for n in graph.order}
        for head, body in self.bodies.items():
            for n in body:
                self.around[n].append(head)
        caught = graph.reachable - graph.ending
        self.endless: list[set[int]] = []
        while caught:
            seed = min(caught)
            region = {seed}
            todo = [seed]
            while todo:
                for t in graph.blocks[todo.pop()].successors:
                    if t in caught and t not in region:
                        region.add(t)
                        todo.append(t)
            self.endless.append(self._sink(graph, region))
            caught -= region

    @staticmethod
    def _sink(graph: Graph, region: set[int]) -> set[int]:
        """A part of a region without a way out, from each of whose blocks every other can be reached."""
        part = set(region)
        for n in sorted(region):
            reached, todo = {n}, [n]
            while todo:
                for t in graph.blocks[todo.pop()].successors:
                    if t not in reached:
                        reached.add(t)
                        todo.append(t)
            if len(reached) < len(part):
                part = reached
            if len(region) > 500:  # any part serves
                break
        return part


def reverse_postorder(root: int, follow: list[list[int]]) -> list[int]:
    order: list[int] = []
    reached = {root}
    stack = [(root, iter(follow[root]))]
    while stack:
        node, rest = stack[-1]
        for t in rest:
            if t not in reached:
                reached.add(t)
                stack.append((t, iter(follow[t])))
                break
        else:
            order.append(node)
            stack.pop()
    return order[::-1]


def immediate(order: list[int], before: dict[int, list[int]]) -> dict[int, int]:
    """Immediate dominators of nodes in reverse postorder, from their predecessors; the root is its own."""
    place = {n: at for at, n in enumerate(order)}
    parent: dict[int, int] = {order[0]: order[0]} if order else {}
    changed = True
    while changed:
        changed = False
        for n in order[1:]:
            best = -1
            for p in before[n]:
                if p not in parent:
                    continue
                if best < 0:
                    best = p
                    continue
                a, b = best, p
                while a != b:
                    while place[a] > place[b]:
                        a = parent[a]
                    while place[b] > place[a]:
                        b = parent[b]
                best = a
            if best >= 0 and parent.get(n) != best:
                parent[n] = best
                changed = True
    return parent


def intervals(parent: dict[int, int], root: int) -> tuple[dict[int, int], dict[int, int]]:
    """When a walk over the tree enters and leaves each node: ancestors contain their descendants."""
    children: dict[int, list[int]] = {n: [] for n in parent}
    for n, p in parent.items():
        if n != p:
            children[p].append(n)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    clock = 0
    stack = [(root, False)] if parent else []
    while stack:
        node, done = stack.pop()
        clock += 1
        if done:
            last[node] = clock
            continue
        first[node] = clock
        stack.append((node, True))
        stack += [(c, False) for c in children[node]]
    return first, last
