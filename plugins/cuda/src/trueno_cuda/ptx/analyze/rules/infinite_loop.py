"""A loop whose conditions cannot change."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule
from trueno_cuda.ptx.analyze.graph import OUT
from trueno_cuda.ptx.syntax.tree import Special

PURE = {"setp", "add", "sub", "mul", "mad", "and", "or", "xor", "not", "shl", "shr", "selp", "cvt", "min", "max", "neg",
        "mov", "fma", "div", "rem", "abs", "set"}  # fmt: skip


def check(entry: Entry) -> Iterator[Found]:
    graph = entry.graph
    for head, body in graph.loops.bodies.items():
        exits = []
        for n in body:
            after = graph.blocks[n].successors
            if any(t == OUT or t not in body for t in after):
                if len(after) < 2:
                    break  # a way out that is always taken: no branch of its own decides
                exits.append(n)
        else:
            guards = [graph.last(n).guard for n in exits]
            if exits and all(g is not None and _fixed(entry, g.index, body, set()) for g in guards):
                first = entry.code[graph.blocks[head].start].line
                yield (
                    graph.blocks[exits[0]].end - 1,
                    f"nothing in the loop from line {first} on changes what decides here whether it ends",
                )


def _fixed(entry: Entry, index: int, body: set[int], above: set[int]) -> bool:
    """Whether a register has the same value in every round of a loop."""
    flow, graph = entry.flow, entry.graph
    inside = [d for d in flow.definitions[index] if graph.block_of[d] in body]
    if not inside:
        return True
    if len(inside) > 1 or len(flow.definitions[index]) > 1 or index in above or len(above) > 50:
        return False
    ins = entry.code[inside[0]]
    if ins.opcode not in PURE or ins.guard is not None or ins.unread:
        return False
    if any(isinstance(o, Special) and o.name.startswith(("clock", "globaltimer")) for o in ins.operands):
        return False
    return all(_fixed(entry, r, body, above | {index}) for r in flow.reads[inside[0]])


RULE = Rule(
    "infinite-loop", "high", "high",
    "Nothing that a loop computes or loads changes any of the conditions that end it.",
    "It ends in its first round, or never.",
    "Advance the counter inside the loop, or load what it waits for in every round, with ld.acquire or ld.volatile.",
    bad="""ld.param.u64 %rd1, [x]; ld.param.u32 %r2, [n]; mov.u32 %r1, 0;
LOOP: st.global.u32 [%rd1], %r1; add.u64 %rd1, %rd1, 4; setp.lt.u32 %p1, %r1, %r2; @%p1 bra LOOP; ret;""",
    good="""ld.param.u64 %rd1, [x]; ld.param.u32 %r2, [n]; mov.u32 %r1, 0;
LOOP: st.global.u32 [%rd1], %r1; add.u64 %rd1, %rd1, 4; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, %r2;
@%p1 bra LOOP; ret;""",
    check=check,
)  # fmt: skip
