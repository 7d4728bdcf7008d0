"""Moves that change nothing."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule
from trueno_cuda.ptx.syntax.tree import Instruction, Register


def check(entry: Entry) -> Iterator[Found]:
    graph = entry.graph
    for block in graph.blocks:
        for at in range(block.start, block.end):
            ins = graph.code[at]
            if not _move(ins):
                continue
            to, source = ins.operands
            if to is source:
                yield at, f"{to.name} is moved to itself"  # type: ignore[union-attr]
            elif at > block.start and _move(graph.code[at - 1]):
                before = graph.code[at - 1]
                if before.operands == [source, to] or before.operands == ins.operands:
                    yield at, f"the move of line {before.line} has done this"


def _move(ins: Instruction) -> bool:
    two = ins.opcode == "mov" and len(ins.operands) == 2 and ins.guard is None and not ins.unread
    return two and all(isinstance(o, Register) for o in ins.operands)


RULE = Rule(
    "redundant-move", "low", "certain",
    "A register is moved to itself, back to where it has just come from, or twice to the same place.",
    "ptxas removes it, so it costs nothing; but one of the two registers was meant to be another.",
    "Remove it, or name the register that was meant.",
    bad="ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; mov.u32 %r2, %r1;\n"
    "mov.u32 %r1, %r2; st.global.u32 [%rd1], %r1; ret;",
    good="ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; mov.u32 %r2, %r1; st.global.u32 [%rd1], %r2; ret;",
    check=check,
)  # fmt: skip
