"""What a lane of `tiles` reads: of two rows of a matrix, and of x."""

from collections.abc import Sequence
from itertools import product
from typing import Any

from trueno.backend import COLUMN, FORMATS, Format

from trueno_cuda.kernels.quant.blocks import Block, Blocks, Head
from trueno_cuda.kernels.quant.fragments import EIGHT, Layout, grain_of, in_order, pairs_of
from trueno_cuda.kernels.quant.parts import SMALL
from trueno_cuda.kernels.quant.tile_ring import SPAN
from trueno_cuda.ptx import Value, s8x4


class Words:
    """What one lane reads of a block of a row: its head, and of 32 elements two words of codes, of those in `in_order`.

    Words of planes that several units share are read once.  t: the lane's number among four.
    """

    def __init__(self, w: Blocks, block: Block, t: Value) -> None:
        self.w, self.t, f = w, t, w.f
        self.ordered, s = in_order(f), w.shape
        units = [w.first(unit) for unit in range(s.units)]
        assert all(isinstance(e, int) for e in units) and s.units * s.ways * COLUMN == f.elements
        self.planes: dict[tuple[int, int], list[Value]] = {}  # by plane, and by where in the block the words begin
        for e in units:
            for n, (at, count) in enumerate(w.planes(e)):
                if (n, at) in self.planes or (self.ordered and count > 1 and e % SMALL):
                    continue
                several = 2 if self.ordered and count > 1 else 1
                self.planes[n, at] = w.words(block, at + t * (4 * several) if count > 1 else at, several)
        self.head: Head = w.head(block)

    def codes(self, i: int, half: int) -> Value:
        """Four codes of the 32 elements number i of the block: the lane's first or second word of them."""
        w, s, ordered = self.w, self.w.shape, self.ordered
        element = SMALL * i + (0 if ordered else half * COLUMN)
        period = s.run * s.ways
        way, e = element % period // s.run, element // period * period + element % s.run
        code = None
        for n, (plane, (at, _)) in enumerate(zip(w.f.planes, w.planes(e), strict=True)):
            words = self.planes[n, at]
            if plane.run == 1:
                start = self.t * 8 + half * 4 if ordered else self.t * 4 + (e % 32 + way * s.run)
                part = (words[0] >> start & 15) * 0x00204081 & 0x01010101
                part = part << plane.to
            else:
                (part,) = w._part(plane, [words[half if ordered else 0]], e, way, not n)
            code = part if code is None else code | part
        assert code is not None
        return code


class Inputs:
    """What a lane reads of x: each number once for all matrices of a section, and for 32 elements at a time.

    Where the last span is short, `inside` says whether these elements are there.  kept: whether all was read before the
    first tile (`keep`); number: of the span among those that are.
    """

    def __init__(self, k: Any, p: Any, layout: Layout, lane: Value, t: Value) -> None:
        self.k, self.p, self.lane, self.t = k, p, lane, t
        self.partner = FORMATS[layout.partner].elements
        self.places: dict[Any, Any] = {}
        self.seen: dict[Any, Any] = {}
        self.kept = False

    def keep(self, spans: Sequence[Value], formats: Sequence[Format], columns: int) -> None:
        """Read all that matrices of these formats take of these spans, which then `begin` with their numbers."""
        for number, span in enumerate(spans):
            self.begin(span, number)
            for i, f, c in product(range(SPAN // SMALL), formats, range(columns)):
                self.enter(i, clear=False)
                self.codes(in_order(f), c)
                self.scales(c)
                if pairs_of(f):
                    self.pairs(pairs_of(f), c)
                elif grain := grain_of(f):
                    for h in range(SMALL // grain):
                        self.sums(grain, h, c)
        self.kept = True

    def begin(self, span: Value, number: int = 0) -> None:
        """A span begins: what lies in it is read at constants from few addresses."""
        self.span, self.number = span, number
        self.places.clear()

    def enter(self, i: int, clear: bool = True) -> None:
        """Elements number i times 32 of the span begin."""
        self.i = i
        if self.kept:
            return
        if clear:
            self.seen.clear()
        groups = self.p.depth // SMALL
        self.inside = self.span * (SPAN // SMALL) + i < groups if self.partner < SPAN else None

    def _read(self, name: str, each: int, own: Value | int, c: int, at: int, vec: int) -> list[Value]:
        """`vec` words of those that lie in pieces, one for each `each` elements and column, in pieces of a span.

        own: the lane's place among the words of a piece, which are 64 of codes and of pairs of sixteen sums, 32 of
        pairs of eight, and 8 of others.
        """
        words = {"codes0": 64, "codes1": 64, "pairs16": 64, "pairs32": 32}.get(name, EIGHT)
        key = self.number, name, c, at
        assert key in self.seen or not self.kept
        if key not in self.seen and (name, c) not in self.places:
            pieces = self.p.depth // each
            first = (pieces * c + self.span * (SPAN // each) if c else self.span * (SPAN // each)) * words + own
            self.places[name, c] = getattr(self.p, name) + first
        if key not in self.seen:
            self.seen[key] = self.places[name, c].load(at * words, vec=vec, where=self.inside)
        loaded = self.seen[key]
        return loaded if isinstance(loaded, list) else [loaded]

    def codes(self, ordered: bool, c: int) -> list[Value]:
        """The lane's two words of column c."""
        loaded = self._read(f"codes{int(ordered)}", SMALL, self.lane * 2, c, self.i, 2)
        return [v.bits(s8x4) for v in loaded]

    def sums(self, grain: int, h: int, c: int) -> list[Value]:
        """Of the h-th `grain` elements, the sums of two rows of x."""
        return self._read(f"sums{grain}", grain, self.t * 2, c, self.i * (SMALL // grain) + h, 2)

    def scales(self, c: int) -> list[Value]:
        """Of the block of x with these elements, the scales of two rows."""
        return self._read("scales", self.partner, self.t * 2, c, self.i * SMALL // self.partner, 2)

    def pairs(self, grain: int, c: int) -> list[Value]:
        """The lane's words of the sums of a block in pairs of bytes."""
        several = SMALL // grain
        loaded = self._read(f"pairs{grain}", SPAN, self.lane * several, c, 0, several)
        return [word.bits(s8x4) for word in loaded]
