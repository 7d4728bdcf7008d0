"""The registers that an instruction reads and writes, where lanes wait for each other, and its flops.

PTX puts the destination first, except in the opcodes listed here.
"""

from collections.abc import Iterator

from trueno_cuda.ptx.emulate.syntax import Address, Instruction, Not, Operand, Pair, Register, Vector
from trueno_cuda.ptx.emulate.types import TYPES

NO_RESULT = {"st", "red", "bra", "brx", "ret", "exit", "trap", "brkpt", "cp", "prefetch", "prefetchu", "membar",
             "fence", "setmaxnreg", "nanosleep", "griddepcontrol", "stmatrix", "call", "discard", "applypriority",
             "tensormap", "pmevent", "stackrestore", "multimem"}  # fmt: skip

WARP_SYNC = {"shfl", "vote", "match", "redux", "elect", "mma", "ldmatrix", "stmatrix", "movmatrix"}
"""Instructions whose lanes must be there together."""

SPIN = {"atom", "nanosleep"}


def registers(operand: Operand) -> Iterator[Register]:
    """All registers in an operand."""
    if isinstance(operand, Register):
        yield operand
    elif isinstance(operand, Address):
        if isinstance(operand.base, Register):
            yield operand.base
        for one in operand.rest:
            yield from registers(one)
    elif isinstance(operand, Vector):
        for one in operand.items:
            yield from registers(one)
    elif isinstance(operand, Pair):
        yield from registers(operand.first)
        yield from registers(operand.second)
    elif isinstance(operand, Not):
        yield from registers(operand.operand)


def has_result(ins: Instruction) -> bool:
    """Whether the first operand is what the instruction writes."""
    op, mods = ins.opcode, ins.mods
    if op in ("bar", "barrier"):
        return "red" in mods
    if op == "mbarrier":
        return "test_wait" in mods or "try_wait" in mods or "pending_count" in mods or ((
            "arrive" in mods or "arrive_drop" in mods
        ) and not isinstance(ins.operands[0], Address))  # fmt: skip
    if op == "wgmma":
        return "mma_async" in mods
    if op in NO_RESULT:
        return False
    return bool(ins.operands)


def written(ins: Instruction) -> list[Register]:
    return list(registers(ins.operands[0])) if has_result(ins) else []


def read(ins: Instruction) -> list[Register]:
    """What must hold a value before; a guarded write also keeps the old one, which is not counted here."""
    first = has_result(ins)
    found = [r for one in ins.operands[first:] for r in registers(one)]
    if ins.opcode == "wgmma" and first and "mma_async" in ins.mods:
        found += registers(ins.operands[0])
    if ins.guard is not None:
        found.append(ins.guard)
    return found


def meets(ins: Instruction) -> str:
    """How lanes wait at an instruction: "" (they do not), warp, block, cluster, phase (of an mbarrier), group."""
    op, mods = ins.opcode, ins.mods
    if op in WARP_SYNC and ("sync" in mods or op == "movmatrix"):
        return "warp"
    if op in ("bar", "barrier"):
        if "warp" in mods:
            return "warp"
        return "cluster" if "cluster" in mods else "block"
    if op == "mbarrier" and "try_wait" in mods:
        return "phase"
    if op == "wgmma":
        return "group"
    return ""


def spins(ins: Instruction) -> bool:
    """Whether a loop around this instruction may be waiting for another thread."""
    return (
        ins.opcode in SPIN
        or (ins.opcode == "ld" and bool({"volatile", "acquire", "relaxed"} & set(ins.mods)))
        or (ins.opcode == "mbarrier" and "test_wait" in ins.mods)
    )


def flops(ins: Instruction) -> dict[str, float]:
    """Floating-point operations of one lane: an fma is two."""
    types = [m for m in ins.mods if m in TYPES]
    if ins.opcode in ("mma", "wgmma"):
        shape = next((m for m in ins.mods if m.startswith("m") and "n" in m and "k" in m), None)
        if shape is None:
            return {}
        m, n, k = (int(x) for x in shape[1:].replace("n", " ").replace("k", " ").split())
        return {f"{types[1]} {ins.opcode}": 2 * m * n * k / (32 if ins.opcode == "mma" else 128)}
    if not types or TYPES[types[-1]].kind != "f":
        return {}
    each = {"add": 1, "sub": 1, "mul": 1, "fma": 2, "mad": 2, "div": 1, "rcp": 1, "sqrt": 1, "rsqrt": 1, "ex2": 1,
            "lg2": 1, "sin": 1, "cos": 1, "tanh": 1, "min": 1, "max": 1}.get(ins.opcode)  # fmt: skip
    return {} if each is None else {types[-1]: float(each * (2 if types[-1].endswith("x2") else 1))}
