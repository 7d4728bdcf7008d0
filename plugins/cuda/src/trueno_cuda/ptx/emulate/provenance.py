"""The variable that an address comes from, found by following the instructions.

A launch gives each pointer its array, so the parameter that an address comes from says which array the kernel meant,
also if the address is beyond it or in another one.  Only additions to a pointer keep its origin; where control paths
disagree, or a pointer comes out of memory, the origin is unknown.
"""

from collections.abc import Iterator, Sequence

from trueno_cuda.ptx.emulate.effects import written
from trueno_cuda.ptx.syntax.tree import Address, Instruction, Operand, Register, Symbol, Variable

CARRIED = {"mov": (1,), "cvta": (1,), "cvt": (1,), "add": (1, 2), "sub": (1,), "mad": (3,), "selp": (1, 2),
           "and": (1, 2), "or": (1, 2)}  # fmt: skip
"""Operands from which a pointer goes on into an instruction's result."""
MOVES = ("mov", "cvta", "cvt", "selp")
"""What only passes values on: a source that is not a pointer makes the result none."""

Origins = frozenset[Variable | None]
"""Variables that an address may come from; None among them: from something else too."""
NOTHING: Origins = frozenset((None,))


class Provenance:
    """The origins of every register of one function."""

    def __init__(self, code: Sequence[Instruction]) -> None:
        self.known: dict[int, Origins] = {}
        # result, whether it is of MOVES, what it names, reads, and what is subtracted
        todo: list[tuple[int, bool, Origins, list[int], int | None]] = []
        for ins in code:
            if ins.opcode not in CARRIED:
                loaded = _loaded(ins)
                for r in written(ins):
                    self.known[r.index] = self.known.get(r.index, loaded) | loaded
                continue
            fixed: Origins = frozenset()
            sources = []
            for at in CARRIED[ins.opcode]:
                if at >= len(ins.operands):
                    continue
                if isinstance(operand := ins.operands[at], Register):
                    sources.append(operand.index)
                else:
                    fixed |= _named(operand)
            last = ins.operands[2] if ins.opcode == "sub" and len(ins.operands) > 2 else None
            less = last.index if isinstance(last, Register) else None
            todo += [(r.index, ins.opcode in MOVES, fixed, sources, less) for r in written(ins)]
        origins, changed = self.known, True
        while changed:
            changed = False
            for result, moves, fixed, sources, less in todo:
                merged = fixed.union(*[origins[r] for r in sources if r in origins])
                if less is not None and not origins.get(less, NOTHING) <= NOTHING:  # a distance is not a pointer
                    merged = NOTHING
                elif not (moves or merged <= NOTHING):
                    merged -= NOTHING
                before = origins.get(result)
                if before is None or not merged <= before:
                    origins[result] = merged if before is None else before | merged
                    changed = True

    def of(self, ins: Instruction, arrays: set[Variable]) -> Iterator[Variable | None]:
        """What each address among the operands comes from; None where that is not one variable.

        arrays: variables that lead to memory.  The others are numbers: a pointer that one is added to stays what it is.
        """
        for operand in ins.operands:
            if not isinstance(operand, Address):
                continue
            if isinstance(operand.base, Variable):
                yield operand.base
            elif operand.base is not None:
                origins = self.known.get(operand.base.index, NOTHING) & {*arrays, None}
                yield next(iter(origins)) if len(origins) == 1 else None


def _loaded(ins: Instruction) -> Origins:
    """What a value comes from that is computed from no pointer: a parameter that was read, or nothing known."""
    if ins.opcode == "ld" and "param" in ins.mods:
        place = ins.operands[1]
        if isinstance(place, Address) and isinstance(place.base, Variable) and not (place.offset or place.base.array):
            return frozenset((place.base,))
    return NOTHING


def _named(operand: Operand) -> Origins:
    return frozenset((operand.variable,)) if isinstance(operand, Symbol) and operand.variable else NOTHING
