"""Instructions to steps: closures over a group's register arrays, made once for a kernel.

A step is `step(machine, group, lanes)`: `lanes` is None where all lanes of the group take part, else a mask.
A family (`opcodes` says which opcodes and forms it has) gets the compiler and the instruction; what it
returns runs unguarded, and the guard, the watch on registers that may be uninitialised, and the result's place are
added here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from trueno_cuda.ptx.emulate.effects import accumulates, read, written
from trueno_cuda.ptx.emulate.errors import UnknownInstruction
from trueno_cuda.ptx.emulate.findings import MISSING_WAIT
from trueno_cuda.ptx.emulate.group import Group
from trueno_cuda.ptx.emulate.layout import Layout
from trueno_cuda.ptx.emulate.machine import Machine
from trueno_cuda.ptx.emulate.opcodes import form_of
from trueno_cuda.ptx.emulate.special import special
from trueno_cuda.ptx.syntax.errors import Refusal, no_other_errors
from trueno_cuda.ptx.syntax.tree import (
    Address,
    Immediate,
    Instruction,
    Not,
    Operand,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)
from trueno_cuda.ptx.syntax.types import PRED, TYPES, Array, Type, constant

Step = Callable[[Machine, Group, Array | None], None]
Fetch = Callable[[Machine, Group], Array]
Store = Callable[[Group, Array, Array | None], None]
Family = Callable[["Compiler", Instruction], Step]

TRUE = np.array([True])
FALSE = np.array([False])


@contextmanager
def refusals(ins: Instruction) -> Iterator[None]:
    """Name the instruction that is refused."""
    with no_other_errors(ins.line, ins.text):
        try:
            yield
        except Refusal as error:
            raise UnknownInstruction(f"operands or modifiers that the emulator does not know ({error})", ins.line,
                                     ins.text) from error  # fmt: skip


class Compiler:
    """Compiles the instructions of one entry."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        flow, registers = layout.flow, layout.registers
        self.params = {id(p) for p in layout.params}
        doubtful = flow.doubtful()
        self.flags: dict[int, int] = {}  # doubtful register → the place of its "was written" flag
        for r in registers:
            if doubtful >> r.index & 1:
                self.flags[r.index] = len(registers) + len(self.flags)
        self.carry = len(registers) + len(self.flags)
        self.size = self.carry + 1
        self.registers = registers
        self.used = {r.index for ins in flow.instructions for r in read(ins)}

    def initial(self) -> list[Array | None]:
        """The registers of lanes that have run nothing: doubtful ones hold a pattern that no kernel expects."""
        start: list[Array | None] = [None] * self.size
        for r in self.registers:
            if r.index in self.flags:
                bits = 1 if r.type.bits == 1 else r.type.bits
                start[r.index] = FALSE if bits == 1 else np.array([0xBADC0FFEE0DDF00D & ((1 << bits) - 1)],
                                                                   f"u{bits // 8}").view(r.type.dtype)  # fmt: skip
                start[self.flags[r.index]] = FALSE
        start[self.carry] = FALSE
        return start

    def live(self, bits: int) -> list[int]:
        """A block's live registers, with their flags."""
        indices = [r.index for r in self.registers if bits >> r.index & 1]
        indices += [self.flags[i] for i in indices if i in self.flags]
        indices.append(self.carry)
        return indices

    # ---- whole instructions ---------------------------------------------------------------------

    def step(self, ins: Instruction) -> Step:
        """The step of one instruction, guard and all."""
        family: Family | None = form_of(ins).family
        assert family is not None
        with refusals(ins):
            inner = family(self, ins)
        inner = self._watched(ins, self._landed(ins, inner))
        return inner if ins.guard is None else self._guarded(ins, inner)

    def _guarded(self, ins: Instruction, inner: Step) -> Step:
        assert ins.guard is not None
        at, negated = ins.guard.index, ins.negated
        flag, line = self.flags.get(at), ins

        def run(m: Machine, g: Group, sel: Array | None) -> None:
            p = g.registers[at]
            assert p is not None
            if flag is not None:
                m.need_written(line, g, sel, flag, at)
            if negated:
                p = ~p
            if p.size == 1:
                if p[0]:
                    inner(m, g, sel)
                return
            if sel is not None:
                p = p & sel
            count = np.count_nonzero(p)
            if count == g.n:
                inner(m, g, None)
            elif count:
                inner(m, g, p)

        return run

    def _landed(self, ins: Instruction, inner: Step) -> Step:
        """Report the use of a wgmma's accumulator before wgmma.wait_group."""
        hot = {r.index for r in (*read(ins), *written(ins))} & {r.index for r in self.layout.accumulators}
        if not hot or ins.opcode == "wgmma":
            return inner

        def run(m: Machine, g: Group, sel: Array | None) -> None:
            if m.flying_registers and m.products_of(g, hot):
                m.find(MISSING_WAIT, ins, "uses an accumulator of a wgmma that was not waited for", g.lanes[0], g.n)
            inner(m, g, sel)

        return run

    def _watched(self, ins: Instruction, inner: Step) -> Step:
        """Check reads of doubtful registers, and note their writes."""
        if not self.flags:
            return inner
        sources = read(ins)
        if accumulates(ins):  # its accumulator is read only where scale-d says so
            skip = {id(r) for r in written(ins)}
            sources = [r for r in sources if id(r) not in skip]
        reads = [(self.flags[r.index], r.index) for r in dict.fromkeys(sources)
                 if r.index in self.flags and r is not ins.guard]  # fmt: skip
        writes = [self.flags[r.index] for r in dict.fromkeys(written(ins)) if r.index in self.flags]
        if not reads and not writes:
            return inner

        def run(m: Machine, g: Group, sel: Array | None) -> None:
            for flag, at in reads:
                m.need_written(ins, g, sel, flag, at)
            inner(m, g, sel)
            for flag in writes:
                old = g.registers[flag]
                g.registers[flag] = TRUE if sel is None or old is None else sel | old

        return run

    # ---- operands -------------------------------------------------------------------------------

    def type(self, ins: Instruction, last: int = -1) -> Type:
        """The type among an instruction's modifiers, the last one unless told."""
        names = [m for m in ins.mods if m in TYPES]
        if not names:
            raise UnknownInstruction("no type among the modifiers", ins.line, ins.text)
        return TYPES[names[last]]

    def fetch(self, operand: Operand, kind: Type, wide: bool = False) -> Fetch:
        """How to read an operand as `kind`; where `wide` (of st and cvt), a wider register gives its low bits."""
        if isinstance(operand, Register):
            return self._fetch_register(operand, kind, wide)
        if isinstance(operand, Not):
            if kind is not PRED or isinstance(operand.operand, Not):
                raise Refusal("! stands before a predicate alone")
            inner = self.fetch(operand.operand, PRED)
            return lambda m, g: ~inner(m, g)
        if isinstance(operand, Immediate):
            value = constant(operand.value, kind)
            return lambda m, g: value
        if isinstance(operand, Special):
            name, dtype = operand.name, kind.dtype
            return lambda m, g: special(m, g, name).astype(dtype)
        if isinstance(operand, Symbol) and operand.variable is not None:
            where, offset, dtype = operand.variable, operand.offset, kind.dtype
            return lambda m, g: (np.array([m.address(where)]) + offset).astype(dtype)
        raise Refusal(f"cannot read {operand}")

    def _fetch_register(self, r: Register, kind: Type, wide: bool) -> Fetch:
        at, dtype = r.index, kind.dtype
        if r.type.bits == kind.bits:
            if r.type.dtype == dtype:
                return lambda m, g: g.registers[at]  # type: ignore[return-value]
            return lambda m, g: g.registers[at].view(dtype)  # type: ignore[union-attr]
        if r.type.bits > kind.bits and wide and kind.bits > 1:
            raw, low = np.dtype(f"u{r.type.bytes}"), np.dtype(f"u{kind.bytes}")
            return lambda m, g: g.registers[at].view(raw).astype(low).view(dtype)  # type: ignore[union-attr]
        raise Refusal(f"{r.name} has {r.type.bits} bits, {kind.name} wants {kind.bits}")

    def store(self, operand: Operand, kind: Type, extend: bool = False) -> Store:
        """How to write a value of `kind`; where `extend` (of ld and cvt), to a wider register by sign or with zeros."""
        if isinstance(operand, Sink):
            return lambda g, v, sel: None
        if not isinstance(operand, Register):
            raise Refusal(f"cannot write {operand}")
        at, want = operand.index, operand.type.dtype
        if operand.type.bits < kind.bits or (operand.type.bits > kind.bits and not (extend and kind.bits > 1)):
            raise Refusal(f"{operand.name} has {operand.type.bits} bits, {kind.name} needs {kind.bits}")
        if operand.type.bits > kind.bits:
            wide = np.dtype(f"{'i' if kind.kind == 's' else 'u'}{operand.type.bytes}")
            raw = kind.dtype if kind.dtype.kind in "iu" else np.dtype(f"u{kind.bytes}")

            def extended(g: Group, v: Array, sel: Array | None) -> None:
                v = v.view(raw).astype(wide).view(want)
                g.registers[at] = v if sel is None else np.where(sel, v, g.registers[at])  # type: ignore[arg-type]

            return extended

        def plain(g: Group, v: Array, sel: Array | None) -> None:
            if v.dtype != want:
                v = v.view(want)
            if sel is not None:
                old = g.registers[at]
                v = np.where(sel, v, v.dtype.type(0) if old is None else old)
            g.registers[at] = v

        return plain

    def address(self, operand: Operand) -> Fetch:
        """A memory operand's address in its space, as int64."""
        if not isinstance(operand, Address):
            raise Refusal("an address in brackets is wanted")
        base, offset = operand.base, operand.offset
        if base is None:
            fixed = np.array([offset], np.int64)
            return lambda m, g: fixed
        if isinstance(base, Register):
            at = base.index
            if base.type.bits == 64:
                if offset == 0:
                    return lambda m, g: g.registers[at].view(np.int64)  # type: ignore[union-attr]
                return lambda m, g: g.registers[at].view(np.int64) + offset  # type: ignore[union-attr]
            if base.type.bits != 32:
                raise Refusal(f"{base.name} is not an address register")
            return lambda m, g: g.registers[at].view(np.uint32).astype(np.int64) + offset  # type: ignore[union-attr]
        where = base
        return lambda m, g: np.array([m.address(where)]) + offset

    # ---- values ---------------------------------------------------------------------------------

    def value(
        self, ins: Instruction, kind: Type, function: Callable[..., Array], *sources: Fetch, extend: bool = False
    ) -> Step:
        """`destination = function(sources)`, all lanes at once."""
        store = self.store(ins.operands[0], kind, extend)
        if len(sources) == 1:
            (a,) = sources

            def one(m: Machine, g: Group, sel: Array | None) -> None:
                store(g, function(a(m, g)), sel)

            return one
        if len(sources) == 2:
            a, b = sources

            def two(m: Machine, g: Group, sel: Array | None) -> None:
                store(g, function(a(m, g), b(m, g)), sel)

            return two

        def many(m: Machine, g: Group, sel: Array | None) -> None:
            store(g, function(*[s(m, g) for s in sources]), sel)

        return many

    def sources(self, ins: Instruction, kind: Type, first: int = 1) -> list[Fetch]:
        """All operands from `first` on, read as one type."""
        return [self.fetch(o, kind) for o in ins.operands[first:]]


def literal(operand: Operand) -> int:
    """An operand that must be a whole number."""
    if not isinstance(operand, Immediate) or isinstance(operand.value, float):
        raise Refusal("a whole number is wanted")
    return operand.value


def vector(operand: Operand, count: int) -> tuple[Operand, ...]:
    """The `count` parts of an operand in braces; of one part, the braces may lack."""
    parts = operand.items if isinstance(operand, Vector) else (operand,)
    if len(parts) != count:
        raise Refusal(f"{count} registers are wanted, {len(parts)} given")
    return parts
