"""What the steps of an entry share: the function that is written, where its facts are, and what earlier steps found."""

from dataclasses import dataclass, field

from trueno.backend import EntryKind, EntryLayout

from trueno_simd.door.text import Function

CONTIGUOUS, FORTRAN, ALIGNED, WRITEABLE = 0x1, 0x2, 0x100, 0x400
"""Flags of an array: C-contiguous, Fortran-contiguous, aligned, writeable."""
PLAIN = CONTIGUOUS | ALIGNED
"""The flags of an array that kernels take."""


@dataclass
class Frame:
    """One entry while it is written.

    kinds: the operands' kind letters in this form of call, in which `u` is a number, and `w` may be a repeated row.
    apart: the label for an operand that is not an array, by position, where the entry of another form takes it.
    Slots: `out` and `fresh`, the result that was given and the one that was made; `rows` and `n`, the extents; `deep`,
    whether the kernel is the one of two dimensions; `wide`, 1 for float64; `key`, the number of the plan's slot;
    `loose`, whether an operand or `out` is not C-contiguous, `scratch`, memory for such arrays, and `data`, where each
    operand's elements are.
    """

    f: Function
    kind: EntryKind
    layout: EntryLayout
    kinds: str
    apart: dict[int, str] = field(default_factory=dict)
    operands: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)
    cells: dict[int, str] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        f = self.f
        self.words = f.load("ptr", "@words")
        self.descriptor = f.load("ptr", "@descriptor")
        self.out, self.fresh = f.slot("ptr", "null"), f.slot("ptr", "null")
        self.rows, self.n, self.deep = f.slot("i64"), f.slot("i64"), f.slot("i1")
        self.wide, self.native, self.key = f.slot("i64"), f.slot("ptr"), f.slot("i64")
        self.loose, self.scratch = f.slot("i1", "false"), f.slot("ptr", "null")
        self.values = [f.slot("ptr", "null") for _ in self.kind.parameters]

    @property
    def twin(self) -> bool:
        """Whether the form of call is not the one that the op declares."""
        return self.kinds != self.kind.kinds

    @property
    def first(self) -> str:
        """The operand whose shape and dtype are the call's."""
        return self.operands[self.kinds.index("e")]

    @property
    def arrays(self) -> list[str]:
        """The operands that are not numbers."""
        return [x for x, kind in zip(self.operands, self.kinds, strict=True) if kind != "u"]

    def word(self, name: str, kind: str = "ptr") -> str:
        """A word of the process."""
        return self.f.load(kind, self.words, self.layout.word[name])

    def fact(self, name: str, index: int = 0, kind: str = "ptr") -> str:
        """A field of the op's descriptor."""
        return self.f.load(kind, self.descriptor, self.layout.descriptor[name] + 8 * index)

    def part(self, thing: str, name: str, kind: str = "ptr") -> str:
        """A field of an object."""
        return self.f.load(kind, thing, self.layout.offset[name])

    def call(self, kind: str, name: str, *arguments: str) -> str:
        """The value of a function whose address is a word."""
        return self.f(f"call {kind} {self.word(name)}({', '.join(arguments)})")

    def release(self, thing: str) -> None:
        self.f.do(f"call void {self.word('decref')}(ptr {thing})")

    def retain(self, thing: str) -> None:
        self.f.do(f"call void {self.word('incref')}(ptr {thing})")
