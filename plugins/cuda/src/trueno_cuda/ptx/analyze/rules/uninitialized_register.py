"""A register that is read before anything was written to it."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.effects import space
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule

PARTLY = {"mov", "selp", "bfi", "prmt", "shf"}
"""Compilers let these read registers without a value, whose bits nothing uses."""


def check(entry: Entry) -> Iterator[Found]:
    reported: set[int] = set()
    for at, register in entry.flow.undefined_reads():
        ins = entry.code[at]
        chooses = ins.opcode == "selp" and ins.operands[-1:] == [register]
        if ins.opcode in PARTLY and ins.guard is not register and not chooses:
            continue
        if ins.unread or register.index in reported or (ins.opcode == "st" and space(ins) in ("local", "param")):
            continue
        reported.add(register.index)
        yield at, f"{register.name} is read, and nothing was written to it on any way here"


RULE = Rule(
    "uninitialized-register", "high", "certain",
    "An instruction reads a register to which nothing was written before, whichever way a thread came.",
    "Its value is whatever was left in the hardware register: another one in each run, on each GPU, and in each "
    "version of ptxas, which accepts the text without a warning.",
    "Write the register before the loop or the branch; an accumulator begins with 0.",
    bad="""ld.param.u64 %rd1, [x]; mov.u32 %r1, 0;
LOOP: ld.global.f32 %f1, [%rd1]; add.f32 %f2, %f2, %f1; add.u64 %rd1, %rd1, 4;
add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 8; @%p1 bra LOOP;
ld.param.u64 %rd2, [y]; st.global.f32 [%rd2], %f2; ret;""",
    good="""ld.param.u64 %rd1, [x]; mov.u32 %r1, 0; mov.f32 %f2, 0f00000000;
LOOP: ld.global.f32 %f1, [%rd1]; add.f32 %f2, %f2, %f1; add.u64 %rd1, %rd1, 4;
add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 8; @%p1 bra LOOP;
ld.param.u64 %rd2, [y]; st.global.f32 [%rd2], %f2; ret;""",
    check=check,
)  # fmt: skip
