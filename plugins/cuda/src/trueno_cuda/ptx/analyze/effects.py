"""What an instruction of any producer reads, writes, and waits for; unknown opcodes are read by PTX's conventions.

The emulator's table of opcodes has the facts; here they are completed for what it does not run.
"""

from collections.abc import Iterator

from trueno_cuda.ptx.emulate import instructions  # noqa: F401 - registers the forms
from trueno_cuda.ptx.emulate.effects import registers
from trueno_cuda.ptx.emulate.errors import UnknownInstruction
from trueno_cuda.ptx.emulate.opcodes import Facts, form_of
from trueno_cuda.ptx.syntax.tree import Address, Immediate, Instruction, Not, Operand, Register, Symbol
from trueno_cuda.ptx.syntax.types import TYPES

UNKNOWN = Facts()
WITHOUT_RESULT = Facts(result=False)
NO_RESULT = {
    "st", "red", "bra", "brx", "bar", "barrier", "ret", "exit", "trap", "brkpt", "membar", "fence", "prefetch",
    "prefetchu", "discard", "applypriority", "nanosleep", "pmevent", "setmaxnreg", "griddepcontrol", "stackrestore",
    "sust", "sured", "cp", "multimem", "tensormap", "call", "wgmma",
}  # fmt: skip
"""Opcodes whose first operand is not a result."""
OPCODES = {
    "abs", "activemask", "add", "addc", "alloca", "and", "applypriority", "atom", "bar", "barrier", "bfe", "bfi",
    "bfind", "bmsk", "bra", "brev", "brkpt", "brx", "call", "clmad", "clusterlaunchcontrol", "clz", "cnot", "copysign",
    "cos", "cp", "createpolicy", "cvt", "cvta", "discard", "div", "dp2a", "dp4a", "elect", "ex2", "exit", "fence",
    "fma", "fns", "getctarank", "griddepcontrol", "isspacep", "istypep", "ld", "ldmatrix", "ldu", "lg2", "lop3", "mad",
    "mad24", "madc", "mapa", "match", "max", "mbarrier", "membar", "min", "mma", "mov", "movmatrix", "mul", "mul24",
    "multimem", "nanosleep", "neg", "not", "or", "pmevent", "popc", "prefetch", "prefetchu", "prmt", "rcp", "red",
    "redux", "rem", "ret", "rsqrt", "sad", "selp", "set", "setmaxnreg", "setp", "shf", "shfl", "shl", "shr", "sin",
    "slct", "sqrt", "st", "stackrestore", "stacksave", "stmatrix", "sub", "subc", "suld", "suq", "sured", "sust",
    "szext", "tanh", "tcgen05", "tensormap", "testp", "tex", "tld4", "trap", "txq", "vabsdiff", "vabsdiff2",
    "vabsdiff4", "vadd", "vadd2", "vadd4", "vavrg2", "vavrg4", "vmad", "vmax", "vmax2", "vmax4", "vmin", "vmin2",
    "vmin4", "vote", "vset", "vset2", "vset4", "vshl", "vshr", "vsub", "vsub2", "vsub4", "wgmma", "wmma", "xor",
}  # fmt: skip
"""All of PTX ISA 9.0: what is not among them is kept, and what it does is not known."""
ENDS = {"bra", "brx", "ret", "exit", "trap"}
ABORTS = {"__assertfail", "__assert_fail", "__trap"}
"""Functions of the run-time library that do not return."""


def facts(ins: Instruction) -> Facts:
    try:
        return form_of(ins).facts
    except UnknownInstruction:
        return WITHOUT_RESULT if ins.opcode in NO_RESULT else UNKNOWN


def effects(ins: Instruction) -> tuple[list[Register], list[Register]]:
    """The registers that an instruction reads, with those of addresses and its guard, and those that it writes."""
    reads: list[Register] = []
    writes: list[Register] = []
    if ins.unread:
        writes = [o for o in ins.operands if isinstance(o, Register)]
        reads = list(writes)
    elif ins.opcode == "call":
        results, arguments = ins.arguments or ([], [])
        writes = [r for o in results for r in registers(o)]
        reads = [r for o in [*arguments, *ins.operands] for r in registers(o)]
    else:
        fact = facts(ins)
        first = bool(ins.operands) and fact.result and not isinstance(ins.operands[0], Address)
        if first:
            writes = _all(ins.operands[:1])
        reads = _all(ins.operands if not first or fact.accumulates else ins.operands[1:])
        if ins.opcode == "wgmma" and ins.operands and not isinstance(ins.operands[0], Address):
            writes = list(registers(ins.operands[0]))
    if ins.guard is not None:
        reads.append(ins.guard)
    return reads, writes


def _all(operands: list[Operand]) -> list[Register]:
    """The registers in some operands."""
    result: list[Register] = []
    for operand in operands:
        if isinstance(operand, Register):
            result.append(operand)
        elif not isinstance(operand, Immediate):
            result += registers(operand)
    return result


def leaves(ins: Instruction) -> bool:
    """Whether a thread that executes it ends there: the kernel, or the function."""
    return ins.opcode in ("ret", "exit", "trap") or aborts(ins)


def aborts(ins: Instruction) -> bool:
    if ins.opcode != "call" or not ins.operands:
        return False
    target = ins.operands[0]
    return isinstance(target, Symbol) and target.name in ABORTS


def waits(ins: Instruction) -> str:
    """What an instruction makes threads wait for: block, part (of the block), warp, cluster, phase (of an mbarrier)."""
    mods = ins.mods
    if ins.opcode in ("bar", "barrier"):
        if "warp" in mods:
            return "warp"
        if "cluster" in mods:
            return "cluster"
        if "arrive" in mods:
            return "arrive"
        counted = len(ins.operands) - (2 if "red" in mods else 0) > 1
        return "part" if counted else "block"
    if ins.opcode == "mbarrier" and any(m in ("test_wait", "try_wait") for m in mods):
        return "phase"
    return ""


SPACES = {"global", "shared", "local", "const", "param", "shared::cta", "shared::cluster", "param::entry",
          "param::func"}  # fmt: skip


def space(ins: Instruction) -> str:
    """The space of a memory instruction's first address as its text says: generic, where it says nothing."""
    for mod in ins.mods:
        if mod in SPACES:
            return mod.partition("::")[0]
    return "generic"


def element(ins: Instruction) -> str:
    """The type of an access: the last modifier that is one."""
    return next((m for m in reversed(ins.mods) if m in TYPES or m in ("b128",)), "")


def width(ins: Instruction) -> int:
    """Bytes that a thread moves with a load, a store or an atomic; 0 where that is not known."""
    name = element(ins)
    if not name:
        return 0
    size = 16 if name == "b128" else TYPES[name].bytes
    count = next((int(m[1:]) for m in ins.mods if m in ("v2", "v4", "v8")), 1)
    return size * count


def address(ins: Instruction) -> Address | None:
    """The memory operand of a load, a store or an atomic."""
    return next((o for o in ins.operands if isinstance(o, Address)), None)


def label_of(ins: Instruction) -> Iterator[str]:
    """Names of the labels that a branch may go to."""
    if ins.targets:
        yield from ins.targets
    else:
        yield from [o.name for o in ins.operands if isinstance(o, Symbol)][:1]


def plain(operand: Operand) -> Operand:
    """A predicate without its negation."""
    return operand.operand if isinstance(operand, Not) else operand
