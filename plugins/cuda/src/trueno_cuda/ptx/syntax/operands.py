"""Names and operands of PTX: scopes, registers by range, addresses, vectors, pairs.

Names are resolved where they are read: a register or variable belongs to the braces that declare it.
Operands repeat, so each scope keeps those that were read: `quick` finds one by its text, without tokens.
"""

import re

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
NAME = re.compile(r"[%A-Za-z_$][\w$.]*", re.ASCII)
NUMBER = re.compile(r"-?(?:0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|0[xX][0-9a-fA-F]+U?|\d+U?)", re.ASCII)
MEMORY = re.compile(r"\[\s*([%A-Za-z_$][\w$.]*)\s*(?:\+?\s*(-?\d+)\s*)?\]", re.ASCII)
PIECES = re.compile(r"((?:\[[^\[\]{}]*\]|\{[^\[\]{}]*\}|[^,\[\]{}])+)(?:,|\Z)")
"""One operand and the comma behind it, where brackets and braces are not within each other."""


class Scope:
    """What a pair of braces declares."""

    def __init__(self, outer: "Scope | None") -> None:
        self.outer = outer
        self.registers: dict[str, Register] = {}
        self.ranges: dict[str, tuple[int, Type]] = {}  # prefix → count, type of `%r<10>`
        self.variables: dict[str, Variable] = {}
        self.labels: dict[str, str] = {}  # name → unique name
        self.known: dict[str, Operand] = {}  # operands by their text, until a declaration changes what they mean


class Operands:
    """A cursor over the text and the scope that it stands in.

    tolerant: names that are not declared are kept as symbols, and what cannot be read is a problem of the program.
    """

    def __init__(self, text: str, tolerant: bool = False) -> None:
        self.at = Cursor(text)
        self.tolerant = tolerant
        self.program = Program(lines=self.at.lines)
        self.scope = Scope(None)
        self.function: Function | None = None
        self.called = ""  # the function that the last call named

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

    def find_register(self, name: str) -> Register | None:
        prefix = name.rstrip("0123456789")
        digits = name[len(prefix) :]
        scope: Scope | None = self.scope
        while scope is not None:
            if name in scope.registers:
                return scope.registers[name]
            for cut in range(max(0, len(digits) - LONGEST), len(digits)):  # `%r1<5>` declares %r10 to %r14
                head = prefix + digits[:cut]
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
        if isinstance(operand, Symbol) and operand.variable is not None and at.here.text in ("+", "-"):
            at.take("+")
            return Symbol(name, operand.variable, signed(at.integer()))
        return operand

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
        if self.tolerant:
            if name[0] == "%" and "." not in name:
                self.problem(PtxError(f"{name!r} is not declared", self.at.lines.line(self.at.at)))
            return Special(name[1:]) if name[0] == "%" else Symbol(name)
        return None

    def problem(self, error: PtxError) -> None:
        """Note what a tolerant reader could not read."""
        if len(self.program.problems) < PROBLEMS:
            self.program.problems.append(error)

    def refuse(self, error: PtxError) -> None:
        """Raise an error, or note it where the text is only read."""
        if not self.tolerant:
            raise error
        self.problem(error)

    def quick(self, text: str) -> Operand | None:
        """An operand by its text alone; None where only the tokens tell what it is, or what is wrong with it."""
        text = text.strip()
        known = self.scope.known
        operand = known.get(text)
        if operand is not None or not text:
            return operand
        if NAME.fullmatch(text):
            operand = self.named(text)
        elif text[0] == "[":
            match = MEMORY.fullmatch(text)
            base = match and (self.find_register(match[1]) or self.find_variable(match[1]))
            operand = Address(base, signed(int(match[2] or 0))) if match and base else None
        elif text[0] == "{" and text[-1] == "}" and text.count("{") == 1:
            items = [self.quick(piece) for piece in text[1:-1].split(",")]
            operand = None if None in items else Vector(tuple(items))  # type: ignore[arg-type]
        elif NUMBER.fullmatch(text):
            try:
                operand = Immediate(-number(text[1:]) if text[0] == "-" else number(text))
            except ValueError:
                return None
        if operand is not None:
            known[text] = operand
        return operand

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
