"""The control-flow graph of a function: blocks, dominators, post-dominators, what decides whether a block runs, loops.

A block depends on a branch if it post-dominates one of the branch's successors and not the branch (Ferrante, Ottenstein
and Warren 1987).  Such pairs may be as many as the square of the blocks, so their number has a limit.
"""

from dataclasses import dataclass, field
from functools import cached_property

from trueno_cuda.ptx.analyze.effects import ENDS, aborts, label_of
from trueno_cuda.ptx.analyze.loops import Loops
from trueno_cuda.ptx.analyze.orders import immediate, intervals, reverse_postorder, sinks
from trueno_cuda.ptx.syntax.tree import Function, Instruction, Label

LEAST = {"ld": 2, "ldu": 2, "st": 2, "atom": 2, "red": 2, "setp": 3, "mov": 2, "selp": 4, "shfl": 4, "ldmatrix": 2,
         "stmatrix": 2, "cvta": 2, "cvt": 2, "shl": 3, "shr": 3}  # fmt: skip
"""Operands without which an instruction counts as one that was not read."""
OUT = -1
"""The place behind every return, as a successor."""
EFFORT = 200_000
"""Steps that finding what decides whether blocks run may take in one graph: the largest kernels need a tenth."""


@dataclass
class Block:
    """Instructions `start:end`.  successors: of a guarded branch (taken, not taken); OUT where a thread ends."""

    start: int
    end: int
    successors: list[int] = field(default_factory=list)
    predecessors: list[int] = field(default_factory=list)


class Graph:
    """The blocks of a function in the order of its text; the first one is where a thread starts.

    effort: steps that are left for what decides whether blocks run; below 1, some of it is missing.
    """

    def __init__(self, function: Function) -> None:
        self.effort = EFFORT
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
        return immediate(0, [[t for t in b.successors if t != OUT] for b in self.blocks]) if self.blocks else {}

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
        for part in self.endless:  # a loop without a way out ends where its last block is
            follow[max(part)] = [*follow[max(part)], out]
        back: list[list[int]] = [[] for _ in range(out + 1)]
        for n, targets in follow.items():
            for t in targets:
                back[t].append(n)
        parents = immediate(out, back)
        return {n: OUT if p == out else p for n, p in parents.items() if n != out}

    def postdominates(self, a: int, b: int) -> bool:
        """Whether every way from block b to the end passes block a."""
        at = b
        while at not in (OUT, a):
            at = self.postdominator.get(at, OUT)
        return at == a

    @cached_property
    def postdepth(self) -> dict[int, int]:
        """How many blocks stand above each in the tree of post-dominators, itself among them."""
        result: dict[int, int] = {OUT: 0}
        for n in self.postdominator:
            path = []
            while n not in result:
                path.append(n)
                n = self.postdominator[n]
            depth = result[n]
            for n in reversed(path):
                depth += 1
                result[n] = depth
        return result

    @cached_property
    def deciders(self) -> dict[int, set[tuple[int, int]]]:
        """Of each block, the branches that decide whether it runs, each with the successor that leads to it."""
        result: dict[int, set[tuple[int, int]]] = {n: set() for n in self.order}
        for n in self.order:
            targets = dict.fromkeys(self.blocks[n].successors)
            if len(targets) < 2:
                continue
            end = self.postdominator[n]
            for target in targets:
                at = target
                while at not in (OUT, end) and self.effort > 0:
                    result[at].add((n, target))
                    at = self.postdominator[at]
                    self.effort -= 1
        return result

    def all_deciders(self, block: int) -> set[int]:
        """The branches that decide whether a block runs, directly or through others; fewer where effort is spent."""
        if block not in self._closed:
            reached: set[int] = set()
            todo = [block]
            while todo and self.effort > 0:
                direct = self.deciders.get(todo.pop(), ())
                self.effort -= len(direct) + 1
                for branch, _ in direct:
                    if branch not in reached:
                        reached.add(branch)
                        todo.append(branch)
            self._closed[block] = reached
        return self._closed[block]

    @cached_property
    def _closed(self) -> dict[int, set[int]]:
        return {}

    @cached_property
    def loops(self) -> Loops:
        back = [(n, t) for n in self.order for t in self.blocks[n].successors if t != OUT and self.dominates(t, n)]
        before = [[p for p in b.predecessors if p in self.reachable] for b in self.blocks]
        return Loops(self.order, back, before)

    @cached_property
    def endless(self) -> list[set[int]]:
        """Parts without a way out, in which every block leads to every other."""
        caught = self.reachable - self.ending
        follow = [self.blocks[n].successors if n in caught else [] for n in range(len(self.blocks))]
        return sinks(sorted(caught), follow)
