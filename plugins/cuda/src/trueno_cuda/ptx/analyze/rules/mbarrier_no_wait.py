"""Shared memory that is read while a bulk copy still writes it."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.effects import waits
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule
from trueno_cuda.ptx.analyze.graph import OUT
from trueno_cuda.ptx.analyze.races import array
from trueno_cuda.ptx.analyze.rules.mbarrier_no_expect import COPY, EXPECT, HEAD, STORE, WAIT, counts
from trueno_cuda.ptx.syntax.tree import Address


def check(entry: Entry) -> Iterator[Found]:
    reads = {a.at: a for a in entry.accesses if a.space == "shared" and a.kind in ("load", "atomic")}
    open_ended = {v.name for v in [*entry.program.variables, *entry.function.variables] if v.extern or not v.size}
    for at in entry.reachable:
        ins = entry.code[at]
        if not counts(ins) or not ins.operands or not isinstance(ins.operands[0], Address):
            continue
        name = array(entry.values.address(ins.operands[0], at))
        if name in open_ended and entry.phased:
            continue  # it holds arrays of which this text has no names
        read = _unwaited(entry, at, {k for k, a in reads.items() if name is not None and array(a.form) == name})
        if read is not None:
            yield read, f"the bulk copy of line {ins.line} may still write {name}: no wait for its mbarrier is between"
            return


def _unwaited(entry: Entry, copy: int, reads: set[int]) -> int | None:
    """A read that some way leads to from a copy without a wait for a phase of an mbarrier."""
    graph = entry.graph
    reached = _spins(entry, reads)
    todo = [(graph.block_of[copy], copy + 1)]
    while todo:
        n, start = todo.pop()
        for at in range(start, graph.blocks[n].end):
            if waits(entry.code[at]) in ("phase", "cluster") or entry.code[at].opcode == "call":
                break
            if at in reads:
                return at
        else:
            for t in graph.blocks[n].successors:
                if t != OUT and t not in reached:
                    reached.add(t)
                    todo.append((t, graph.blocks[t].start))
    return None


def _spins(entry: Entry, reads: set[int]) -> set[int]:
    """The heads of loops that wait for an mbarrier and do not read: no way passes them without a wait."""
    loops, graph = entry.graph.loops, entry.graph
    phases = {
        loops.inner[n] for at, n in enumerate(graph.block_of) if n in loops.inner and waits(entry.code[at]) == "phase"
    }
    reading = {loops.inner[n] for n in map(graph.block_of.__getitem__, reads) if n in loops.inner}
    return loops.around_any(phases) - loops.around_any(reading)


RULE = Rule(
    "mbarrier-no-wait", "critical", "high",
    "A way leads from a bulk copy to a read of the array that it writes, without a wait for a phase of an mbarrier.",
    "The copy runs beside the threads, and a barrier of the block does not wait for it.",
    "mbarrier.try_wait in a loop, for the mbarrier that the copy names, before the first read.",
    bad=HEAD + EXPECT + COPY + STORE,
    good=HEAD + EXPECT + COPY + WAIT + STORE,
    check=check,
)  # fmt: skip
