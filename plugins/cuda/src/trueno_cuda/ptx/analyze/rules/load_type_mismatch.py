"""A load into a register of another kind."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.effects import element
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule
from trueno_cuda.ptx.emulate.effects import registers
from trueno_cuda.ptx.syntax.tree import Register
from trueno_cuda.ptx.syntax.types import TYPES

STORED = {"f32", "f64"} | {f"{k}{b}" for k in "us" for b in (8, 16, 32, 64)}


HALVES = {"b16", "u16", "s16"}
ARITHMETIC = {"add", "sub", "mul", "fma", "mad", "div", "min", "max", "setp", "neg", "abs"}


def check(entry: Entry) -> Iterator[Found]:
    for at, ins in enumerate(entry.code):
        if ins.opcode not in ("ld", "ldu") or ins.unread:
            continue
        if element(ins) in HALVES and isinstance(ins.operands[0], Register):
            yield from _as_float(entry, at, ins.operands[0])
        if element(ins) not in STORED:
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


def _as_float(entry: Entry, at: int, register: Register) -> Iterator[Found]:
    """Two bytes in a register of four that an instruction on .f32 reads."""
    if register.type.bits != 32 or len(entry.flow.definitions[register.index]) > 1:
        return
    for use in entry.flow.uses[register.index]:
        user = entry.code[use]
        plain = user.mods[-1:] == ("f32",) and [m for m in user.mods if m in TYPES] == ["f32"]
        stored = user.opcode == "st" and register in user.operands[1:]
        if (user.opcode in ARITHMETIC or stored) and plain:
            yield at, f".{element(entry.code[at])} is loaded, and line {user.line} reads it as .f32"
            return


RULE = Rule(
    "load-type-mismatch", "high", "certain",
    "A load's type is a number of another kind, or is wider, than the register that it fills.",
    "The bits of a float are read as a whole number, or the reverse; ptxas refuses most of these.",
    "Load with the register's type, and convert with cvt.",
    bad="ld.param.u64 %rd1, [x]; ld.global.u32 %f1, [%rd1]; add.f32 %f1, %f1, %f1; st.global.f32 [%rd1], %f1; ret;",
    good="ld.param.u64 %rd1, [x]; ld.global.f32 %f1, [%rd1]; add.f32 %f1, %f1, %f1; st.global.f32 [%rd1], %f1; ret;",
    check=check,
)  # fmt: skip
