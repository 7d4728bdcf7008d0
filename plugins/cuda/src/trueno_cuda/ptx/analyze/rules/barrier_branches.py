"""Branches that keep some threads of a block from a barrier: what two rules share."""

from collections.abc import Iterator
from functools import lru_cache

from trueno_cuda.ptx.analyze.effects import leaves, waits
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.graph import OUT
from trueno_cuda.ptx.analyze.uniform import BLOCK, LANE, WARP

DEEP = 12
"""Instructions that a value is followed through."""
STEPS = 100_000
"""Blocks that the searches of one entry pass, and branches that they begin at."""
REDUCE = {"or", "and", "add", "max", "min"}


@lru_cache(maxsize=2)
def kept_away(entry: Entry) -> list[tuple[int, int, bool]]:
    """Barrier, branch that decides for single threads or warps whether it is reached (−1: the barrier's own guard),
    and whether the others leave."""
    ways = Ways(entry)
    result = list(_kept_away(entry, ways))
    if ways.steps < 0:
        entry.cut |= {"divergent-barrier", "exit-before-barrier"}
    return result


def _kept_away(entry: Entry, ways: "Ways") -> Iterator[tuple[int, int, bool]]:
    graph = entry.graph
    for at in entry.barriers:
        home, guard = graph.block_of[at], entry.code[at].guard
        least = BLOCK if waits(entry.code[at]) == "block" else WARP
        if guard is not None and entry.uniformity.at(guard.index, at) < least and not _unaligned(entry, at):
            yield at, -1, False
            continue
        if entry.uniformity.regions[home] >= least:
            continue
        for branch in sorted(graph.all_deciders(home)):
            ways.steps -= 1
            if ways.steps < 0:
                return
            level = entry.uniformity.decision(branch)
            if level >= least or _reduced(entry, branch):
                continue
            away = [t for t in graph.blocks[branch].successors if t == OUT or not ways.lead(t, home, branch)]
            ends = [ways.end(branch, t) for t in away]
            if away and all(end == "trap" for end in ends):
                continue
            apart = level > LANE or _unaligned(entry, at)
            if apart and away and all(end == "barrier" for end in ends):
                continue  # the others wait at a barrier of their own, which counts for the same
            exits = graph.postdominator.get(branch, OUT) == OUT and all(end in ("trap", "exit") for end in ends)
            if ways.steps < 0:
                return
            yield at, branch, bool(away) and (exits or all(_departs(entry, t) for t in away))
            break


def _unaligned(entry: Entry, at: int) -> bool:
    """Whether lanes of a warp may come to a barrier at different instructions."""
    ins = entry.code[at]
    return ins.opcode == "barrier" and "aligned" not in ins.mods


def _reduced(entry: Entry, branch: int) -> bool:
    """Whether a branch goes by what lanes have combined by butterflies: then it may be the same for all of them."""
    guard, end = entry.graph.last(branch).guard, entry.graph.blocks[branch].end - 1
    return guard is not None and _combined(entry, guard.index, end, DEEP)


def _combined(entry: Entry, index: int, at: int, depth: int) -> bool:
    """Whether all that differs between lanes in a register was combined by butterflies."""
    sites = entry.flow.reaching(index, at)
    return bool(sites) and depth > 0 and all(_combines(entry, site, depth) for site in sites)


def _combines(entry: Entry, site: int, depth: int) -> bool:
    ins, flow = entry.code[site], entry.flow
    if ins.opcode in REDUCE:
        for register in flow.reads[site]:
            before = flow.only(register)
            shuffled = before >= 0 and entry.code[before].opcode == "shfl" and "bfly" in entry.code[before].mods
            if shuffled and not set(flow.reads[before]).isdisjoint(flow.reads[site]):
                return True
    if ins.opcode in ("ld", "atom", "call") or ins.unread or not flow.reads[site]:
        return False
    different = [r for r in flow.reads[site] if entry.uniformity.at(r, site) < BLOCK]
    return all(_combined(entry, r, site, depth - 1) for r in different)


def _departs(entry: Entry, start: int) -> bool:
    """Whether threads that come to a block end there without other work, though others end there, too."""
    graph = entry.graph
    reached: set[int] = set()
    while start != OUT and start not in reached:
        reached.add(start)
        block = graph.blocks[start]
        last = graph.last(start)
        if block.end - block.start > 1 or last.guard is not None:
            return False
        if last.opcode in ("ret", "exit"):
            return True
        if last.opcode != "bra":
            return False
        start = block.successors[0]
    return start == OUT


class Ways:
    """Where threads go behind a branch.  steps: blocks that searches may still pass; below 0, what they say is not
    used."""

    def __init__(self, entry: Entry) -> None:
        self.entry, self.graph, self.steps = entry, entry.graph, STEPS
        self.barred = {self.graph.block_of[at] for at in entry.barriers}

    def lead(self, start: int, goal: int, branch: int) -> bool:
        """Whether some way from a block leads to another one before it comes back to the branch."""
        reached, todo = {start}, [start]
        while todo and self.steps >= 0:
            n = todo.pop()
            self.steps -= 1
            if n == goal:
                return True
            if n == branch:
                continue
            for t in self.graph.blocks[n].successors:
                if t != OUT and t not in reached:
                    reached.add(t)
                    todo.append(t)
        return False

    def end(self, branch: int, start: int) -> str:
        """What threads come to first on every way: a barrier, an exit, a trap; else "more"."""
        graph = self.graph
        if start == OUT:
            return "trap" if graph.last(branch).opcode == "trap" else "exit"
        ends: set[str] = set()
        reached, todo = {start}, [start]
        while todo and self.steps >= 0:
            n = todo.pop()
            self.steps -= 1
            if n in self.barred:
                ends.add("barrier")
                continue
            last = graph.last(n)
            for t in graph.blocks[n].successors:
                if t == OUT:
                    ends.add("exit" if last.opcode in ("ret", "exit") or not leaves(last) else "trap")
                elif t not in reached:
                    reached.add(t)
                    todo.append(t)
        if ends <= {"trap"}:
            return "trap"
        if ends <= {"trap", "exit"}:
            return "exit"
        return "barrier" if ends <= {"barrier", "trap"} else "more"
