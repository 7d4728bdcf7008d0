"""Which variable an address was made from, read off the instructions.

A launch gives each pointer its array, so the parameter that an address comes from says which array the kernel meant,
also where the address lies beyond it or in another one.  Only what adds to a pointer carries it on; where ways with
different answers meet, or a pointer comes out of memory, nothing is known.
"""

from collections.abc import Iterator, Sequence

from trueno_cuda.ptx.emulate.effects import written
from trueno_cuda.ptx.emulate.syntax import Address, Instruction, Operand, Register, Symbol, Variable

CARRIED = {"mov": (1,), "cvta": (1,), "cvt": (1,), "add": (1, 2), "sub": (1, 2), "mad": (3,), "selp": (1, 2),
           "and": (1, 2), "or": (1, 2)}  # fmt: skip
"""Operands from which a pointer goes on into an instruction's result."""
MOVES = ("mov", "cvta", "cvt", "selp")
"""What only passes values on: a source that is no pointer makes the result none."""

Origins = frozenset[Variable | None]
"""Variables that an address may come from; None among them: from something else too."""
NOTHING: Origins = frozenset((None,))


class Provenance:
    """The origins of every register of one function."""

    def __init__(self, code: Sequence[Instruction]) -> None:
        self.known: dict[int, Origins] = {}
        todo = [ins for ins in code if ins.opcode in CARRIED or ins.opcode == "ld"]
        changed = True
        for ins in code:
            if ins.opcode not in CARRIED and ins.opcode != "ld":
                self.known |= {r.index: NOTHING for r in written(ins)}
        while changed:
            changed = False
            for ins in todo:
                made = self._made(ins)
                for r in written(ins):
                    before = self.known.get(r.index, frozenset())
                    if not made <= before:
                        self.known[r.index] = before | made
                        changed = True

    def _made(self, ins: Instruction) -> Origins:
        """What an instruction's result comes from; empty while that is not known yet."""
        if ins.opcode == "ld":
            place = ins.operands[1]
            if "param" in ins.mods and isinstance(place, Address) and isinstance(place.base, Variable):
                return frozenset((place.base,)) if not (place.offset or place.base.array) else NOTHING
            return NOTHING
        if ins.opcode not in CARRIED:
            return NOTHING
        found = [self._of(ins.operands[at]) for at in CARRIED[ins.opcode] if at < len(ins.operands)]
        together: Origins = frozenset().union(*found)
        return together if ins.opcode in MOVES or together <= NOTHING else together - NOTHING

    def _of(self, operand: Operand) -> Origins:
        if isinstance(operand, Register):
            return self.known.get(operand.index, frozenset())
        if isinstance(operand, Symbol) and operand.variable is not None:
            return frozenset((operand.variable,))
        return NOTHING

    def of(self, ins: Instruction) -> Iterator[Variable | None]:
        """What each address among the operands comes from; None where that is not one variable."""
        for operand in ins.operands:
            if not isinstance(operand, Address):
                continue
            if isinstance(operand.base, Variable):
                yield operand.base
            elif operand.base is not None:
                origins = self._of(operand.base)
                yield next(iter(origins)) if len(origins) == 1 else None
