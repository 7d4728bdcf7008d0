"""Code from which no way leads to the kernel's end."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule


def check(entry: Entry) -> Iterator[Found]:
    for part in entry.graph.endless:
        yield entry.graph.blocks[min(part)].start, "no way leads from this loop to the kernel's end"


RULE = Rule(
    "no-path-to-exit", "high", "certain",
    "A loop has no branch that leaves it, and no return.",
    "A thread that enters it never ends, and neither does the launch.",
    "Give the loop a condition that ends it.",
    bad="""ld.param.u64 %rd1, [x]; mov.u32 %r1, 0;
LOOP: add.u32 %r1, %r1, 1; st.global.u32 [%rd1], %r1; bra LOOP;""",
    good="""ld.param.u64 %rd1, [x]; mov.u32 %r1, 0;
LOOP: add.u32 %r1, %r1, 1; st.global.u32 [%rd1], %r1; setp.lt.u32 %p1, %r1, 9; @%p1 bra LOOP; ret;""",
    check=check,
)  # fmt: skip
