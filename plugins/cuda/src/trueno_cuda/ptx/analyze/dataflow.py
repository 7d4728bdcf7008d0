"""Data flow of registers: liveness and its pressure, definitions that reach a read, results that nothing uses.

Sets of registers are whole numbers with a bit per register.
"""

from bisect import bisect_left
from functools import cached_property

from trueno_cuda.ptx.analyze.effects import effects
from trueno_cuda.ptx.analyze.graph import OUT, Graph
from trueno_cuda.ptx.syntax.tree import Function, Register

EFFORT = 150_000
"""Blocks and writes that the searches for what reaches reads may pass in one entry: compilers' code needs a tenth."""


class Dataflow:
    """reads, writes: indices of registers, by instruction.  definitions: instructions that write a register.

    named: the registers that instructions name; a text may declare more.  effort: steps that are left for writes that
    reach reads; below 1, all writes of a register count.
    """

    def __init__(self, function: Function, graph: Graph) -> None:
        self.registers = function.registers
        self.graph = graph
        self.effort = EFFORT
        self.reads: list[list[int]] = []
        self.writes: list[list[int]] = []
        self.definitions: list[list[int]] = [[] for _ in self.registers]
        self.uses: list[list[int]] = [[] for _ in self.registers]
        self.parameters = 0  # registers that a function's caller fills
        for var in function.params:
            if var.space == "reg":
                self.parameters |= sum(1 << r.index for r in self.registers if r.name == var.name)
        self.returned = sum(
            1 << r.index for r in self.registers if any(r.name == v.name for v in function.results if v.space == "reg")
        )
        for at, ins in enumerate(graph.code):
            read, written = effects(ins)
            self.reads.append([r.index for r in read])
            self.writes.append([r.index for r in (dict.fromkeys(written) if len(written) > 1 else written)])
            for index in self.writes[-1]:
                self.definitions[index].append(at)
            for index in dict.fromkeys(self.reads[-1]):
                self.uses[index].append(at)
        self.named = [r for r in self.registers if self.definitions[r.index] or self.uses[r.index]]

    def used(self, index: int) -> tuple[int, int]:
        """Where, in the list of the loops' blocks, a register that something reads is read: from the first up to the
        second."""
        if index not in self._used:
            places = [self.graph.loops.place(self.graph.block_of[use]) for use in self.uses[index]]
            self._used[index] = min(places), max(places) + 1
        return self._used[index]

    def changes(self, index: int, head: int) -> bool:
        """Whether a loop writes a register."""
        if index not in self._changed:
            self._changed[index] = sorted(
                self.graph.loops.place(self.graph.block_of[d]) for d in self.definitions[index]
            )
        places = self._changed[index]
        first, end = self.graph.loops.span(head)
        k = bisect_left(places, first)
        return k < len(places) and places[k] < end

    @cached_property
    def _used(self) -> dict[int, tuple[int, int]]:
        return {}

    @cached_property
    def _changed(self) -> dict[int, list[int]]:
        """Where each register is written, as `used` counts."""
        return {}

    def only(self, index: int) -> int:
        """The one instruction that writes a register, without a guard; −1 where there are others."""
        sites = self.definitions[index]
        return sites[0] if len(sites) == 1 and self.graph.code[sites[0]].guard is None else -1

    # ---- liveness -------------------------------------------------------------------------------

    @cached_property
    def live_out(self) -> dict[int, int]:
        """Registers whose value is read after each block."""
        graph, code = self.graph, self.graph.code
        gen: dict[int, int] = {}
        kill: dict[int, int] = {}
        for n in graph.order:
            g = k = 0
            block = graph.blocks[n]
            for at in range(block.end - 1, block.start - 1, -1):
                written = 0
                for r in self.writes[at]:
                    written |= 1 << r
                if code[at].guard is None:
                    g &= ~written
                    k |= written
                for r in self.reads[at]:
                    g |= 1 << r
            gen[n], kill[n] = g, k
        out = dict.fromkeys(graph.order, 0)
        live = dict(gen)
        changed = True
        while changed:
            changed = False
            for n in reversed(graph.order):
                after = 0
                for t in graph.blocks[n].successors:
                    after |= self.returned if t == OUT else live[t]
                now = gen[n] | (after & ~kill[n])
                out[n] = after
                if now != live[n]:
                    live[n] = now
                    changed = True
        return out

    @cached_property
    def _walk(self) -> tuple[dict[str, int], int, int, list[int]]:
        """The most values that are live at once by type, the instruction where their words are most, those words, and
        of every instruction the words behind it."""
        graph, code = self.graph, self.graph.code
        kinds: dict[str, int] = {}
        for r in self.named:
            kinds[r.type.name] = kinds.get(r.type.name, 0) | 1 << r.index
        wide = sum(1 << r.index for r in self.named if r.type.bits == 64)
        huge = sum(1 << r.index for r in self.named if r.type.bits == 128)
        flags = sum(1 << r.index for r in self.named if r.type.kind == "p")
        most = dict.fromkeys(kinds, 0)
        place, top = 0, 0
        words = [0] * len(code)
        for n in graph.order:
            live = self.live_out[n]
            block = graph.blocks[n]
            for at in range(block.end - 1, block.start - 1, -1):
                held = live
                for r in self.writes[at]:
                    held |= 1 << r  # a result needs a register even if nothing reads it
                count = (held & ~flags).bit_count() + (held & wide).bit_count() + 3 * (held & huge).bit_count()
                words[at] = count
                if count > top or (count == top and at < place):
                    place, top = at, count
                for kind, mask in kinds.items():
                    most[kind] = max(most[kind], (held & mask).bit_count())
                if code[at].guard is None:
                    for r in self.writes[at]:
                        live &= ~(1 << r)
                for r in self.reads[at]:
                    live |= 1 << r
        return most, place, top, words

    @property
    def pressure(self) -> dict[str, int]:
        """The most registers of each type that are live at once."""
        return self._walk[0]

    @property
    def peak(self) -> tuple[int, int]:
        """The instruction with the most live 32-bit words, and their number."""
        return self._walk[1], self._walk[2]

    @property
    def words(self) -> list[int]:
        """Live 32-bit words behind each instruction."""
        return self._walk[3]

    # ---- definitions ----------------------------------------------------------------------------

    @cached_property
    def defined_in(self) -> dict[int, tuple[int, int]]:
        """Registers written on some way to a block, and on every way; a guarded write counts for the first alone."""
        graph, code = self.graph, self.graph.code
        some: dict[int, int] = {}
        every: dict[int, int] = {}
        for n in graph.order:
            s = e = 0
            for at in range(graph.blocks[n].start, graph.blocks[n].end):
                for r in self.writes[at]:
                    s |= 1 << r
                    e |= (code[at].guard is None) << r
            some[n], every[n] = s, e
        all_bits = (1 << len(self.registers)) - 1
        possible = dict.fromkeys(graph.order, 0)
        certain = dict.fromkeys(graph.order, all_bits)
        if graph.order:
            possible[0] = certain[0] = self.parameters
        changed = True
        while changed:
            changed = False
            for n in graph.order:
                p, c = possible[n] | some[n], certain[n] | every[n]
                for t in graph.blocks[n].successors:
                    if t == OUT:
                        continue
                    now = possible[t] | p, certain[t] & c
                    if now != (possible[t], certain[t]):
                        possible[t], certain[t] = now
                        changed = True
        return {n: (possible[n], certain[n]) for n in graph.order}

    def undefined_reads(self) -> list[tuple[int, Register]]:
        """Reads of registers whose first execution always comes before any write, at instruction and register.

        Every write that reaches such a read is dominated by it: nothing was written when a thread first comes there.
        """
        graph, code = self.graph, self.graph.code
        result = []
        for n in graph.order:
            possible, certain = self.defined_in[n]
            for at in range(graph.blocks[n].start, graph.blocks[n].end):
                for r in dict.fromkeys(self.reads[at]):
                    if certain >> r & 1 or self._written_before(r, at, n, possible):
                        continue
                    result.append((at, self.registers[r]))
                for r in self.writes[at]:
                    possible |= 1 << r
                    certain |= (code[at].guard is None) << r
        return result

    def _written_before(self, index: int, at: int, block: int, possible: int) -> bool:
        if not possible >> index & 1:
            return False
        graph = self.graph
        for site in self.definitions[index]:
            home = graph.block_of[site]
            if home not in graph.reachable:
                continue
            if home == block:
                if site < at:
                    return True  # in this block, before the read
                continue  # behind it: the read came first
            if not graph.dominates(block, home):
                return True
        return False

    # ---- use ------------------------------------------------------------------------------------

    def reaching(self, index: int, at: int) -> list[int]:
        """The writes of a register that may reach an instruction; all of them where effort is spent."""
        sites = self.definitions[index]
        if len(sites) <= 1:
            return sites
        here, certain = self._here(index, at)
        if certain:
            return sorted(here)
        if self.effort < 1:
            return sites
        key = index, self.graph.block_of[at]
        found = here | (self._entering[key] if key in self._entering else self._search(*key))
        self.effort -= len(found)
        return sites if self.effort < 1 else sorted(found)

    def sole(self, index: int, at: int) -> int:
        """The one write of a register that may reach an instruction; −1 where there are several or none."""
        here, certain = self._here(index, at)
        if not certain and len(here) <= 1 and self.effort < 1:
            return -1
        if not certain and len(here) <= 1:
            key = index, self.graph.block_of[at]
            known = self._entering.get(key, self._several.get(key))
            here |= self._search(*key, enough=1) if known is None else known
        return here.pop() if len(here) == 1 else -1

    def _here(self, index: int, at: int) -> tuple[set[int], bool]:
        """The last writes of a register before an instruction of the same block, and whether no other can reach it."""
        sites, graph = self.definitions[index], self.graph
        start = graph.blocks[graph.block_of[at]].start
        result: set[int] = set()
        for k in range(bisect_left(sites, at) - 1, -1, -1):
            if sites[k] < start:
                break
            result.add(sites[k])
            if graph.code[sites[k]].guard is None:
                return result, True
        return result, False

    @cached_property
    def _entering(self) -> dict[tuple[int, int], set[int]]:
        """The writes that may reach the start of a block, by register and block."""
        return {}

    @cached_property
    def _several(self) -> dict[tuple[int, int], set[int]]:
        """The same where only two or more of them are known."""
        return {}

    @cached_property
    def _homes(self) -> dict[int, dict[int, list[int]]]:
        """The writes of a register by block."""
        return {}

    def _search(self, index: int, home: int, enough: int | None = None) -> set[int]:
        """The writes of a register that may reach the start of a block; some of them if they are more than enough."""
        graph = self.graph
        by_block = self._homes.get(index)
        if by_block is None:
            by_block = self._homes[index] = {}
            for s in self.definitions[index]:
                by_block.setdefault(graph.block_of[s], []).append(s)
        result: set[int] = set()
        reached: set[int] = set()
        todo = list(graph.blocks[home].predecessors)
        while todo and (enough is None or len(result) <= enough):
            n = todo.pop()
            self.effort -= 1
            if self.effort < 1:
                return set(self.definitions[index])
            if n in reached:
                continue
            reached.add(n)
            for s in reversed(by_block.get(n, ())):
                result.add(s)
                if graph.code[s].guard is None:
                    break
            else:
                # What an earlier search found: a chain of blocks that read one register takes one pass, not one each.
                known = self._entering.get((index, n), None if enough is None else self._several.get((index, n)))
                if known is None:
                    todo += graph.blocks[n].predecessors
                else:
                    result |= known
                    self.effort -= len(known) // 8  # which takes less time than as many blocks
        whole = enough is None or len(result) <= enough
        (self._entering if whole else self._several)[index, home] = result
        return result
