"""Names and operands of PTX: scopes, registers by range, addresses, vectors, pairs.

Names are resolved where they are read: a register or variable belongs to the braces that declare it.
Operands repeat, so each scope keeps those that were read: `quick` finds one by its text, without tokens.
"""

import re
from itertools import count as countup
from itertools import repeat

from trueno_cuda.ptx.syntax.errors import PtxError
from trueno_cuda.ptx.syntax.tokens import Cursor, number
from trueno_cuda.ptx.syntax.tree import (
    Address,
    Function,
    Immediate,
    Not,
    Operand,
    Pair,
    Program,
    Register,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
)
from trueno_cuda.ptx.syntax.types import Type

SPECIAL = {"tid", "ntid", "ctaid", "nctaid", "laneid", "warpid", "nwarpid", "smid", "nsmid", "gridid", "clock",
           "clock64", "clock_hi", "globaltimer", "globaltimer_lo", "globaltimer_hi", "lanemask_eq", "lanemask_le",
           "lanemask_lt", "lanemask_ge", "lanemask_gt", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid",
           "cluster_ctarank", "cluster_nctarank", "is_explicit_cluster", "dynamic_smem_size", "total_smem_size",
           "aggr_smem_size", "reserved_smem_offset_begin", "reserved_smem_offset_end", "reserved_smem_offset_cap",
           "reserved_smem_offset_0", "reserved_smem_offset_1"}  # fmt: skip
AXES = {"tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid"}
MARKERS = ("WARP_SZ",)
PROBLEMS = 100
"""That are kept of one text."""
LONGEST = 10  # digits of a register's number
LONG = 19  # digits of a number that may not fit into 64 bits with a sign
SPARSE = 16
"""Characters of a text for each register that is made where it is declared: compilers write about 25."""
DIGITS = "0123456789"
BLANKS = " \t\r\n"
GAP = r"[ \t\r\n]*"
NAME = re.compile(r"[%A-Za-z_$][\w$.]*", re.ASCII)
NUMBER = re.compile(r"-?(?:0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|0[xX][0-9a-fA-F]+U?|\d+U?)", re.ASCII)
OFFSET = r"(?:0|[1-9]\d{0,18})"
MEMORY = re.compile(rf"\[{GAP}([%A-Za-z_$][\w$.]*){GAP}(?:\+{GAP}(-?{OFFSET}){GAP}|(-{OFFSET}){GAP})?\]", re.ASCII)
PIECES = re.compile(r"(\{[^\[\]{}]*\}|\[[^\[\]{}]*\]|[^,\[\]{} \t\r\n]++)([ \t\r\n]*+(?:,[ \t\r\n]*+|\Z))")
"""An operand, and the comma behind it with the blanks around that; joined, they are the whole list."""


class Scope:
    """What a pair of braces declares."""

    def __init__(self, outer: "Scope | None", reader: "Operands") -> None:
        self.outer = outer
        self.registers: dict[str, Register] = {}
        self.ranges: dict[str, tuple[int, Type]] = {}  # prefix → count, type of `%r<10>`
        self.variables: dict[str, Variable] = {}
        self.labels: dict[str, str] = {}  # name → unique name
        self.known = Known(self, reader)  # until a declaration changes what the texts mean


class Known(dict[str, Operand]):
    """A scope's operands by their text; one that is not yet known is read, if its text alone tells what it is.

    fresh: whether it has nothing but registers of this scope, whose texts mean the same whatever is declared next.
    """

    def __init__(self, scope: Scope, reader: "Operands") -> None:
        super().__init__()
        self.fresh = True
        self.registers, self.ranges, self.reader = scope.registers, scope.ranges, reader
        self.outer = scope.outer.known if scope.outer is not None and scope.outer.outer is not None else None
        self.listed = reader.function.registers if reader.function is not None else []

    def forget(self) -> None:
        """A declaration follows: what the texts mean may change."""
        if not self.fresh:
            self.clear()
            self.fresh = True

    def __missing__(self, text: str) -> Operand:
        self.fresh = False
        operand = self.reader.placed(text) if text[:1] == "[" else self.register(text) or self.reader.quick(text)
        if operand is None:
            raise KeyError(text)
        self[text] = operand
        return operand

    def register(self, text: str) -> Operand | None:
        """One of a range that this scope declares, or what the scope around it means by this text."""
        stem = text.rstrip(DIGITS)
        declared = self.ranges.get(stem)
        if declared is not None and 0 < len(text) - len(stem) < LONGEST and int(text[len(stem) :]) < declared[0]:
            operand = self.registers.get(text)
            if operand is None:
                listed = self.listed
                operand = self.registers[text] = Register(text, declared[1], len(listed))
                listed.append(operand)
            return operand
        if self.outer is not None and not self.ranges and text[:1] == "%" and text not in self.registers and (
            text.isascii() and text[1:].isalnum()
        ):  # fmt: skip
            return self.outer[text]  # braces around a call declare a register or none
        return None


class Operands:
    """A cursor over the text and the scope that it stands in.

    tolerant: names that are not declared are kept as symbols, and what cannot be read is a problem of the program.
    """

    def __init__(self, text: str, tolerant: bool = False) -> None:
        self.at = Cursor(text)
        self.tolerant = tolerant
        self.program = Program(lines=self.at.lines)
        self.function: Function | None = None
        self.scope = Scope(None, self)
        self.literals: dict[str, Immediate] = {}  # by their texts, which mean the same everywhere
        self.called = ""  # the function that the last call named
        self.accesses = False  # the operands are of an instruction that takes `array[3]` for the memory there
        self.running = False  # the cursor stands before a run of instructions: no place for a problem
        self.spare = len(text) // SPARSE  # registers that may still be made before they are read

    # ---- names ----------------------------------------------------------------------------------

    def find_variable(self, name: str) -> Variable | None:
        scope: Scope | None = self.scope
        while scope is not None:
            if name in scope.variables:
                return scope.variables[name]
            scope = scope.outer
        return None

    def new_register(self, name: str, kind: Type) -> Register:
        assert self.function is not None
        register = Register(name, kind, len(self.function.registers))
        self.function.registers.append(register)
        return register

    def new_range(self, stem: str, count: int, kind: Type) -> None:
        """`.reg .b32 %r<9>`.  Most texts use all that they declare, so they are made at once, unless they are many."""
        assert self.function is not None
        scope, listed = self.scope, self.function.registers
        scope.ranges[stem] = count, kind
        if count > self.spare:
            return
        self.spare -= count
        names = list(map(stem.__add__, map(str, range(count))))
        if not scope.registers.keys().isdisjoint(names):
            names = [name for name in names if name not in scope.registers]
        made = dict(zip(names, map(Register, names, repeat(kind), countup(len(listed))), strict=False))
        listed += made.values()
        scope.registers.update(made)
        scope.known.update(made)

    def find_register(self, name: str) -> Register | None:
        prefix = name.rstrip(DIGITS)
        digits = name[len(prefix) :]
        scope: Scope | None = self.scope
        while scope is not None:
            if name in scope.registers:
                return scope.registers[name]
            for cut in range(max(0, len(digits) - LONGEST), len(digits) if scope.ranges else 0):
                head = prefix + digits[:cut]  # `%r1<5>` declares %r10 to %r14
                if head in scope.ranges and int(digits[cut:]) < scope.ranges[head][0]:
                    scope.registers[name] = self.new_register(name, scope.ranges[head][1])
                    return scope.registers[name]
            scope = scope.outer
        return None

    def find_label(self, name: str) -> str | None:
        scope: Scope | None = self.scope
        while scope is not None:
            if name in scope.labels:
                return scope.labels[name]
            scope = scope.outer
        return None

    # ---- operands -------------------------------------------------------------------------------

    def call_operands(self) -> tuple[list[Operand], list[Operand]]:
        """`(results), function, (arguments)`; results and arguments may be missing."""
        at = self.at
        results: list[Operand] = []
        arguments: list[Operand] = []
        if at.take("("):
            results = self.list_to(")")
            at.expect(",")
        self.called = at.word()
        if at.take(","):
            at.expect("(")
            arguments = self.list_to(")")
            if at.take(","):
                at.word()  # the prototype of what a register names; `inline` refuses such a call
        return results, arguments

    def list_to(self, mark: str) -> list[Operand]:
        """Operands with commas between them, up to a closing mark."""
        operands: list[Operand] = []
        while not self.at.take(mark):
            if operands:
                self.at.expect(",")
            operands.append(self.operand())
        return operands

    def operand(self) -> Operand:
        one = self.simple()
        if self.at.take("|"):
            return Pair(one, self.simple())
        return one

    def simple(self) -> Operand:
        at = self.at
        if at.take("!"):
            with at.nested():
                return Not(self.simple())
        if at.take("{"):
            with at.nested():
                return Vector(tuple(self.list_to("}")))
        if at.take("["):
            with at.nested():
                return self.address()
        if at.take("("):
            with at.nested():
                inner = self.operand()
            at.expect(")")
            return inner
        if at.here.kind == "number" or at.here.text in ("-", "+"):
            return Immediate(at.literal())
        name = at.word()
        operand = self.named(name)
        if operand is None:
            raise at.error(f"{name!r} is not declared")
        if isinstance(operand, Symbol) and operand.variable is not None and at.take("["):
            return self.element(operand.variable)
        if isinstance(operand, Symbol) and operand.variable is not None and at.here.text in ("+", "-"):
            at.take("+")
            return Symbol(name, operand.variable, signed(at.integer()))
        return operand

    def element(self, variable: Variable) -> Symbol | Address:
        """`array[3]` behind its first bracket: where `mov` names an element, and what `ld` and its like access."""
        offset = self.at.integer(0) * variable.element
        self.at.expect("]")
        return Address(variable, signed(offset)) if self.accesses else Symbol(variable.name, variable, signed(offset))

    def named(self, name: str) -> Operand | None:
        """What a name stands for; None where it is not declared."""
        if name == "_":
            return Sink()
        if name in MARKERS:
            return Immediate(32)
        register = self.find_register(name)
        if register is not None:
            return register
        head, _, axis = name[1:].partition(".")
        if name[0] == "%" and head in SPECIAL and (axis in ("x", "y", "z", "w") if head in AXES else "." not in name):
            return Immediate(0) if axis == "w" else Special(name[1:])
        variable = self.find_variable(name)
        if variable is not None:
            return Symbol(name, variable)
        label = self.find_label(name)
        if label is not None:
            return Symbol(label)
        if self.find_label(f"targets {name}") is not None or name in self.program.functions:
            return Symbol(name)
        if self.tolerant and not self.running:
            if name[0] == "%" and "." not in name:
                self.problem(PtxError(f"{name!r} is not declared", self.at.lines.line(self.at.at)))
            return Special(name[1:]) if name[0] == "%" else Symbol(name)
        return None

    def problem(self, error: PtxError) -> None:
        """Note what a tolerant reader could not read; without the frames that raised it, which hold the reader."""
        if len(self.program.problems) < PROBLEMS:
            error.__context__ = None
            self.program.problems.append(error.with_traceback(None))

    def refuse(self, error: PtxError) -> None:
        """Raise an error, or note it where the text is only read."""
        if not self.tolerant:
            raise error
        self.problem(error)

    def quick(self, text: str) -> Operand | None:
        """An operand by its text alone; None where only the tokens tell what it is, or what is wrong with it."""
        known = self.scope.known
        try:
            if text in self.literals:
                return self.literals[text]
            if text.isdecimal() and text.isascii() and (text[0] != "0" or text == "0") and len(text) < LONG:
                literal = self.literals[text] = Immediate(int(text))
                return literal
            if text[:1] == "{" and text[-1] == "}" and text.count("{") == 1:
                pieces = text[1:-1]
                return Vector(tuple(map(known.__getitem__, pieces.split(", " if ", " in pieces else ","))))
            if text.strip(BLANKS) != text:
                return known[text.strip(BLANKS)]
            if NAME.fullmatch(text):
                return self.named(text)
            if NUMBER.fullmatch(text):
                value = -number(text[1:]) if text[0] == "-" else number(text)
                literal = self.literals[text] = Immediate(value)
                return literal
            return self.predicated(text)
        except (LookupError, ValueError):
            return None

    def placed(self, text: str) -> Operand | None:
        """`[%rd1+8]` by its text."""
        base, plus, digits = text[1:-1].partition("+")
        register = self.scope.known.get(base) if text[-1] == "]" else None
        if type(register) is Register:  # most are one that was computed just before, plus a small number
            if not plus:
                return Address(register)
            if digits.isdecimal() and digits.isascii() and (digits[0] != "0" or digits == "0") and len(digits) < LONG:
                return Address(register, int(digits))
        match = MEMORY.fullmatch(text)
        if match is None:
            return None
        name, plus, minus = match.groups()
        place = self.scope.known.get(name)
        if not isinstance(place, Register):
            place = self.find_register(name) or self.find_variable(name)
        return Address(place, signed(int(plus or minus or 0))) if place else None

    def predicated(self, text: str) -> Operand | None:
        """`%r1|%p1` and `!%p1` by their texts."""
        names = [name.strip(BLANKS) for name in (text[1:] if text[0] == "!" else text).split("|")]
        if len(names) != 1 + (text[0] != "!") or not all(map(NAME.fullmatch, names)):
            return None
        operands = [self.scope.known[name] for name in names]
        return Not(operands[0]) if text[0] == "!" else Pair(*operands)

    def address(self) -> Address:
        at = self.at
        base: Register | Variable | None = None
        offset = 0
        if at.here.kind == "word":
            name = at.word()
            base = self.find_register(name) or self.find_variable(name)
            if base is None:
                error = at.error(f"{name!r} is not declared")
                if not self.tolerant:
                    raise error
                self.problem(error)
            while at.here.text in ("+", "-"):
                at.take("+")
                offset += at.integer()
        else:
            offset = at.integer()
        rest: list[Operand] = []
        while at.take(","):
            rest.append(self.operand())
        at.expect("]")
        return Address(base, signed(offset), tuple(rest))


def signed(value: int) -> int:
    """A distance between addresses, which are counted modulo 2⁶⁴, as the int64 that the emulator keeps."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
