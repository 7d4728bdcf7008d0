"""The registers that an instruction reads and writes, where lanes wait for each other, and its flops.

The facts stand in the table of opcodes, beside the form that an instruction has; here an instruction is asked for them.
"""

from collections.abc import Iterator

from trueno_cuda.ptx.emulate.opcodes import form_of
from trueno_cuda.ptx.syntax.tree import Address, Instruction, Not, Operand, Pair, Register, Vector
from trueno_cuda.ptx.syntax.types import TYPES

LANES = {"warp": 32, "group": 128}
"""Lanes that share a matrix product, by how they meet at it."""


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
    return form_of(ins).facts.result and bool(ins.operands) and not isinstance(ins.operands[0], Address)


def accumulates(ins: Instruction) -> bool:
    """Whether the instruction also reads what it writes."""
    return form_of(ins).facts.accumulates


def written(ins: Instruction) -> list[Register]:
    return list(registers(ins.operands[0])) if has_result(ins) else []


def read(ins: Instruction) -> list[Register]:
    """What must hold a value before; a guarded write also keeps the old one, which is not counted here."""
    first = has_result(ins) and not accumulates(ins)
    sources = [r for one in ins.operands[first:] for r in registers(one)]
    if ins.guard is not None:
        sources.append(ins.guard)
    return sources


def ends(ins: Instruction) -> bool:
    """Whether lanes may go on elsewhere than at the next instruction."""
    return form_of(ins).family is None


def meets(ins: Instruction) -> str:
    """How lanes wait at an instruction; see `Facts`."""
    return form_of(ins).facts.meets


def masked(ins: Instruction) -> bool:
    """Whether the last operand says which lanes of the warp meet."""
    return form_of(ins).facts.mask


def spins(ins: Instruction) -> bool:
    """Whether a loop around this instruction may be waiting for another thread."""
    when = form_of(ins).facts.spins
    return when if isinstance(when, bool) else not set(when).isdisjoint(ins.mods)


def flops(ins: Instruction) -> dict[str, float]:
    """Floating-point operations of one lane, by type: an fma is two.  Of matrix products, those of integers too."""
    facts = form_of(ins).facts
    types = [m for m in ins.mods if m in TYPES]
    if not (facts.flops and types):
        return {}
    if facts.meets in LANES:
        shape = next(m for m in ins.mods if m.startswith("m") and "n" in m and "k" in m)
        m, n, k = (int(x) for x in shape[1:].replace("n", " ").replace("k", " ").split())
        return {f"{types[1]} {ins.opcode}": facts.flops * m * n * k / LANES[facts.meets]}
    if TYPES[types[-1]].kind != "f":
        return {}
    return {types[-1]: float(facts.flops * (2 if types[-1].endswith("x2") else 1))}
