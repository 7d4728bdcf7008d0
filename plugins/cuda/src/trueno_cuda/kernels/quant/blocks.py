"""Decoding of blocks inside a kernel, written from the core's table of formats: no layout is written down here again.

    w = Blocks(k, FORMATS["q6_k"], p.w, access)      # p.w: ptr(u8), the matrix
    line = w.line(row.to(u64) * row_bytes.to(u64))   # a row, by its first byte
    block = line.block(u // w.shape.units)           # one block of it
    e = w.first(u % w.shape.units)                   # first element of a unit of the block
    raws, head = w.raws(block, e), w.head(block)     # loads alone: several units may be on their way at once
    for way in range(w.shape.ways):                  # a column: elements e + way · run … + 15
        words = w.codes(raws, e, way)                # four u32, four codes each, the first lowest
        g = w.group(e, way)
        y = w.floats(words[0])                       # four f32; w.values(words): the same as int8
        scale, added = w.factor(head, g), w.offset(head, g)    # y · scale + added; `offset` is None where there is none
        whole, least = w.scale(head, g), w.least(head, g)      # d · whole, − m · least: whole numbers, s32

Sixteen elements whose codes lie in neighbouring bytes are a *column*.  Every run and group of the table is a multiple
of 16, so a column has one shift a plane, and one scale.  A *unit* is the columns that share the bytes of the first
plane: one column for each way of packing several codes into a byte, `run` elements apart.  Wherever an index is a
Python int, so is what follows from it, and the shifts are constants.

access: 16, 4 or 1, what divides the address of the matrix and its length in bytes (`access_of`).  Blocks of 18, 34,
110 or 210 bytes begin anywhere.  Sixteen bytes of them are then two vectors, selections and funnel shifts, for a load
costs as many cycles as lines that it touches, and not as bytes; with 4 they are five words.  With 1 single bytes are
read: slow, and right for every view of a matrix.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd
from typing import Any

from trueno.backend import COLUMN, Format, Piece, Pieces, Plane, linear, unit_shape

from trueno_cuda.kernels.quant.groups import Whole, number, one_formula, shared_words
from trueno_cuda.ptx import Pointer, Type, Value, f16, f32, s8x4, s32, u8, u8x4, u16, u32
from trueno_cuda.ptx.values import multiple

WORDS = COLUMN // 4


def access_of(f: Format, address: int, nbytes: int) -> int:
    """How a matrix of so many bytes at this address may be read."""
    return next(a for a in (16, 4, 1) if address % a == nbytes % a == 0)


@dataclass(frozen=True, slots=True)
class Line:
    """A row: `pointer` is that to its first byte, or the aligned address before, and `first` the bytes between."""

    f: Format
    pointer: Pointer
    first: Whole

    def block(self, number: Whole) -> "Block":
        return Block(self.pointer, number * self.f.nbytes + self.first)


@dataclass(frozen=True, slots=True)
class Block:
    """A block: `at` bytes from `pointer` on."""

    pointer: Pointer
    at: Whole


@dataclass(frozen=True, slots=True)
class Head:
    """What was read of a block beside codes: words by their numbers, halves and bytes by the bytes where they begin."""

    block: Block
    words: dict[int, Value]
    d: Any
    m: Any


class Blocks:
    """The matrix `w` of bytes, in blocks of one format.  options: of every load, as `cache`, `policy` and `where`."""

    def __init__(self, k: Any, f: Format, w: Pointer, access: int, **options: Any) -> None:
        self.k, self.f, self.w, self.access, self.options = k, f, w, access, options
        self.shape = unit_shape(f.name)
        self.held: Iterator[list[Value]] | None = None
        """What was fetched for a unit, in the order in which it is asked for; see `units`."""
        self._tables: list[Value] = []

    # ---- places ---------------------------------------------------------------------------------------

    def line(self, offset: Value) -> Line:
        """The row whose first byte is `offset` bytes, a u64, from the matrix' first."""
        k, access, known = self.k, self.access, gcd(self.f.nbytes, self.access)
        if max(offset.multiple, known) >= access:
            return Line(self.f, self.w + k.multiple_of(offset, known), 0)
        low = k.multiple_of(offset.to(u32) & (access - 1), known)
        return Line(self.f, self.w + k.multiple_of(offset & (1 << 64) - access, access), low)

    def first(self, unit: Whole) -> Whole:
        """The first element in its block of unit number `unit` of the block."""
        s = self.shape
        columns, period = s.run // COLUMN, s.run * s.ways
        if s.units == 1:
            return 0
        if columns == 1:
            return unit * period
        if period == self.f.elements:
            return unit * COLUMN
        return unit // columns * period + unit % columns * COLUMN

    def group(self, e: Whole, way: int = 0) -> Whole:
        """The group of the column that is `way` runs behind element e, which begins a unit."""
        f, step = self.f, way * self.shape.run
        if not (f.scales or f.mins):
            return 0
        if isinstance(e, int):
            return (e + step) // f.group
        assert step % f.group == 0 or self.shape.run * self.shape.ways == f.group
        return e // f.group + step // f.group

    # ---- bytes ----------------------------------------------------------------------------------------

    def _load(self, block: Block, at: Whole, kind: Type, count: int = 1) -> list[Value]:
        """`count` neighbours, `at` bytes from the block's beginning on, in accesses as wide as is known to be right."""
        place = block.at + at
        source = (block.pointer + place).cast(kind) if not isinstance(place, int) else block.pointer.cast(kind)
        start = place // kind.bytes if isinstance(place, int) else 0
        known = min(multiple(place), self.access) // kind.bytes
        vec = min(count, known, 16 // kind.bytes)
        return [v for i in range(0, count, vec) for v in source.load(start + i, vec=vec, **self.options)]

    def _byte(self, block: Block, at: Whole) -> Value:
        return self._read(block, at, 1, u8)[0]

    def _short(self, block: Block, at: Whole) -> Value:
        """Sixteen bits as u16."""
        loaded = self._read(block, at, 2, u16)
        return loaded[0] if len(loaded) == 1 else (loaded[0] | loaded[1] << 8).to(u16)

    def words(self, block: Block, at: Whole, count: int) -> list[Value]:
        """`count` words of four bytes, from byte `at` of the block on, wherever that lies."""
        k, place, loaded = self.k, block.at + at, self._read(block, at, 4 * count, u32)
        if len(loaded) == count:
            return loaded
        if len(loaded) == 2 * WORDS and self.access == 16:  # two vectors, in which the words begin anywhere
            for step in (2, 1):
                far = (place & 4 * step) != 0
                loaded = [k.select(far, b, a) for a, b in zip(loaded, loaded[step:], strict=False)]
            loaded = loaded[: WORDS + 1]
            if multiple(place) % 4 == 0:
                return loaded[:WORDS]
        if self.access == 1:
            return [k.prmt(a | b << 8, c | d << 8, 0x5410) for a, b, c, d in zip(*[iter(loaded)] * 4, strict=True)]
        assert isinstance(place, Value)
        shift = place << 3  # of which a funnel shift takes the lowest five bits
        return [k.shf_r(low, high, shift) for low, high in pairwise(loaded)]

    def _read(self, block: Block, at: Whole, nbytes: int, kind: Type) -> list[Value]:
        """What `fetch` gives, or gave earlier for a unit whose bytes are held."""
        if self.held is not None:
            return next(self.held)
        return self.fetch(block, at, nbytes, kind)

    def fetch(self, block: Block, at: Whole, nbytes: int, kind: Type) -> list[Value]:
        """Load `nbytes` bytes: as `kind`, as single bytes, or as the aligned words that hold them."""
        k, place = self.k, block.at + at
        known = min(multiple(place), self.access)
        if self.access == 16 and nbytes == 16 and known < 8 and isinstance(place, Value):
            ends = [k.multiple_of((place + more) & 0xFFFFFFF0, 16) for more in (0, nbytes - 1)]
            return [v for end in ends for v in (block.pointer + end).cast(u32).load(0, vec=4, **self.options)]
        if known % kind.bytes == 0:
            return self._load(block, at, kind, nbytes // kind.bytes)
        if self.access == 1 or kind is not u32:
            return self._load(block, at, u8, nbytes)
        assert isinstance(place, Value)  # the last word is read again where the first is whole: no byte beyond is
        aligned = k.multiple_of(place & 0xFFFFFFFC, 4)
        last = k.multiple_of((place + (nbytes - 1)) & 0xFFFFFFFC, 4)
        start = (block.pointer + aligned).cast(u32)
        loaded = [start.load(i, **self.options) for i in range(nbytes // 4)]
        return [*loaded, (block.pointer + last).cast(u32).load(0, **self.options)]

    # ---- scales ---------------------------------------------------------------------------------------

    def head(self, block: Block) -> Head:
        """Read d, m and what the scales of all groups share."""
        f, read = self.f, dict[int, Value]()
        for start, count in self.spans():
            read |= dict(zip(range(start, start + count), self.words(block, 4 * start, count), strict=True))
        d, m = (
            None if not n else read[f.fields[n].offset // 4] if self.paired(n) else self._field(block, n)
            for n in (f.d, f.m)
        )
        return Head(block, read, d, m)

    def paired(self, name: str) -> bool:
        """Whether this field is read with the word that it is half of."""
        return self.f.fields[name].dtype == "<f2" and self.f.nbytes % 4 == 0 and self.access > 1

    def spans(self) -> list[tuple[int, int]]:
        """What `head` reads of whole words: first and how many; a vector of four where most of them are wanted."""
        f, spans = self.f, list[tuple[int, int]]()
        wanted = sorted({*shared_words(f), *(f.fields[n].offset // 4 for n in (f.d, f.m) if n and self.paired(n))})
        for first in sorted({n // 4 * 4 for n in wanted}):
            some = [n for n in wanted if first <= n < first + 4]
            wide = gcd(f.nbytes, self.access) == 16 and len(some) > 2
            spans.append((first, 4) if wide else (some[0], some[-1] - some[0] + 1))
        return spans

    def _field(self, block: Block, name: str) -> Value:
        spec = self.f.fields[name]
        assert spec.count == 1
        if spec.nbytes == 4:
            return self.words(block, spec.offset, 1)[0]
        return self._byte(block, spec.offset) if spec.nbytes == 1 else self._short(block, spec.offset)

    def _number(self, loaded: Value, name: str) -> Value:
        """The float32 that a loaded field stands for."""
        f, k = self.f, self.k
        if f.e8m0 and name == f.d:  # 2^(d − 128); the two smallest are subnormal
            e = loaded.to(u32) if loaded.type is not u32 else loaded
            small = k.shl(k.const(u32, 0x00200000), e & 1)
            return k.select(e < 2, small, (e - 1) << 23).bits(f32)
        spec = f.fields[name]
        if spec.dtype == "<f4":
            return loaded.bits(f32)
        assert spec.dtype == "<f2"
        half = loaded if loaded.type is u16 else (loaded >> 16 if spec.offset % 4 else loaded).to(u16)
        return half.bits(f16).to(f32)

    def d(self, head: Head) -> Value:
        """The block's scale."""
        return self._number(head.d, self.f.d)

    def m(self, head: Head) -> Value:
        """What is multiplied by `least`, and subtracted; or added, in a format without mins."""
        return self._number(head.m, self.f.m)

    def scale(self, head: Head, g: Whole) -> Value:
        """The whole number of group g, of a format with scales."""
        f = self.f
        whole = self._gathered(head, f.scales, g).bits(s32)
        if f.scale_signed:
            return self.k.bfe(whole, 0, 8)
        return whole - f.scale_bias if f.scale_bias else whole

    def least(self, head: Head, g: Whole) -> Value:
        """The whole number of group g's min, of a format with mins."""
        return self._gathered(head, self.f.mins, g).bits(s32)

    def factor(self, head: Head, g: Whole) -> Value:
        """What the values of group g are multiplied by."""
        d = self.d(head)
        return d * self.scale(head, g).to(f32) if self.f.scales else d

    def offset(self, head: Head, g: Whole) -> Value | None:
        """What is added to the values of group g then."""
        if not self.f.m:
            return None
        m = self.m(head)
        return -(m * self.least(head, g).to(f32)) if self.f.mins else m

    def quad(self, head: Head, pieces: Pieces, g: int) -> Value | None:
        """The numbers of four groups from g on, as the bytes of a word; None where their pieces lie otherwise."""
        four, word = pieces[g : g + 4], None
        if len(four) < 4 or len({len(group) for group in four}) > 1:
            return None
        for parts in zip(*four, strict=True):
            first = parts[0]
            if [p.byte for p in parts] != list(range(first.byte, first.byte + 4)) or first.byte % 4:
                return None
            if len({(p.bits, p.shift, p.to) for p in parts}) > 1:
                return None
            source, down = head.words.get(first.byte // 4), first.shift - first.to
            if source is None:
                (source,) = self.words(head.block, first.byte, 1)
            if first.bits < 8:
                moved = source >> down if down > 0 else source << -down if down else source
                source = moved & ((1 << first.bits) - 1 << first.to) * 0x01010101
            word = source if word is None else word | source
        return word

    def _gathered(self, head: Head, pieces: Pieces, g: Whole) -> Value:
        """The number that the pieces of group g make.  Where no one formula fits all groups, halves have one each."""
        if isinstance(g, int):
            pieces, g = (pieces[g],), 0
        if len({len(p) for p in pieces}) == 1:
            slots = [[group[i] for group in pieces] for i in range(len(pieces[0]))]
            if all(one_formula(s) for s in slots):
                parts = [self._piece(head, s, g) for s in slots]
                return parts[0] if len(parts) == 1 else parts[0] | parts[1]
        middle = len(pieces) // 2
        low, high = self._gathered(head, pieces[:middle], g), self._gathered(head, pieces[middle:], g)
        assert isinstance(g, Value)
        return self.k.select((g & middle) != 0, high, low)

    def _piece(self, head: Head, parts: Sequence[Piece], g: Whole) -> Value:
        first, words = parts[0], {p.byte // 4 for p in parts}
        if len(words) == 1 and min(words) in head.words:
            source = head.words[min(words)]
            shift = number(linear([p.byte % 4 * 8 + p.shift for p in parts]), g)
        else:
            at = 0 if self.held is not None else number(linear([p.byte for p in parts]), g)
            source = self._byte(head.block, at)
            shift = number(linear([p.shift for p in parts]), g)
        if not isinstance(shift, int) or shift:
            source = source >> shift
        if first.bits < 8 or len(words) < 2:
            source = source & (1 << first.bits) - 1
        return source << first.to if first.to else source

    # ---- codes ----------------------------------------------------------------------------------------

    def raws(self, block: Block, e: Whole) -> list[list[Value]]:
        """Read the bytes of every plane that hold the columns of the unit that begins at element e."""
        return [self.words(block, at, count) for at, count in self.planes(e)]

    def planes(self, e: Whole) -> list[tuple[Whole, int]]:
        """Of each plane, where in the block the unit's bytes begin, and how many words they are."""
        f, result = self.f, list[tuple[Whole, int]]()
        for p in f.planes:
            start = f.fields[p.field].offset
            if p.run == 1:  # a bit an element
                result.append((e // 32 * 4 + start, 1))
                continue
            period = p.run * p.ways
            at = (e >> period.bit_length() - 1) * p.run if f.elements > period else 0
            within = e & p.run - 1 if p.run > COLUMN else 0
            result.append((at + within + start, WORDS))
        return result

    def codes(self, raws: Sequence[Sequence[Value]], e: Whole, way: int = 0) -> list[Value]:
        """The codes of the column `way` runs behind e, from what `raws` read."""
        columns = [
            self._part(p, raw, e, way, not n) for n, (p, raw) in enumerate(zip(self.f.planes, raws, strict=True))
        ]
        if len(columns) == 1:
            return columns[0]
        return [a | b for a, b in zip(*columns, strict=True)]

    def _part(self, p: Plane, raw: Sequence[Value], e: Whole, way: int, leads: bool) -> list[Value]:
        """A plane's bits of a column's codes."""
        if p.run == 1:  # four neighbours' are spread to four bytes
            start = e % 32 + way * self.shape.run
            return [(((raw[0] >> (start + 4 * i)) & 15) * 0x00204081 & 0x01010101) << p.to for i in range(WORDS)]
        shift = way * self.shape.run // p.run * p.bits
        if not leads:  # a unit begins where the first plane's shift is 0, but not where another's is
            first = e // p.run % p.ways * p.bits
            raw = [word >> first for word in raw]
        mask = ((1 << p.bits) - 1 << p.to) * 0x01010101
        if p.bits == 8:
            return list(raw)
        down, up = max(shift - p.to, 0), max(p.to - shift, 0)  # to its place at once
        return [(word >> down if down else word << up) & mask for word in raw]

    # ---- values ---------------------------------------------------------------------------------------

    def values(self, words: Sequence[Value]) -> list[Value]:
        """What codes stand for: words of four int8."""
        f = self.f
        if f.values:
            return [self._entries(w).bits(s8x4) for w in words]
        if f.signed or not f.bias:
            return [w.bits(s8x4) for w in words]
        top, bias = 0x80808080, f.bias * 0x01010101  # the top bit, set first, keeps what is borrowed within the byte
        return [((w | top) - bias ^ top).bits(s8x4) for w in words]

    def floats(self, word: Value) -> list[Value]:
        """Four codes as what they stand for, in float32."""
        f, k = self.f, self.k
        if f.values or f.signed:
            return k.unpack(self._entries(word).bits(s8x4) if f.values else word.bits(s8x4), f32)  # type: ignore[no-any-return]
        numbers = k.unpack(word.bits(u8x4), f32)
        return [n - float(f.bias) for n in numbers] if f.bias else numbers

    def know(self) -> None:
        """Have the format's table, if it has one, in registers from here on: before branches that both want it."""
        if not self._tables and self.f.values:
            v = [x % 256 for x in self.f.values]
            packed = [int.from_bytes(bytes(v[i : i + 4]), "little") for i in range(0, 16, 4)]
            self._tables = [self.k.const(u32, n) for n in packed]

    def _entries(self, word: Value) -> Value:
        """Four codes of four bits, through the format's table: two halves of it, and the code's top bit chooses."""
        k = self.k
        self.know()
        near = word | word >> 4
        four = k.prmt(near, near, 0x4420)  # the lowest sixteen bits are the four codes
        low = k.prmt(self._tables[0], self._tables[1], four & 0x7777)
        high = k.prmt(self._tables[2], self._tables[3], four & 0x7777)
        return k.prmt(low, high, (four & 0x8888) >> 1 | 0x3210)  # type: ignore[no-any-return]
