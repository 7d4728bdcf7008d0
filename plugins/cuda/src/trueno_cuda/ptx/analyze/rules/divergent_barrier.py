"""A barrier that only some threads of a block come to."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule
from trueno_cuda.ptx.analyze.rules.barrier_branches import kept_away


def check(entry: Entry) -> Iterator[Found]:
    for at, branch, exits in kept_away(entry):
        if branch < 0:
            yield at, "the guard of this barrier differs between threads of a block"
        elif not exits:
            line = entry.graph.last(branch).line
            yield at, f"because of the branch at line {line}, some threads of the block never reach this barrier"


RULE = Rule(
    "divergent-barrier", "critical", "high",
    "A barrier stands where a branch, decided differently by threads of one block, leads only some of them.",
    "The threads at the barrier wait for those that never come, or meet them at another barrier: the kernel stops, or "
    "goes on with data that is not there yet.",
    "Move the barrier behind the branch, or make the branch depend on values that all threads of the block share.",
    bad="""mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 40; @!%p1 bra SKIP;
bar.sync 0;
SKIP: mul.wide.u32 %rd2, %r1, 4; ld.param.u64 %rd1, [x]; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r1; ret;""",
    good="""mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; setp.lt.u32 %p1, %r2, 40; @!%p1 bra SKIP;
bar.sync 0;
SKIP: mul.wide.u32 %rd2, %r1, 4; ld.param.u64 %rd1, [x]; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r1; ret;""",
    check=check,
)  # fmt: skip
