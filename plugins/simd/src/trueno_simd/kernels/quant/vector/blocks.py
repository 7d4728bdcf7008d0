"""Blocks of any format as vectors of codes, scales and offsets: the table of formats, turned into instructions.

A `Tile` is what one step of a kernel's loop takes from a row: one block of 256 elements, or as many blocks of 32 as
fill a vector.  `vectors` says which elements each vector of codes holds: the order in which they lie in the block, so
that a load, a shift and a mask give one.  The code that multiplies them gathers its activations in the same order.

Codes are unsigned, `bias` too high, or `signed`.  Formats with values keep them in a table of bytes.
"""

from collections.abc import Sequence
from typing import Any

from trueno.backend import Format, Pieces, Plane

from trueno_simd.kernels.quant.vector.lanes import I8, I16, I32, ZERO, Lanes, vec


def _bias(f: Format) -> int:
    """The bias that makes every value unsigned: 128 if nothing less does, for then one `xor` is enough."""
    if f.signed:
        return 128
    if f.values:
        return -min(f.values) if min(f.values) > -64 else 128
    return f.bias


class Tile:
    """Some blocks of a format, decoded by `lanes`.  `signed`: codes are wanted as they are rather than unsigned."""

    def __init__(self, f: Format, lanes: Lanes, *, signed: bool) -> None:
        self.f, self.lanes = f, lanes
        first = f.fields[f.planes[0].field]
        self.blocks = 1 if f.group else max(1, lanes.width // first.nbytes)
        self.elements, self.size = self.blocks * f.elements, self.blocks * f.nbytes
        self.signed = signed
        self.bias = 0 if signed else _bias(f)
        self.largest = 2**f.code_bits - 1 if not f.values else max(f.values) + self.bias
        self.vectors = self._order(f.planes[0])
        self._masked: dict[Any, Any] = {}

    def _order(self, plane: Plane) -> list[list[int]]:
        """For each vector, its elements; those of one load follow each other."""
        count = self.f.fields[plane.field].nbytes
        places = [(block, byte) for block in range(self.blocks) for byte in range(count)]
        width = min(self.lanes.width, len(places))
        return [
            [
                block * self.f.elements + (byte // plane.run * plane.ways + way) * plane.run + byte % plane.run
                for block, byte in places[start : start + width]
            ]
            for start in range(0, len(places), width)
            for way in range(plane.ways)
        ]

    def places(self, plane: Plane, elements: Sequence[int]) -> tuple[list[int], list[int]]:
        """Where a plane has its bits of these elements: byte of the tile, and the lowest bit."""
        offsets, shifts = [], []
        for e in elements:
            block, inside = divmod(e, self.f.elements)
            index, r = divmod(inside, plane.run)
            chunk, way = divmod(index, plane.ways)
            offsets.append(block * self.f.nbytes + self.f.fields[plane.field].offset + chunk * plane.run + r)
            shifts.append(way * plane.bits)
        return offsets, shifts

    def _part(self, address: Any, plane: Plane, elements: Sequence[int]) -> Any:
        """A plane's bits of these elements, at their place in the code."""
        b, lanes, n = self.lanes.builder, self.lanes, len(elements)
        offsets, shifts = self.places(plane, elements)
        raw = lanes.gather(address, offsets, self.size)
        if plane.bits == 8:
            return raw
        mask = ((1 << plane.bits) - 1) << plane.to
        moves = [s - plane.to for s in shifts]  # to the right
        if len(set(moves)) == 1:
            move = moves[0]
            words = lanes.bits(raw, I16, n // 2)
            if move:
                words = (b.lshr if move > 0 else b.shl)(words, lanes.fill(words.type, abs(move)))
            return b.and_(lanes.bits(words, I8, n), lanes.fill(raw.type, mask))
        if all(len(set(moves[i : i + 4])) == 1 for i in range(0, n, 4)):
            words, moves = lanes.bits(raw, I32, n // 4), moves[::4]
            if min(moves) >= 0:
                words = b.lshr(words, lanes.fill(words.type, moves))
            elif max(moves) <= 0:
                words = b.shl(words, lanes.fill(words.type, [-m for m in moves]))
            else:
                right, left = [m % 32 for m in moves], [-m % 32 for m in moves]
                words = b.or_(b.lshr(words, lanes.fill(words.type, right)), b.shl(words, lanes.fill(words.type, left)))
            return b.and_(lanes.bits(words, I8, n), lanes.fill(raw.type, mask))
        if plane.bits != 1:
            raise NotImplementedError(f"{self.f.name}: bits of {plane.field} that shift byte by byte")
        bit = b.and_(raw, lanes.fill(raw.type, [1 << s for s in shifts]))
        is_set = b.icmp_signed("!=", bit, lanes.fill(raw.type, 0))
        return b.select(is_set, lanes.fill(raw.type, mask), lanes.fill(raw.type, 0))

    def codes(self, address: Any, elements: Sequence[int]) -> Any:
        """Bytes that stand for these elements of the tile at `address`."""
        parts = [self._part(address, plane, elements) for plane in self.f.planes]
        code = parts[0]
        for part in parts[1:]:
            code = self.lanes.builder.or_(code, part)
        return self.valued(code)

    def valued(self, code: Any) -> Any:
        """Codes as they come from the block, as they are wanted."""
        b, lanes = self.lanes.builder, self.lanes
        if self.f.values:
            return lanes.lookup(code, [(v + self.bias) % 256 for v in self.f.values])
        if self.f.signed and not self.signed:
            return b.xor(code, lanes.fill(code.type, 0x80))
        if self.signed and self.f.bias:
            return b.sub(code, lanes.fill(code.type, self.f.bias))
        return code

    # ---- scales of a block of 256

    def headers(self, addresses: Sequence[Any]) -> tuple[Any, int]:
        """16 bytes of each row that hold all pieces of scales and mins, and where they begin."""
        used = [p.byte for pieces in (self.f.scales, self.f.mins) for parts in pieces for p in parts]
        start = min(min(used) // 2 * 2, self.f.nbytes - 16)
        d = self.f.fields[self.f.d].offset
        if d < start and max(used) - d < 16:
            start = d
        assert max(used) - start < 16
        kind = vec(I8, 16)
        return self.lanes.concat([self.lanes.load(address, start, kind) for address in addresses]), start

    def words(self, header: Any, start: int, pieces: Pieces, *, signed: bool = False) -> Any:
        """The scale (or min) of each group of each row, as int16, less its bias."""
        b, lanes = self.lanes.builder, self.lanes
        rows, groups = header.type.count // 16, len(pieces)
        total = None
        for k in range(max(len(parts) for parts in pieces)):
            order, shifts, masks = [], [], []
            for row in range(rows):
                for parts in pieces:
                    piece = parts[k] if k < len(parts) else None
                    order += [ZERO, 16 * row + piece.byte - start if piece else ZERO]  # into the high byte
                    shifts.append(8 + piece.shift - piece.to if piece else 8)
                    masks.append(((1 << piece.bits) - 1) << piece.to if piece else 0)
            words = lanes.bits(lanes.shuffle(header, order), I16, rows * groups)
            if signed:
                return b.ashr(words, lanes.fill(words.type, shifts))
            words = b.and_(b.lshr(words, lanes.fill(words.type, shifts)), lanes.fill(words.type, masks))
            total = words if total is None else b.or_(total, words)
        return total

    def group_scales(self, header: Any, start: int) -> Any:
        scales = self.words(header, start, self.f.scales, signed=self.f.scale_signed)
        if self.f.scale_bias:
            scales = self.lanes.builder.sub(scales, self.lanes.fill(scales.type, self.f.scale_bias))
        return scales

    def factors(self, addresses: Sequence[Any], header: Any, start: int) -> tuple[Any, Any]:
        """d of each row, float32; and m, where there is one, else None."""
        lanes, f, rows = self.lanes, self.f, len(addresses)
        d, m = f.fields[f.d].offset - start, f.fields[f.m].offset - start if f.m else None
        if d >= 0 and max(d, m or 0) < 15:
            words = lanes.bits(header, I16, 8 * rows)
            order = [8 * r + o // 2 for o in ([d] if m is None else [d, m]) for r in range(rows)]
            pair = lanes.halves(lanes.shuffle(words, order))
        else:
            order = [f.fields[name].offset for name in ((f.d, f.m) if f.m else (f.d,))]
            pair = lanes.halves(lanes.scalars([lanes.load(a, o, I16) for o in order for a in addresses]))
        if m is None:
            return pair, None
        return lanes.shuffle(pair, range(rows)), lanes.shuffle(pair, range(rows, 2 * rows))

    # ---- scales of blocks of 32

    def spread(self, address: Any, name: str, count: int) -> Any:
        """Field `name` of the tile's blocks as float32, each repeated so that `count` lanes are filled."""
        lanes, f = self.lanes, self.f
        each = [i * self.blocks // count for i in range(count)]
        offset, nbytes = f.fields[name].offset, f.fields[name].nbytes
        wide = lanes.width >= 64 and self.size >= lanes.width and self.blocks > 1
        if f.e8m0:
            if wide:
                return lanes.powers(lanes.gather(address, [offset + f.nbytes * i for i in each], self.size))
            codes = lanes.scalars([lanes.load(address, offset + f.nbytes * i, I8) for i in range(self.blocks)])
            return lanes.shuffle(lanes.powers(codes), each)
        if wide:
            order = [offset + f.nbytes * i + j for i in each for j in range(nbytes)]
            return lanes.halves(lanes.bits(lanes.gather(address, order, self.size), I16, count))
        words = lanes.scalars([lanes.load(address, offset + f.nbytes * i, I16) for i in range(self.blocks)])
        return lanes.shuffle(lanes.halves(words), each)
