"""A loop whose conditions cannot change."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule
from trueno_cuda.ptx.syntax.tree import Special

PURE = {"setp", "add", "sub", "mul", "mad", "and", "or", "xor", "not", "shl", "shr", "selp", "cvt", "min", "max", "neg",
        "mov", "fma", "div", "rem", "abs", "set"}  # fmt: skip
DEEP = 50
"""Instructions that a value is followed through."""
STEPS = 200_000
"""Branches out of loops, one by one for each loop that they leave, and registers that are looked at, in one entry."""


def check(entry: Entry) -> Iterator[Found]:
    graph, loops = entry.graph, entry.graph.loops
    exits: dict[int, list[int]] = {head: [] for head in loops.heads}
    steps = STEPS
    for n in sorted(loops.inner):
        least, head = loops.left(n, graph.blocks[n].successors), loops.inner[n]
        for _ in range(loops.depth[head] - least):
            exits[head].append(n)
            steps -= 1
            head = loops.outer.get(head, head)
        if steps < 0:
            entry.cut.add(RULE.id)
            return
    for head, leaving in exits.items():
        search = Search(entry, head, steps)
        if leaving and all(map(search.idle, leaving)):
            first = entry.code[graph.blocks[head].start].line
            yield (
                graph.blocks[leaving[0]].end - 1,
                f"nothing in the loop from line {first} on changes what decides here whether it ends",
            )
        steps = search.steps
    if steps < 0:
        entry.cut.add(RULE.id)


class Search:
    """Looks for what has the same value in every round of a loop.  steps: what it may still look at; below 0, no more
    is found."""

    def __init__(self, entry: Entry, head: int, steps: int) -> None:
        self.entry, self.head, self.steps = entry, head, steps
        self.known: set[int] = set()

    def idle(self, block: int) -> bool:
        """Whether a block leaves the loop by a branch that goes the same way in every round."""
        guard = self.entry.graph.last(block).guard
        return len(self.entry.graph.blocks[block].successors) > 1 and guard is not None and self._fixed(guard.index, 0)

    def _fixed(self, index: int, depth: int) -> bool:
        """Whether a register has the same value in every round; not if what it follows from goes in a circle."""
        flow = self.entry.flow
        self.steps -= 1
        if index in self.known or not flow.changes(index, self.head):
            return True
        if len(flow.definitions[index]) > 1 or depth > DEEP or self.steps < 0:
            return False
        site = flow.definitions[index][0]
        ins = self.entry.code[site]
        if ins.opcode not in PURE or ins.guard is not None or ins.unread:
            return False
        if any(isinstance(o, Special) and o.name.startswith(("clock", "globaltimer")) for o in ins.operands):
            return False
        if not all(self._fixed(r, depth + 1) for r in flow.reads[site]):
            return False
        self.known.add(index)
        return True


RULE = Rule(
    "infinite-loop", "high", "high",
    "Nothing that a loop computes or loads changes any of the conditions that end it.",
    "It ends in its first round, or never.",
    "Advance the counter inside the loop, or load what it waits for in every round, with ld.acquire or ld.volatile.",
    bad="""ld.param.u64 %rd1, [x]; ld.param.u32 %r2, [n]; mov.u32 %r1, 0;
LOOP: st.global.u32 [%rd1], %r1; add.u64 %rd1, %rd1, 4; setp.lt.u32 %p1, %r1, %r2; @%p1 bra LOOP; ret;""",
    good="""ld.param.u64 %rd1, [x]; ld.param.u32 %r2, [n]; mov.u32 %r1, 0;
LOOP: st.global.u32 [%rd1], %r1; add.u64 %rd1, %rd1, 4; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, %r2;
@%p1 bra LOOP; ret;""",
    check=check,
)  # fmt: skip
