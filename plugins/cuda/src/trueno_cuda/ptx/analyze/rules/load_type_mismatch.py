"""A load into a register of another kind."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.effects import element
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule
from trueno_cuda.ptx.emulate.effects import registers
from trueno_cuda.ptx.syntax.types import TYPES

STORED = {"f32", "f64"} | {f"{k}{b}" for k in "us" for b in (8, 16, 32, 64)}


def check(entry: Entry) -> Iterator[Found]:
    for at, ins in enumerate(entry.code):
        if ins.opcode not in ("ld", "ldu") or ins.unread or element(ins) not in STORED:
            continue
        kind = TYPES[element(ins)]
        for register in registers(ins.operands[0]):
            have = register.type
            if have.kind not in "usf" or have.bits > 64:
                continue
            if (kind.kind == "f") != (have.kind == "f"):
                yield at, f".{kind.name} is loaded into {register.name}, which is .{have.name}"
            elif kind.bits > have.bits or (kind.kind == "f" and kind.bits != have.bits):
                yield at, f".{kind.name} has {kind.bits} bits, and {register.name} {have.bits}"


RULE = Rule(
    "load-type-mismatch", "high", "certain",
    "A load's type is a number of another kind, or is wider, than the register that it fills.",
    "The bits of a float are read as a whole number, or the reverse; ptxas refuses most of these.",
    "Load with the register's type, and convert with cvt.",
    bad="ld.param.u64 %rd1, [x]; ld.global.u32 %f1, [%rd1]; add.f32 %f1, %f1, %f1; st.global.f32 [%rd1], %f1; ret;",
    good="ld.param.u64 %rd1, [x]; ld.global.f32 %f1, [%rd1]; add.f32 %f1, %f1, %f1; st.global.f32 [%rd1], %f1; ret;",
    check=check,
)  # fmt: skip
