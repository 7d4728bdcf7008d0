"""From the object that LLVM writes for wasm32 to a module that runs: what `wasm-ld` does, for one object alone.

An object is a WebAssembly file whose memory, table and stack pointer are imports, and whose numbers that depend on the
place of data and functions are listed (the sections `linking` and `reloc.*`).  With one object, functions and types
keep their numbers.  So what remains is to put the data into the memory, the functions that are called by address into
the table, and these places into code and data.  All such numbers are written with their full width of five bytes.

Source: the WebAssembly specification, and its tool conventions, `Linking.md`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

TYPE, IMPORT, FUNCTION, TABLE, MEMORY, GLOBAL, EXPORT, ELEMENT, CODE, DATA = 1, 2, 3, 4, 5, 6, 7, 9, 10, 11
HEADER: Final = b"\0asm\1\0\0\0"
PAGE: Final = 1 << 16
SYMBOLS: Final = 8  # the part of `linking` that names them
OF_FUNCTION, OF_DATA, OF_GLOBAL, OF_SECTION, OF_TABLE = 0, 1, 2, 3, 5
UNDEFINED, NAMED = 0x10, 0x40
I32_CONST, END, FUNCREF, I32 = 0x41, 0x0B, 0x70, 0x7F

# Kinds of places, and how each is written; those of data have an addend.
UNSIGNED, SIGNED, WORD = "unsigned", "signed", "word"
FUNCTION_INDEX, TABLE_SLOT, ADDRESS, TYPE_INDEX, GLOBAL_INDEX, TABLE_NUMBER = range(6)
PLACES: Final = {
    0: (FUNCTION_INDEX, UNSIGNED), 1: (TABLE_SLOT, SIGNED), 2: (TABLE_SLOT, WORD), 3: (ADDRESS, UNSIGNED),
    4: (ADDRESS, SIGNED), 5: (ADDRESS, WORD), 6: (TYPE_INDEX, UNSIGNED), 7: (GLOBAL_INDEX, UNSIGNED),
    20: (TABLE_NUMBER, UNSIGNED),
}  # fmt: skip


class LinkError(Exception):
    """The object needs what a page does not have."""


class Reader:
    """Numbers and names, one after the other."""

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.data, self.at, self.end = data, at, len(data) if end is None else end

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def signed(self) -> int:
        start = self.at
        value, bits = self.unsigned(), 7 * (self.at - start)
        return value - (1 << bits) if value >> (bits - 1) else value

    def bytes(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def name(self) -> str:
        return self.bytes(self.unsigned()).decode()

    def many(self) -> range:
        return range(self.unsigned())


@dataclass(frozen=True, slots=True)
class Symbol:
    """index: of a function, a global or a segment of data; -1 for what is not in the object.  offset: in a segment."""

    kind: int
    name: str
    index: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """What stands `offset` bytes behind the beginning of a section's contents."""

    kind: int
    offset: int
    symbol: int
    addend: int


@dataclass(slots=True)
class Object:
    """imported: names by kind.  segments: where their bytes begin in their section, and these bytes.

    aligned: the power of two to which each segment is.
    """

    sections: dict[int, bytes] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    imported: dict[int, list[str]] = field(default_factory=dict)
    segments: list[tuple[int, bytes]] = field(default_factory=list)
    aligned: list[int] = field(default_factory=list)
    symbols: list[Symbol] = field(default_factory=list)
    places: dict[int, list[Place]] = field(default_factory=dict)


def link(data: bytes, entries: tuple[str, ...], base: int, stack: int) -> bytes:
    """The module of an object.

    entries: functions that it exports, beside its `memory`.  base: where its data begin in memory.  stack: the bytes
    from 0 on that are the stack, which grows down, so that what is too deep ends in an error and not in data.
    LinkError for a function that is in no object.
    """
    given = _object(data)
    starts, top = [], base
    for (_, content), power in zip(given.segments, given.aligned, strict=True):
        top = -(-top >> power) << power
        starts.append(top)
        top += len(content)
    slots: dict[int, int] = {}
    for place in (p for places in given.places.values() for p in places):
        if PLACES[place.kind][0] == TABLE_SLOT:
            slots.setdefault(given.symbols[place.symbol].index, len(slots) + 1)  # 0 is the null pointer
    code = _placed(given, CODE, starts, slots)
    content = _placed(given, DATA, starts, slots)
    segments = [
        b"\0" + _constant(start) + _sized(content[at : at + len(old)])
        for start, (at, old) in zip(starts, given.segments, strict=True) if any(content[at : at + len(old)])
    ]  # fmt: skip
    numbers = {s.name: s.index for s in given.symbols if s.kind == OF_FUNCTION}
    exports = [_name("memory") + b"\2\0", *(_name(name) + b"\0" + _unsigned(numbers[name]) for name in entries)]
    many = _unsigned(len(slots) + 1)
    parts = {
        TYPE: given.sections[TYPE],
        FUNCTION: given.sections[FUNCTION],
        TABLE: b"\1" + bytes([FUNCREF, 1]) + many + many,
        MEMORY: b"\1\0" + _unsigned(-(-top // PAGE)),
        GLOBAL: b"\1" + bytes([I32, 1]) + _constant(stack),
        EXPORT: _vector(exports),
        ELEMENT: _vector([b"\0" + _constant(1) + _vector([_unsigned(index) for index in slots])] if slots else []),
        CODE: code,
        DATA: _vector(segments),
    }
    return HEADER + b"".join(bytes([kind]) + _sized(part) for kind, part in sorted(parts.items()))


def _placed(given: Object, section: int, starts: list[int], slots: dict[int, int]) -> bytes:
    """A section's contents with every place filled in."""
    content = bytearray(given.sections.get(section, b""))
    for place in given.places.get(section, ()):
        what, form = PLACES[place.kind]
        symbol = None if what == TYPE_INDEX else given.symbols[place.symbol]
        if symbol is None:
            value = place.symbol
        elif what == ADDRESS:
            value = starts[symbol.index] + symbol.offset + place.addend
        elif what == TABLE_SLOT:
            value = slots[symbol.index]
        else:
            value = symbol.index
        if form == WORD:
            content[place.offset : place.offset + 4] = (value % (1 << 32)).to_bytes(4, "little")
        else:
            content[place.offset : place.offset + 5] = _five(value, form == SIGNED)
    return bytes(content)


def _object(data: bytes) -> Object:
    if data[:8] != HEADER:
        raise LinkError("not a WebAssembly file of version 1")
    given, reader = Object(), Reader(data, 8)
    while reader.at < reader.end:
        kind, size = reader.byte(), reader.unsigned()
        content = reader.bytes(size)
        given.order.append(kind)
        if kind:
            given.sections[kind] = content
            if kind == IMPORT:
                given.imported = _imports(Reader(content))
            continue
        inside = Reader(content)
        name = inside.name()
        if name == "linking":
            _linking(given, inside)
        elif name.startswith("reloc."):
            section = given.order[inside.unsigned()]
            given.places[section] = list(_places(inside)) if section in (CODE, DATA) else []
    given.segments = list(_segments(given.sections[DATA])) if DATA in given.sections else []
    missing = [s.name for s in given.symbols if s.index < 0]
    if missing:
        raise LinkError(f"the kernels call {', '.join(missing)}, which pages do not have")
    if any(symbol.kind == OF_GLOBAL and symbol.name != "__stack_pointer" for symbol in given.symbols):
        raise LinkError("the object has a global beside the stack pointer")
    return given


def _imports(reader: Reader) -> dict[int, list[str]]:
    names: dict[int, list[str]] = {OF_FUNCTION: [], OF_GLOBAL: []}
    for _ in reader.many():
        reader.name()
        name, kind = reader.name(), reader.byte()
        if kind == 0:
            names[OF_FUNCTION].append(name)
            reader.unsigned()
        elif kind == 3:
            names[OF_GLOBAL].append(name)
            reader.bytes(2)
        else:  # the table, which says its element's type first, and the memory: limits
            reader.bytes(1 if kind == 1 else 0)
            for _ in range(1 + (reader.byte() & 1)):
                reader.unsigned()
    return names


def _linking(given: Object, reader: Reader) -> None:
    if (version := reader.unsigned()) != 2:
        raise LinkError(f"the object's linking section has version {version}, not 2")
    while reader.at < reader.end:
        part, size = reader.byte(), reader.unsigned()
        inside = Reader(reader.bytes(size))
        if part == SYMBOLS:
            given.symbols = [_symbol(inside, given.imported) for _ in inside.many()]
        elif part == 5:  # facts of segments: name, alignment, flags
            for _ in inside.many():
                inside.name()
                given.aligned.append(inside.unsigned())
                inside.unsigned()
        else:
            raise LinkError(f"the object's linking section has a part {part}")


def _symbol(reader: Reader, imported: dict[int, list[str]]) -> Symbol:
    kind, flags = reader.byte(), reader.unsigned()
    if kind == OF_SECTION:
        return Symbol(kind, "", reader.unsigned())
    if kind == OF_DATA:
        name = reader.name()
        if flags & UNDEFINED:
            return Symbol(kind, name, -1)
        index, offset, _ = reader.unsigned(), reader.unsigned(), reader.unsigned()
        return Symbol(kind, name, index, offset)
    index, undefined = reader.unsigned(), bool(flags & UNDEFINED)
    known = imported.get(kind) if undefined and not flags & NAMED else None
    name = reader.name() if not undefined or flags & NAMED else known[index] if known else ""
    return Symbol(kind, name, -1 if undefined and kind == OF_FUNCTION else index)


def _places(reader: Reader) -> Iterator[Place]:
    for _ in reader.many():
        kind, offset, symbol = reader.byte(), reader.unsigned(), reader.unsigned()
        if kind not in PLACES:
            raise LinkError(f"the object has a relocation of kind {kind}")
        yield Place(kind, offset, symbol, reader.signed() if PLACES[kind][0] == ADDRESS else 0)


def _segments(section: bytes) -> Iterator[tuple[int, bytes]]:
    reader = Reader(section)
    for _ in reader.many():
        if reader.unsigned() != 0 or reader.byte() != I32_CONST:
            raise LinkError("the object has a segment without a place")
        reader.signed()
        if reader.byte() != END:
            raise LinkError("the object has a segment whose place is computed")
        size = reader.unsigned()
        yield reader.at, reader.bytes(size)


# ---- writing


def _unsigned(value: int) -> bytes:
    written = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        written.append(low | (0x80 if value else 0))
        if not value:
            return bytes(written)


def _five(value: int, signed: bool) -> bytes:
    """The low 32 bits of a number in five bytes; a signed one repeats its highest bit in the last."""
    low = [(value >> shift) & 0x7F | 0x80 for shift in (0, 7, 14, 21)]
    last = (value >> 28) & 0x0F
    return bytes([*low, last | 0x70 if signed and last & 8 else last])


def _constant(value: int) -> bytes:
    """The expression that gives an address."""
    return bytes([I32_CONST]) + _five(value, True) + bytes([END])


def _sized(content: bytes) -> bytes:
    return _unsigned(len(content)) + content


def _vector(parts: list[bytes]) -> bytes:
    return _unsigned(len(parts)) + b"".join(parts)


def _name(text: str) -> bytes:
    return _sized(text.encode())


__all__ = ["PAGE", "LinkError", "link"]
