"""Shared memory that is read while an asynchronous copy to it is in flight."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule
from trueno_cuda.ptx.analyze.graph import OUT
from trueno_cuda.ptx.syntax.tree import Instruction

READERS = {"ldmatrix", "wmma"}


def check(entry: Entry) -> Iterator[Found]:
    copies = [a for a in entry.accesses if a.kind == "copy"]
    if not copies or any(_waits(entry, at) for at in entry.reachable):
        return
    graph = entry.graph
    readers = {a.at for a in entry.accesses if a.space == "shared" and a.kind == "load"}
    readers |= {at for at in entry.reachable if entry.code[at].opcode in READERS}
    reached: set[int] = set()
    todo = [graph.block_of[copies[0].at]]
    start = copies[0].at + 1
    while todo:
        n = todo.pop()
        for at in range(max(start, graph.blocks[n].start), graph.blocks[n].end):
            if at in readers:
                yield (
                    at,
                    (
                        f"the asynchronous copy of line {copies[0].ins.line} may still write what this reads: no "
                        "instruction waits for it"
                    ),
                )
                return
        start = 0
        for t in graph.blocks[n].successors:
            if t != OUT and t not in reached:
                reached.add(t)
                todo.append(t)


def _waits(entry: Entry, at: int) -> bool:
    ins: Instruction = entry.code[at]
    if ins.opcode == "cp" and "async" in ins.mods:
        return any(m in ("wait_group", "wait_all", "mbarrier") or m.startswith("mbarrier") for m in ins.mods)
    return ins.opcode == "call" or ins.unread


RULE = Rule(
    "cp-async-no-wait", "critical", "certain",
    "A kernel copies to shared memory with cp.async, reads shared memory behind it, and never waits for the copy.",
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
