"""A PTX text as a tree: what the parser gives to the emulator and to the analyzer."""

from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from trueno_cuda.ptx.syntax.errors import PtxError
from trueno_cuda.ptx.syntax.tokens import Lines
from trueno_cuda.ptx.syntax.types import Type


@dataclass(eq=False, slots=True)
class Register:
    """A virtual register.  index: its place in a group's register list."""

    name: str
    type: Type
    index: int


@dataclass(eq=False)
class Variable:
    """Declared memory.  space: global, const, shared, local or param.  offset: set when the memory is laid out.

    size: bytes, 0 where the text leaves it open (dynamic shared memory).  init: the bytes' initial numbers, by
    element, each a number or another variable's address.
    """

    name: str
    space: str
    type: Type
    size: int
    align: int
    init: list["int | float | Symbol"] = field(default_factory=list)
    pointer: bool = False  # a parameter declared `.ptr`
    offset: int = -1
    array: bool = False
    extern: bool = False
    element: int = 1  # bytes from `array[0]` to `array[1]`


@dataclass(unsafe_hash=True)
class Immediate:
    """A literal; a float's bits are exact because PTX writes them in hexadecimal."""

    value: int | float


@dataclass(frozen=True)
class Special:
    """A special register: `%tid.x` is Special("tid.x")."""

    name: str


@dataclass(frozen=True)
class Symbol:
    """The address of a variable, plus an offset; or a label or function, while `variable` is None."""

    name: str
    variable: Variable | None = None
    offset: int = 0


@dataclass(unsafe_hash=True)
class Address:
    """`[base + offset]`.  base: a register, a variable, or None for a literal.  rest: what a tensor copy adds."""

    base: Register | Variable | None
    offset: int = 0
    rest: tuple["Operand", ...] = ()


@dataclass(unsafe_hash=True)
class Vector:
    """`{a, b, …}`."""

    items: tuple["Operand", ...]


@dataclass(frozen=True)
class Pair:
    """`d|p`: a result and a predicate beside it."""

    first: "Operand"
    second: "Operand"


@dataclass(frozen=True)
class Not:
    """`!p`."""

    operand: "Operand"


@dataclass(frozen=True)
class Sink:
    """`_`: a result that is not used."""


Operand = Register | Immediate | Special | Symbol | Address | Vector | Pair | Not | Sink


class Instruction:
    """`@guard opcode.mods operands;`.

    line, text: as it stands in the source, for messages.  arguments: of a call, results and arguments.  targets: of
    brx.idx.  written: file and line that a `.loc` before it gives, of inlined code those of the call.  start: its
    offset in the text.  unread: kept by a tolerant reader: the operands are the registers that its text names.
    """

    arguments: tuple[list[Operand], list[Operand]] | None = None
    targets: tuple[str, ...] = ()
    unread = False

    def __init__(
        self,
        opcode: str,
        mods: tuple[str, ...],
        operands: list[Operand],
        line: int,
        text: str,
        guard: Register | None = None,
        negated: bool = False,
        arguments: tuple[list[Operand], list[Operand]] | None = None,
        targets: tuple[str, ...] = (),
        written: tuple[int, int] | None = None,
        start: int = -1,
        unread: bool = False,
    ) -> None:
        self.opcode, self.mods, self.operands = opcode, mods, operands
        self.line, self.text = line, text
        self.guard, self.negated = guard, negated
        self.arguments, self.targets = arguments, targets
        self.written, self.start, self.unread = written, start, unread

    @property
    def name(self) -> str:
        return ".".join((self.opcode, *self.mods))

    def but(self, **changes: Any) -> "Instruction":
        """The same with some fields changed."""
        other = copy(self)
        for name, value in changes.items():
            setattr(other, name, value)
        return other

    def __repr__(self) -> str:
        return f"<{self.text}, line {self.line}>"


class Plain(Instruction):
    """An instruction without comments and strings in it: most of a text.  What tells its place is found when needed.

    begin: an offset in the text, before the blanks in front of it.
    """

    guard = None
    negated = False

    def __init__(
        self,
        opcode: str,
        mods: tuple[str, ...],
        operands: list[Operand],
        lines: Lines,
        begin: int,
        written: tuple[int, int] | None,
    ) -> None:
        self.opcode = opcode
        self.mods = mods
        self.operands = operands
        self.lines = lines
        self.begin = begin
        self.written = written

    @cached_property
    def start(self) -> int:  # type: ignore[override]
        text, start = self.lines.text, self.begin
        while text[start] in " \t\r\n":
            start += 1
        return start

    @cached_property
    def line(self) -> int:  # type: ignore[override]
        return self.lines.line(self.start)

    @cached_property
    def text(self) -> str:  # type: ignore[override]
        text = self.lines.text
        return " ".join(text[self.start : text.index(";", self.start)].split())


class Guarded(Plain):
    """One with a guard."""

    def __init__(
        self,
        opcode: str,
        mods: tuple[str, ...],
        operands: list[Operand],
        lines: Lines,
        begin: int,
        guard: Register | None,
        negated: bool,
        written: tuple[int, int] | None,
    ) -> None:
        super().__init__(opcode, mods, operands, lines, begin, written)
        self.guard = guard
        self.negated = negated


@dataclass(eq=False)
class Label:
    """A place to branch to; unique within its function."""

    name: str
    line: int
    opcode: ClassVar[str] = ""  # which no instruction has


@dataclass(eq=False)
class Function:
    """An entry or a device function: its registers, variables and statements in order."""

    name: str
    entry: bool
    params: list[Variable] = field(default_factory=list)
    results: list[Variable] = field(default_factory=list)
    registers: list[Register] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    body: list[Instruction | Label] = field(default_factory=list)
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    line: int = 0
    defined: bool = False


@dataclass(eq=False)
class Program:
    """A whole text.  files: by the number that `.file` gives them.  problems: what a tolerant reader did not read."""

    version: tuple[int, int] = (0, 0)
    target: tuple[str, ...] = ()
    functions: dict[str, Function] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    files: dict[int, str] = field(default_factory=dict)
    address_size: int = 64
    lines: Lines = field(default_factory=lambda: Lines(""))
    problems: list[PtxError] = field(default_factory=list)
