"""Threads that leave the kernel before a barrier of their block."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule
from trueno_cuda.ptx.analyze.rules.barrier_branches import kept_away


def check(entry: Entry) -> Iterator[Found]:
    for at, branch, exits in kept_away(entry):
        if exits:
            line = entry.graph.last(branch).line
            yield at, f"some threads leave at line {line}, and the others of their block wait here"


RULE = Rule(
    "exit-before-barrier", "high", "medium",
    "Some threads of a block leave the kernel, by ret or by a branch straight to it, before a barrier that the others "
    "wait at.",
    "Since sm_70 the hardware no longer waits for threads that have left, so the kernel does not stop; but what those "
    "threads should have written before the barrier is missing behind it.",
    "Keep all threads until the last barrier, and guard their loads and stores instead.",
    bad="""ld.param.u32 %r3, [n]; mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, %r3; @%p1 ret;
bar.sync 0; mul.wide.u32 %rd2, %r1, 4; ld.param.u64 %rd1, [x]; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r1;
ret;""",
    good="""ld.param.u32 %r3, [n]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; setp.ge.u32 %p1, %r2, %r3; @%p1 ret;
bar.sync 0; mul.wide.u32 %rd2, %r1, 4; ld.param.u64 %rd1, [x]; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r1;
ret;""",
    check=check,
)  # fmt: skip
