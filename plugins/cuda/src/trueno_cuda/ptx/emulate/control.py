"""The control flow of a function: basic blocks, the order in which groups of lanes run them, what is live.

Lanes that part at a branch meet again because the scheduler always runs the group whose block comes first in the
order.  The order is a weak topological one (Bourdoncle 1993): every block comes after all that lead to it, a loop's
blocks stand together, and all ways back to a loop's head pass one latch behind its last block.  So a join waits
until no other lane can still reach it, which is reconvergence at the immediate post-dominator, and a loop's exit
waits until the last lane has left the loop.
"""

from dataclasses import dataclass, field

from trueno_cuda.ptx.emulate.effects import ends, meets, read, spins, written
from trueno_cuda.ptx.syntax.errors import PtxError
from trueno_cuda.ptx.syntax.tree import Instruction, Label, Symbol

DEPTH = 200


@dataclass
class Block:
    """Instructions `start:end`.  successors: blocks by order; of a branch, (taken, not taken).

    meeting: how lanes wait at it (see `opcodes.Facts`); such a block holds that instruction alone.
    latch: the way back to a loop's head; spin: of a loop that may wait for other threads.
    """

    start: int
    end: int
    successors: list[int] = field(default_factory=list)
    meeting: str = ""
    latch: bool = False
    spin: bool = False
    live: int = 0  # registers live on entry, a bit each
    defined: int = -1  # registers that every way here has written


class Flow:
    """`instructions` without labels; `blocks` in running order, the first one where a thread starts."""

    def __init__(self, body: list[Instruction | Label], keep: int = 0) -> None:
        self.instructions: list[Instruction] = []
        labels: dict[str, int] = {}
        for item in body:
            if isinstance(item, Label):
                labels[item.name] = len(self.instructions)
            else:
                self.instructions.append(item)
        if not self.instructions or self.instructions[-1].opcode not in ("ret", "exit", "bra") or (
            self.instructions[-1].guard is not None or len(self.instructions) in labels.values()
        ):  # fmt: skip
            line = self.instructions[-1].line if self.instructions else 0
            self.instructions.append(Instruction("ret", (), [], line, "ret (implied)"))
        self.labels = labels
        self.keep = keep
        self._cut()
        self._arrange()
        self._liveness()
        self._definedness()

    def first(self, at: int) -> Instruction:
        """The first instruction of a block: of a meeting point, the one that lanes meet at."""
        return self.instructions[self.blocks[at].start]

    # ---- blocks ---------------------------------------------------------------------------------

    def _targets(self, ins: Instruction) -> list[int]:
        names = ins.targets or [o.name for o in ins.operands if isinstance(o, Symbol)][:1]
        if not names:
            raise PtxError(f"{ins.opcode} wants a label", ins.line, ins.text)
        try:
            return [self.labels[name] for name in names]
        except KeyError as error:
            raise PtxError(f"no label {error}", ins.line, ins.text) from None

    def _cut(self) -> None:
        code = self.instructions
        leaders = {0, *self.labels.values()}
        for at, ins in enumerate(code):
            if ends(ins):
                leaders.add(at + 1)
            elif meets(ins):
                leaders |= {at, at + 1}
        starts = sorted(s for s in leaders if s < len(code))
        number = {s: n for n, s in enumerate(starts)}
        self.raw = [Block(s, e) for s, e in zip(starts, [*starts[1:], len(code)], strict=True)]
        for n, block in enumerate(self.raw):
            last = code[block.end - 1]
            after = [n + 1] if n + 1 < len(self.raw) else []
            if last.opcode in ("bra", "brx"):
                block.successors = [number[t] for t in self._targets(last)]
                if last.opcode == "bra" and last.guard is not None:
                    block.successors += after
            elif not ends(last) or last.guard is not None:
                block.successors = after
            block.meeting = meets(code[block.start])

    # ---- order ----------------------------------------------------------------------------------

    def _arrange(self) -> None:
        """Give every reachable block its place, with a latch behind each loop."""
        edges = {n: list(dict.fromkeys(b.successors)) for n, b in enumerate(self.raw)}
        reach, todo = {0}, [0]
        while todo:
            for t in edges[todo.pop()]:
                if t not in reach:
                    reach.add(t)
                    todo.append(t)
        self.order: list[int] = []
        self.latches: dict[int, set[tuple[int, int]]] = {}  # latch → edges that it takes over
        self.heads: dict[int, int] = {}
        self._place([n for n in edges if n in reach], edges, {0})
        blocks = {n: self.raw[n] for n in self.order if n >= 0}
        for latch, taken in self.latches.items():
            spin = any(spins(self.instructions[i]) for n in self.members[latch] if n >= 0
                       for i in range(blocks[n].start, blocks[n].end))  # fmt: skip
            head = self.raw[self.heads[latch]]
            blocks[latch] = Block(head.start, head.start, [self.heads[latch]], latch=True, spin=spin)
            for source, target in taken:
                successors = blocks[source].successors
                blocks[source].successors = [latch if t == target else t for t in successors]
        place = {n: at for at, n in enumerate(self.order)}
        self.blocks = [blocks[n] for n in self.order]
        for block in self.blocks:
            block.successors = [place[t] for t in block.successors]

    def _place(self, nodes: list[int], edges: dict[int, list[int]], entries: set[int], depth: int = 0) -> None:
        if depth > DEPTH:
            raise PtxError(f"loops within each other more than {DEPTH} deep", self.instructions[0].line)
        if not hasattr(self, "members"):
            self.members: dict[int, set[int]] = {}
        for part in components(nodes, edges):
            if len(part) == 1 and part[0] not in edges[part[0]]:
                self.order.append(part[0])
                entries |= set(edges[part[0]])
                continue
            inside = set(part)
            head = min(inside & entries or inside)
            latch = -1 - len(self.latches)
            self.members[latch] = inside
            self.latches[latch] = {(s, head) for s in inside if head in edges[s]}
            self.heads[latch] = head
            inner = {n: [t for t in edges[n] if t in inside and t != head] for n in inside}
            self._place(sorted(inside), inner, {head}, depth + 1)
            self.order.append(latch)
            for n in inside:
                entries |= set(edges[n]) - inside

    # ---- data flow ------------------------------------------------------------------------------

    def _liveness(self) -> None:
        code = self.instructions
        gen, kill = [], []
        for block in self.blocks:
            g = k = 0
            for ins in reversed(code[block.start : block.end]):
                writes = sum({1 << r.index for r in written(ins)})
                reads = 0
                for r in read(ins):
                    reads |= 1 << r.index
                if ins.guard is not None:
                    reads |= writes  # lanes that do not write keep what they had
                else:
                    g &= ~writes
                    k |= writes
                g |= reads
                k &= ~reads
            gen.append(g)
            kill.append(k)
        changed = True
        while changed:
            changed = False
            for n in range(len(self.blocks) - 1, -1, -1):
                block = self.blocks[n]
                out = self.keep
                for t in block.successors:
                    out |= self.blocks[t].live
                live = gen[n] | (out & ~kill[n])
                if live != block.live:
                    block.live = live
                    changed = True

    def _definedness(self) -> None:
        """Forward: registers written on every way to a block."""
        code = self.instructions
        writes = []
        for block in self.blocks:
            bits = 0
            for ins in code[block.start : block.end]:
                if ins.guard is None:
                    for r in written(ins):
                        bits |= 1 << r.index
            writes.append(bits)
        self.blocks[0].defined = 0
        changed = True
        while changed:
            changed = False
            for n, block in enumerate(self.blocks):
                if block.defined == -1:
                    continue
                out = block.defined | writes[n]
                for t in block.successors:
                    defined = self.blocks[t].defined & out
                    if defined != self.blocks[t].defined:
                        self.blocks[t].defined = defined
                        changed = True

    def doubtful(self) -> int:
        """Registers that some way reads before any unguarded write: these alone are watched at run time."""
        bits = 0
        for block in self.blocks:
            defined = block.defined
            for ins in self.instructions[block.start : block.end]:
                for r in read(ins):
                    if not defined >> r.index & 1:
                        bits |= 1 << r.index
                if ins.guard is None:
                    for r in written(ins):
                        defined |= 1 << r.index
        return bits


def components(nodes: list[int], edges: dict[int, list[int]]) -> list[list[int]]:
    """Strongly connected components in topological order (Tarjan 1972, without recursion)."""
    inside = set(nodes)
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    waiting: set[int] = set()
    parts: list[list[int]] = []
    for root in reversed(nodes):
        if root in number:
            continue
        work = [(root, iter([t for t in edges[root] if t in inside]))]
        number[root] = low[root] = len(number)
        stack.append(root)
        waiting.add(root)
        while work:
            node, rest = work[-1]
            for t in rest:
                if t not in number:
                    number[t] = low[t] = len(number)
                    stack.append(t)
                    waiting.add(t)
                    work.append((t, iter([u for u in edges[t] if u in inside])))
                    break
                if t in waiting:
                    low[node] = min(low[node], number[t])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    part = []
                    while True:
                        one = stack.pop()
                        waiting.discard(one)
                        part.append(one)
                        if one == node:
                            break
                    parts.append(part)
    return parts[::-1]
