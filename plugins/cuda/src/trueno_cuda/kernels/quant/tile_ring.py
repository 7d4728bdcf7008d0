"""Sixteen rows of blocks at a time, on their way to a warp that multiplies them on tensor cores.

`TileRing` copies them through shared memory, sixteen bytes at a time and in place modulo sixteen: each warp has a ring
of its own, so nothing but the warp waits, registers hold what is multiplied alone, and the ring goes on from one tile
of rows to the next.  `Direct` reads them where they are: for matrices that begin anywhere.  `tile_bulk` is a third way.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from trueno.backend import Format

from trueno_cuda.kernels.quant.blocks import Block, Blocks, Line
from trueno_cuda.ptx import Value, u16, u32, u64

ROWS = 16
"""Of w, in a tile."""
SPAN = 256
"""Elements of k that a warp takes at a time."""
CHUNK = 16
"""Bytes of a copy."""


def span_bytes(f: Format) -> int:
    """Bytes of a row that a warp reads at a time."""
    return SPAN // f.elements * f.nbytes


def row_bytes(f: Format, pitch: int, spans: int = 1) -> int:
    """Bytes of shared memory from one row to the next: an odd number of chunks, so that eight rows share no bank.

    pitch: the power of two up to CHUNK that divides the bytes of a row of the matrix.  spans: of a row, together.
    """
    chunks = -(-(spans * span_bytes(f) + (CHUNK - 1 if shifted(f, pitch) else 0)) // CHUNK)
    return (chunks | 1) * CHUNK


def shifted(f: Format, pitch: int) -> bool:
    """Whether rows, or spans of them, begin at other places than multiples of CHUNK."""
    return pitch % CHUNK != 0 or span_bytes(f) % CHUNK != 0


def own_spans(s: Any, tile: Value, last: Value) -> Iterator[Value]:
    """The spans that a warp of a section has of a tile: every so many, as warps share it; none behind the last tile."""
    yield from s.k.range(s.turn, s.k.select(tile < last, s.spans, 0), s.form.turns)


class Direct:
    """The rows of a section's tiles where they are.  s: the kernel's section (`tiles.Section`)."""

    number = 0

    def __init__(self, s: Any, first: Value, last: Value) -> None:
        self.s, self.k, self.last = s, s.k, last
        self.blocks = [
            Blocks(s.k, f, w, part.access) for f, w, part in zip(s.formats, s.matrices, s.parts, strict=True)
        ]

    def enter(self, tile: Value) -> None:
        """A tile begins."""
        self.rows = self.s.own_rows(tile)

    def spans(self, tile: Value) -> Iterator[Value]:
        """The warp's spans of the tile, one after the other."""
        for span in own_spans(self.s, tile, self.last):
            self.span = span
            yield span

    def block(self, part: int, sub: int) -> list[Block]:
        """Block number `sub` of the span, of the lane's two rows."""
        s, k, w = self.s, self.k, self.blocks[part]
        across = s.depth // w.f.elements
        number = self.span * (SPAN // w.f.elements) + sub
        if w.f.elements < SPAN:  # the last span may be short
            number = k.min(number, across - 1)
        nbytes = across.to(u64) * w.f.nbytes
        return [w.line(row.to(u64) * nbytes).block(number) for row in self.rows]

    def end(self) -> None:
        """Nothing is on its way."""


class Shifted(Blocks):
    """Blocks that begin at any two bytes of shared memory: `pointer` is at a multiple of four before, `at` the bits
    between.  Four bytes of them are then two reads at constants, and a funnel shift.
    """

    @staticmethod
    def fits(f: Format, pitch: int) -> bool:
        """Whether blocks begin so, and what is read of them at a multiple of four bytes."""
        return pitch > 1 and f.nbytes % 4 == 2 and not any(field.offset % 4 for field in f.fields.values())

    def words(self, block: Block, at: Any, count: int) -> list[Value]:
        """`count` words of four bytes, from byte `at` of the block on."""
        source = (block.pointer + at).cast(u32)
        loaded = [source.load(i) for i in range(count + 1)]
        return [self.k.shf_r(low, high, block.at) for low, high in pairwise(loaded)]

    def _short(self, block: Block, at: Any) -> Value:
        """Sixteen bits as u16, which one word has."""
        return ((block.pointer + at).cast(u32).load(0) >> block.at).to(u16)


class Staged:
    """What is read of a section's tiles in shared memory.  s: the kernel's section; spans: of a row that lie together.

    sizes: bytes of shared memory from one row of each part to the next; pitches: of memory.  high: tiles of a slot, of
    which each part has those beside each other, from `offsets` on.  number: of the span among those that a warp has of
    a row, where the kernel is written for each of them.
    """

    number = 0

    def __init__(self, s: Any, spans: int = 1, high: int = 1) -> None:
        k = self.k = s.k
        self.s, self.stages = s, s.form.stages
        pitches = [part.pitch for part in s.parts]
        self.shifted = [shifted(f, pitch) for f, pitch in zip(s.formats, pitches, strict=True)]
        self.uneven = [Shifted.fits(f, pitch) for f, pitch in zip(s.formats, pitches, strict=True)]
        self.sizes = [row_bytes(f, pitch, spans) for f, pitch in zip(s.formats, pitches, strict=True)]
        self.offsets = [high * ROWS * sum(self.sizes[:i]) for i in range(len(self.sizes))]
        self.blocks = [
            Shifted(k, f, s.ring[0], 4) if uneven else Blocks(k, f, s.ring[0], 4 if moved or f.nbytes % 4 else CHUNK)
            for f, moved, uneven in zip(s.formats, self.shifted, self.uneven, strict=True)
        ]
        self.pitches = [
            k.multiple_of(s.depth // f.elements * f.nbytes, pitch) for f, pitch in zip(s.formats, pitches, strict=True)
        ]

    def enter(self, tile: Value) -> None:
        """A tile begins."""
        rows = self.s.own_rows(tile)
        self.lows = [
            [row * pitch & (CHUNK - 1) for row in rows] if moved else []
            for pitch, moved in zip(self.pitches, self.shifted, strict=True)
        ]

    def land(self, span: Value, lines: list[list[Line]]) -> None:
        """A span is there: of each part, these lines have the lane's two rows of it."""
        s = self.s
        self.lines = lines
        self.left = [
            s.depth // f.elements - 1 - span * (SPAN // f.elements) if f.elements < SPAN else None for f in s.formats
        ]

    def low(self, part: int, i: int, at: Value) -> Value:
        """Bytes between a multiple of CHUNK and byte `at` of the lane's i-th row, of a shifted part."""
        f = self.s.formats[part]
        even = min(f.nbytes & -f.nbytes, self.s.parts[part].pitch, CHUNK)
        return self.k.multiple_of(self.lows[part][i] + at & (CHUNK - 1), even)  # type: ignore[no-any-return]

    def block(self, part: int, sub: int) -> list[Block]:
        """Block number `sub` of the span, of the lane's two rows."""
        k, left = self.k, self.left[part]
        blocks = [line.block(sub if left is None or not sub else k.min(left, sub)) for line in self.lines[part]]
        if not self.uneven[part]:
            return blocks
        return [Block(b.pointer + k.multiple_of(b.at & 0xFFFFFFFC, 4), (b.at & 3) << 3) for b in blocks]


class TileRing(Staged):
    """The warp's tiles from `first` up to `last`, and its spans of each; `stages` of them are on their way.

    Neighbouring lanes copy neighbouring chunks of a row, for a copy costs as many cycles as lines that it touches: gate
    and up of 7B take an H200 24 us for the copies alone, and 34 where two lanes copy a row.
    """

    def __init__(self, s: Any, first: Value, last: Value) -> None:
        super().__init__(s)
        k, self.last = s.k, last
        self.chunks = [[self._chunk(size, n) for n in range(-(-size // (2 * CHUNK)))] for size in self.sizes]
        self.tile, self.span, self.slot = k.var(first + s.place), k.var(s.turn), k.var(u32, 0)
        self.starts = [[k.var(u32, 0) for _ in chunks] for chunks in self.chunks]
        self.bases = [k.var(u64, 0) for _ in s.parts]
        self._begin()
        for slot in range(self.stages - 1):
            self._ask(k.const(u32, slot))

    def _chunk(self, size: int, n: int) -> tuple[Value, Value]:
        """The row and the byte in it of the lane's n-th chunk."""
        number = self.k.lane + 32 * n
        each = size // CHUNK
        return number // each, self.k.multiple_of(number % each * CHUNK, CHUNK)

    def _begin(self) -> None:
        """Find the rows of the tile that is asked for."""
        k, s = self.k, self.s
        first = self.tile * ROWS
        left = s.rows - 1 - k.min(first, s.rows - 1)
        for base, pitch, starts, chunks in zip(self.bases, self.pitches, self.starts, self.chunks, strict=True):
            base.set(k.mul_wide(first, pitch))
            for start, (row, _) in zip(starts, chunks, strict=True):
                start.set(k.min(row, left) * pitch)

    def _ask(self, slot: Value) -> None:
        """Begin to copy the next span of the warp, if there is one."""
        k, s = self.k, self.s
        there = (self.tile < self.last) & (self.span < s.spans)
        tile = s.ring[slot]
        for part, (f, w, pitch, moved) in enumerate(
            zip(s.formats, s.matrices, self.pitches, self.shifted, strict=True)
        ):
            nbytes, at = span_bytes(f), self.span * span_bytes(f)
            length = k.min(k.const(u32, nbytes), pitch - at) if f.elements < SPAN else k.const(u32, nbytes)
            length = k.select(there, length, 0)
            rows = w + k.multiple_of(self.bases[part].value, CHUNK)
            for n, (row, within) in enumerate(self.chunks[part]):
                begin, end = self.starts[part][n] + at, length
                if moved:
                    end = k.select(there, end + (begin & (CHUNK - 1)), 0)
                    begin = begin & (1 << 32) - CHUNK
                to = (k.warp, row * self.sizes[part] + (within + self.offsets[part]))
                with k.when((within < end) & (row < ROWS)):
                    k.copy_async(tile, to, rows, k.multiple_of(begin + within, CHUNK), CHUNK)
        k.async_commit()
        self.span += s.form.turns
        with k.when((self.span >= s.spans) & (self.tile < self.last)):
            self.span.set(s.turn)
            self.tile += s.form.high
            self._begin()

    def spans(self, tile: Value) -> Iterator[Value]:
        """The warp's spans of the tile, once they are there; each lets another one be asked for."""
        for span in own_spans(self.s, tile, self.last):
            self._step(span)
            yield span

    def _step(self, span: Value) -> None:
        """Wait for a span of the tile, and ask for another."""
        k, s, stages = self.k, self.s, self.stages
        k.async_wait(stages - 2)
        k.sync_warp()
        self._ask(k.select(self.slot == 0, stages - 1, self.slot - 1))
        lines: list[list[Line]] = []
        tile = s.ring[self.slot.value]
        for part, (f, offset, size) in enumerate(zip(s.formats, self.offsets, self.sizes, strict=True)):
            lines.append([])
            for i, more in enumerate((0, ROWS // 2)):
                pointer = tile + k.flat(s.ring, (k.warp, (s.group + more) * size + offset))
                low: Any = k.const(u32, 0) if f.nbytes % 4 else 0
                if self.shifted[part]:
                    low = self.low(part, i, span * span_bytes(f))
                lines[-1].append(Line(f, pointer, low))
        self.slot.set(k.select(self.slot == stages - 1, 0, self.slot + 1))
        self.land(span, lines)

    def end(self) -> None:
        """Let nothing land when the block is over."""
        self.k.async_wait(0)
