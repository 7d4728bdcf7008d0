"""Asynchronous copies in flight where their bytes are read, or that only their own thread has waited for.

A way through the code is followed with the copy's state: how many groups have been committed since, itself included;
then, whether it has been waited for, and whether a barrier came behind the wait.
"""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.access import Access
from trueno_cuda.ptx.analyze.effects import waits
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.graph import OUT
from trueno_cuda.ptx.analyze.races import Effort, changed_by, meet
from trueno_cuda.ptx.syntax.tree import Immediate

MOST = 8
"""Groups that are told apart."""
STATES = 20000
State = tuple[int, bool, bool]
"""Groups committed since, waited for, barrier behind the wait."""


def in_flight(entry: Entry) -> Iterator[tuple[Access, Access, bool]]:
    """Copy, read, and whether the thread that reads has waited for it, so that only a barrier is missing."""
    found = list(_in_flight(entry))
    if found and entry.assumed:
        small = {(copy.at, read.at) for copy, read, _ in _in_flight(entry.small)}
        found = [one for one in found if (one[0].at, one[1].at) in small]
    yield from found


def _in_flight(entry: Entry) -> Iterator[tuple[Access, Access, bool]]:
    copies = [a for a in entry.accesses if a.kind == "copy"]
    reads = {a.at: a for a in entry.accesses if a.space == "shared" and a.kind == "load"}
    effort = Effort()
    yield from _pairs(entry, copies if reads else [], reads, effort)
    if effort.spent:
        entry.cut |= {"cp-async-no-wait", "missing-barrier"}


def _pairs(
    entry: Entry, copies: list[Access], reads: dict[int, Access], effort: Effort
) -> Iterator[tuple[Access, Access, bool]]:
    for copy in copies:
        searches: dict[tuple[frozenset[int], bool], dict[int, State]] = {}
        for read in reads.values():
            effort.pairs -= 1
            if effort.spent:
                return
            own = meet(entry, copy, read, apart=0, effort=effort)
            others = meet(entry, copy, read, apart=32, effort=effort) if entry.threads > 32 else None
            if own is None and others is None and not _own(entry, copy, read):
                continue
            way = frozenset(changed_by(entry, copy, read)), others is not None
            if way not in searches:
                searches[way] = _states(entry, copy, *way, effort)
            state = searches[way].get(read.at)
            if state is not None:
                yield copy, read, state[1]


def _own(entry: Entry, copy: Access, read: Access) -> bool:
    """Whether every thread that copies reads its own bytes, though it is not known which threads do either."""
    conditions = _conditions(entry, copy.at)
    if not conditions or conditions != _conditions(entry, read.at):
        return False
    a, b = entry.block_lanes.split(copy.form), entry.block_lanes.split(read.form)
    if a is None or b is None or a.keys() != b.keys() or any((a[k] != b[k]).any() for k in a if k is not None):
        return False
    apart = b[None] - a[None]
    return bool(((apart < copy.bytes) & (apart > -read.bytes)).all())


def _conditions(entry: Entry, at: int) -> set[tuple[int, bool]]:
    """The predicates, each written once, under which an instruction runs; empty where there are other conditions."""
    graph = entry.graph
    result: set[tuple[int, bool]] = set()
    home = graph.block_of[at]
    for branch, target in graph.deciders.get(home, ()):
        last = graph.last(branch)
        if last.guard is None or entry.flow.only(last.guard.index) < 0 or graph.loops.around(home):
            return set()
        result.add((last.guard.index, (graph.blocks[branch].successors[0] == target) != last.negated))
    return result


def _states(entry: Entry, copy: Access, kept: frozenset[int], barrier: bool, effort: Effort) -> dict[int, State]:
    """A state for each instruction that some way leads to from the copy, where a read of what it copied is wrong.

    kept: registers that the way must not change.  barrier: whether other threads copied what is read.
    """
    graph, flow = entry.graph, entry.flow
    result: dict[int, State] = {}
    todo: list[tuple[int, int, State]] = [(graph.block_of[copy.at], copy.at + 1, (0, False, False))]
    reached: set[tuple[int, State]] = set()
    while todo and len(reached) < STATES and not effort.spent:
        n, start, state = todo.pop()
        effort.steps -= graph.blocks[n].end - start
        for at in range(start, graph.blocks[n].end):
            result.setdefault(at, state)
            if not kept.isdisjoint(flow.writes[at]):
                break
            state = _after(entry, at, state)
            if state[2] or (state[1] and not barrier):
                break
        else:
            for t in graph.blocks[n].successors:
                if t != OUT and (t, state) not in reached:
                    reached.add((t, state))
                    todo.append((t, graph.blocks[t].start, state))
    return result


def _after(entry: Entry, at: int, state: State) -> State:
    ins = entry.code[at]
    committed, waited, ordered = state
    if ins.opcode == "cp" and "async" in ins.mods:
        if "commit_group" in ins.mods:
            committed = min(committed + 1, MOST)
        elif "wait_all" in ins.mods or any(m.startswith("mbarrier") for m in ins.mods):
            waited = True
        elif "wait_group" in ins.mods:
            left = ins.operands[0].value if ins.operands and isinstance(ins.operands[0], Immediate) else 0
            waited = waited or committed > left
    elif ins.unread or ins.opcode == "call" or waits(ins) in ("phase", "cluster"):
        waited = ordered = True
    elif waited and waits(ins) in ("block", "part", "arrive"):
        ordered = True
    return committed, waited, ordered
