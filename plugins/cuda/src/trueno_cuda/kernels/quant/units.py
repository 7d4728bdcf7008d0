"""Units of blocks whose bytes are read early and decoded late, so that several are on their way at once."""

from collections.abc import Sequence
from dataclasses import dataclass

from trueno.backend import Pieces

from trueno_cuda.kernels.quant.blocks import Block, Blocks, Head
from trueno_cuda.kernels.quant.groups import Whole, packed, separate_bytes
from trueno_cuda.ptx import Type, Value, s32, u8, u16, u32


@dataclass(frozen=True, slots=True)
class Decoded:
    """A unit, by its columns: codes, four words each; whole numbers of their groups; d and m as float32.

    pair: both leasts in the lowest two bytes of a word, for a unit of two columns, where that is how they are read.
    """

    codes: list[list[Value]]
    scales: list[Value]
    leasts: list[Value]
    pair: Value | None
    d: Value
    m: Value | None


class Unit:
    """The unit of element e in any block of `w`: `load` it, and `decode` what was loaded, of the same block."""

    def __init__(self, w: Blocks, e: Whole) -> None:
        self.w, self.e = w, e
        self.places, self.order = _places(w, e)

    def load(self, block: Block) -> list[list[Value]]:
        """Every byte that decoding needs, unaltered: nothing here waits for memory."""
        return [self.w.fetch(block, at, nbytes, kind) for at, nbytes, kind in self.places]

    def decode(self, block: Block, loaded: Sequence[Sequence[Value]]) -> Decoded:
        w, e, f = self.w, self.e, self.w.f
        w.held = iter([list(loaded[i]) for i in self.order])
        raws, head = w.raws(block, e), w.head(block)
        scales, leasts = list[Value](), list[Value]()
        several, pair = self._together(head, f.scales), self._together(head, f.mins)
        for way in range(w.shape.ways):
            g = w.group(e, way)
            if f.scales:
                scales.append(w.scale(head, g) if several is None else _byte(several, way, w.shape.ways).bits(s32))
            if f.mins:
                leasts.append(w.least(head, g) if pair is None else _byte(pair, way, w.shape.ways).bits(s32))
        w.held = None
        codes = [w.codes(raws, e, way) for way in range(w.shape.ways)]
        pair = pair if w.shape.ways == 2 else None
        return Decoded(codes, scales, leasts, pair, w.d(head), w.m(head) if f.m else None)

    def _together(self, head: Head, pieces: Pieces) -> Value | None:
        """The numbers of all columns' groups in one word, a byte each; None where they are not read so."""
        w, ways = self.w, self.w.shape.ways
        steps = [way * w.shape.run // w.f.group for way in range(ways)] if pieces else []
        if steps != list(range(ways)) or ways > 4 or isinstance(g := w.group(self.e), int) or w.f.scale_signed:
            return None
        if w.f.scale_bias or w.shape.run * ways % (w.f.group * ways):
            return None
        return packed(w.k, head.words, w.f, pieces, g, ways)


def _byte(word: Value, number: int, count: int) -> Value:
    """Byte `number` of a word that has `count`."""
    moved = word >> 8 * number if number else word
    return moved if number == count - 1 else moved & 255


def _places(w: Blocks, e: Whole) -> tuple[list[tuple[Whole, int, Type]], list[int]]:
    """What is read of a block: where, how many bytes, and as what; and its order of use, where a byte may recur."""
    f = w.f
    places: list[tuple[Whole, int, Type]] = [(at, 4 * count, u32) for at, count in w.planes(e)]
    places += [(4 * first, 4 * count, u32) for first, count in w.spans()]
    for name in filter(None, (f.d, f.m)):
        if not w.paired(name):
            spec = f.fields[name]
            places.append((spec.offset, spec.nbytes, {1: u8, 2: u16, 4: u32}[spec.nbytes]))
    order = list(range(len(places)))
    known: dict[tuple[int, tuple[int, ...]], int] = {}
    for way in range(w.shape.ways):
        g = w.group(e, way)
        for pieces in (f.scales, f.mins):
            for every, at in separate_bytes(f, pieces, g):
                key = way, every
                if key not in known:
                    known[key] = len(places)
                    places.append((at, 1, u8))
                order.append(known[key])
    return places, order
