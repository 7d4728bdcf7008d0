"""A PTX text as a tree: what the parser gives to the emulator and to the analyzer."""

from dataclasses import dataclass, field

from trueno_cuda.ptx.syntax.errors import PtxError
from trueno_cuda.ptx.syntax.tokens import Lines
from trueno_cuda.ptx.syntax.types import Type


@dataclass(eq=False)
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


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Address:
    """`[base + offset]`.  base: a register, a variable, or None for a literal.  rest: what a tensor copy adds."""

    base: Register | Variable | None
    offset: int = 0
    rest: tuple["Operand", ...] = ()


@dataclass(frozen=True)
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


@dataclass(eq=False)
class Instruction:
    """`@guard opcode.mods operands;`.

    text: as it stands in the source, for messages.  written: file and line that a `.loc` before it gives, of inlined
    code those of the call.
    """

    opcode: str
    mods: tuple[str, ...]
    operands: list[Operand]
    line: int
    text: str
    guard: Register | None = None
    negated: bool = False
    arguments: tuple[list[Operand], list[Operand]] | None = None  # of a call: results, arguments
    targets: tuple[str, ...] = ()  # of brx.idx
    written: tuple[int, int] | None = None
    start: int = -1  # its offset in the text
    unread: bool = False  # kept by a tolerant reader: the operands are the registers that its text names

    @property
    def name(self) -> str:
        return ".".join((self.opcode, *self.mods))


@dataclass(eq=False)
class Label:
    """A place to branch to; unique within its function."""

    name: str
    line: int


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
