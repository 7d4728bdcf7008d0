"""A loop that does nothing."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule
from trueno_cuda.ptx.syntax.tree import Special

PURE = {"mov", "add", "sub", "mul", "mad", "fma", "setp", "and", "or", "xor", "not", "shl", "shr", "cvt", "selp", "min",
        "max", "bra"}  # fmt: skip


def check(entry: Entry) -> Iterator[Found]:
    graph, flow = entry.graph, entry.flow
    for head, body in graph.loops.bodies.items():
        if head not in graph.ending:
            continue  # no-path-to-exit
        sites = [at for n in body for at in range(graph.blocks[n].start, graph.blocks[n].end)]
        if any(entry.code[at].opcode not in PURE or entry.code[at].unread for at in sites):
            continue
        if any(isinstance(o, Special) and "clock" in o.name for at in sites for o in entry.code[at].operands):
            continue
        inside = set(sites)
        written = {r for at in sites for r in flow.writes[at]}
        if all(use in inside for r in written for use in flow.uses[r]):
            yield graph.blocks[head].start, "this loop accesses no memory, and nothing behind it uses what it computes"


RULE = Rule(
    "empty-loop", "medium", "certain",
    "A loop accesses no memory, waits for nothing, and nothing behind it reads a register that it writes.",
    "It costs time, and was meant to do something.",
    "Remove it, or put back the body.",
    bad="""mov.u32 %r1, 0;
LOOP: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 9; @%p1 bra LOOP; ret;""",
    good="""mov.u32 %r1, 0; ld.param.u64 %rd1, [x];
LOOP: add.u32 %r1, %r1, 1; st.global.u32 [%rd1], %r1; setp.lt.u32 %p1, %r1, 9; @%p1 bra LOOP; ret;""",
    check=check,
)  # fmt: skip
