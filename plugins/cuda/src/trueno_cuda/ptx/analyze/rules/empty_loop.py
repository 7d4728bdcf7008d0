"""A loop that does nothing."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule
from trueno_cuda.ptx.syntax.tree import Instruction, Special

PURE = {"mov", "add", "sub", "mul", "mad", "fma", "setp", "and", "or", "xor", "not", "shl", "shr", "cvt", "selp", "min",
        "max", "bra"}  # fmt: skip


def check(entry: Entry) -> Iterator[Found]:
    graph, flow, loops = entry.graph, entry.flow, entry.graph.loops
    idle = dict.fromkeys(loops.heads, True)
    used = {
        head: loops.span(head) for head in loops.heads
    }  # what holds a loop's blocks, and those that use its results
    for n, head in loops.inner.items():
        sites = range(graph.blocks[n].start, graph.blocks[n].end)
        idle[head] = idle[head] and all(map(_pure, graph.code[sites.start : sites.stop]))
        spans = [flow.used(r) for at in sites for r in flow.writes[at] if flow.uses[r]] if idle[head] else []
        used[head] = _around([used[head], *spans])
    for head in reversed(loops.inwards):
        if (outer := loops.outer.get(head)) is not None:
            idle[outer] = idle[outer] and idle[head]
            used[outer] = _around([used[outer], used[head]])
    for head in loops.heads:
        if idle[head] and head in graph.ending and used[head] == loops.span(head):  # or no-path-to-exit reports it
            yield graph.blocks[head].start, "this loop accesses no memory, and nothing behind it uses what it computes"


def _pure(ins: Instruction) -> bool:
    clocks = any(isinstance(o, Special) and "clock" in o.name for o in ins.operands)
    return ins.opcode in PURE and not ins.unread and not clocks


def _around(spans: list[tuple[int, int]]) -> tuple[int, int]:
    return min(first for first, _ in spans), max(end for _, end in spans)


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
