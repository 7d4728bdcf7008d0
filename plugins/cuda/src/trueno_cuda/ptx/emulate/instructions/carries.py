"""Arithmetic on long integers: add.cc, addc, sub.cc, subc, mad.cc, madc.  The carry is a register of its own."""

import numpy as np

from trueno_cuda.ptx.emulate.compile import Compiler, Fetch, Step
from trueno_cuda.ptx.emulate.group import Group
from trueno_cuda.ptx.emulate.instructions.arithmetic import product
from trueno_cuda.ptx.emulate.machine import Machine
from trueno_cuda.ptx.emulate.opcodes import opcode
from trueno_cuda.ptx.syntax.tree import Instruction
from trueno_cuda.ptx.syntax.types import TYPES, Array, Type


@opcode("addc subc", "3 cc? u32|s32|u64|s64")
@opcode("add sub", "3 cc u32|s32|u64|s64")
def sums(c: Compiler, ins: Instruction) -> Step:
    kind = TYPES[f"u{c.type(ins).bits}"]
    a, b = c.sources(ins, kind)
    return carried(c, ins, kind, a, b)


@opcode("madc", "4 lo|hi cc? u32|s32|u64|s64")
@opcode("mad", "4 lo|hi cc u32|s32|u64|s64")
def products(c: Compiler, ins: Instruction) -> Step:
    """The low or the high half of a product, and what is added to it."""
    kind = c.type(ins)
    times, _ = product(ins, kind)
    a, b = (c.fetch(o, kind) for o in ins.operands[1:3])
    bits = TYPES[f"u{kind.bits}"]

    def upper(m: Machine, g: Group) -> Array:
        return times(a(m, g), b(m, g)).view(bits.dtype)

    return carried(c, ins, bits, upper, c.fetch(ins.operands[3], bits))


def carried(c: Compiler, ins: Instruction, kind: Type, a: Fetch, b: Fetch) -> Step:
    """a + b or a - b with the carry that the opcode takes, and the one that `.cc` gives."""
    store = c.store(ins.operands[0], kind)
    takes, gives, subtract, at = ins.opcode.endswith("c"), "cc" in ins.mods, ins.opcode.startswith("sub"), c.carry

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        x, y = a(m, g), b(m, g)
        old = g.registers[at]
        assert old is not None
        more = old.astype(x.dtype) if takes else x.dtype.type(0)
        if subtract:
            r = x - y - more
            out = (x < y) | ((x == y) & (more != 0))
        else:
            r = x + y + more
            out = (r < x) | ((r == x) & (more != 0))
        if gives:
            g.registers[at] = out if sel is None else np.where(sel, out, old)
        store(g, r, sel)

    return run
