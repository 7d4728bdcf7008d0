"""Shared memory that is read while an asynchronous copy to it is in flight."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.copies import in_flight
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule
from trueno_cuda.ptx.analyze.graph import OUT
from trueno_cuda.ptx.analyze.walks import walked
from trueno_cuda.ptx.syntax.tree import Instruction

READERS = {"ldmatrix", "wmma"}
WRITERS = {"st", "stmatrix"}


def check(entry: Entry) -> Iterator[Found]:
    reported: set[int] = set()
    for copy, read, waited in in_flight(entry):
        if not waited and read.at not in reported:
            reported.add(read.at)
            yield read.at, f"the asynchronous copy of line {copy.ins.line} may still write what this reads"
    for clash in walked(entry):
        if clash.kind == "flight" and clash.second not in reported:
            reported.add(clash.second)
            line = entry.code[clash.first].line
            does = "writes" if entry.code[clash.second].opcode in WRITERS else "reads"
            yield clash.second, f"the asynchronous copy of line {line} may still write what this {does}"
    if not reported and not any(_waits(entry, at) for at in entry.reachable):
        yield from _never(entry)


def _never(entry: Entry) -> Iterator[Found]:
    """The first read of shared memory behind a copy, in a kernel that waits for none."""
    copies = [a for a in entry.accesses if a.kind == "copy"]
    readers = {a.at for a in entry.accesses if a.space == "shared" and a.kind == "load"}
    readers |= {at for at in entry.reachable if entry.code[at].opcode in READERS}
    graph = entry.graph
    reached: set[int] = set()
    todo = [(graph.block_of[a.at], a.at + 1) for a in copies[:1]]
    while todo:
        n, start = todo.pop()
        for at in range(start, graph.blocks[n].end):
            if at in readers:
                yield at, f"the asynchronous copy of line {copies[0].ins.line} may still run: nothing waits for it"
                return
        for t in graph.blocks[n].successors:
            if t != OUT and t not in reached:
                reached.add(t)
                todo.append((t, graph.blocks[t].start))


def _waits(entry: Entry, at: int) -> bool:
    ins: Instruction = entry.code[at]
    if ins.opcode == "cp" and "async" in ins.mods:
        return any(m in ("wait_group", "wait_all") or m.startswith("mbarrier") for m in ins.mods)
    return ins.opcode == "call" or ins.unread


RULE = Rule(
    "cp-async-no-wait", "critical", "high",
    "A kernel copies to shared memory with cp.async, and some way leads to a read of those bytes without a wait for "
    "the group that the copy was committed to.",
    "cp.async returns before the bytes have arrived, and a barrier does not wait for them.",
    "cp.async.commit_group, cp.async.wait_group, then bar.sync, before the first read.",
    bad="""mov.u32 %r1, %tid.x; mov.u32 %r3, s; shl.b32 %r2, %r1, 2; add.u32 %r3, %r3, %r2; ld.param.u64 %rd1, [x];
mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2; cp.async.ca.shared.global [%r3], [%rd1], 4;
cp.async.commit_group; bar.sync 0; ld.shared.u32 %r4, [%r3]; st.global.u32 [%rd1], %r4; ret;""",
    good="""mov.u32 %r1, %tid.x; mov.u32 %r3, s; shl.b32 %r2, %r1, 2; add.u32 %r3, %r3, %r2; ld.param.u64 %rd1, [x];
mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2; cp.async.ca.shared.global [%r3], [%rd1], 4;
cp.async.commit_group; cp.async.wait_group 0; bar.sync 0; ld.shared.u32 %r4, [%r3]; st.global.u32 [%rd1], %r4; ret;""",
    check=check,
)  # fmt: skip
