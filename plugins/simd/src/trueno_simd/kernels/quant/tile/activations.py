"""Rows of x, quantized and laid out in tiles: the records that the micro-kernel reads, word by word.

See `layout.py` for the records.  A row with a scale that is infinite (float16 holds no more than 65504) is
reported, so that its products are made value by value.  These are emitted as straight-line code for one group of one
row: LLVM's vectorizer would think for seconds about the loops that they are, and find nothing.
"""

from typing import Any

from numba import types
from numba.extending import intrinsic

from trueno_simd.kernels import tile
from trueno_simd.kernels.quant.tile.layout import DEPTH, Layout
from trueno_simd.kernels.quant.tile.words import FLOAT, I8, I16, I32, I64, INFINITE, MAGNITUDE, number

SUMMED = 16  # elements of each of the sums that quantizing gives


class _Row:
    """One row's part of a tile: word i of a record lies i times the tile's rows, in words, further on."""

    def __init__(self, builder: Any, to: Any, rows: Any) -> None:
        self.b, self.to, self.pitch = builder, to, builder.mul(rows, number(4))

    def place(self, i: int) -> Any:
        return self.b.add(self.to, self.b.mul(self.pitch, number(i)))

    def put(self, i: int, value: Any) -> None:
        self.b.store(value, tile.at(self.b, self.place(i), value.type), align=4)

    def word(self, i: int, kind: Any) -> Any:
        return self.load(self.place(i), 0, kind)

    def load(self, address: Any, offset: int, kind: Any) -> Any:
        return self.b.load(tile.at(self.b, self.b.add(address, number(offset)), kind), align=1)

    def total(self, sums: Any, elements: int) -> Any:
        """The sum of a group's codes."""
        parts = [self.b.sext(self.load(sums, 2 * i, I16), I32) for i in range(elements // SUMMED)]
        whole = parts[0]
        for part in parts[1:]:
            whole = self.b.add(whole, part)
        return whole

    def joined(self, low: Any, high: Any) -> Any:
        """Two int32 that fit into 16 bits, in one word."""
        return self.b.or_(self.b.and_(low, I32(0xFFFF)), self.b.shl(high, I32(16)))


def group_packer(layout: Layout) -> Any:
    """put(codes, sums, d, to, rows) -> 1 if d is infinite: one group of one quantized row, to its record of a tile."""

    @intrinsic
    def put(typing: Any, codes: Any, sums: Any, d: Any, to: Any, rows: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            codes, sums, d, to, rows = values
            row = _Row(builder, to, rows)
            for s in range(layout.steps):
                if not layout.wide:
                    row.put(s, row.load(codes, 4 * s, I32))
                    continue
                first = s // 2 * 4 + s % 2  # the words hold elements 0 and 2, then 1 and 3
                row.put(s, row.joined(*(builder.sext(row.load(codes, first + i, I8), I32) for i in (0, 2))))
            at = layout.steps
            if layout.offset:
                row.put(at, builder.mul(row.total(sums, layout.group), I32(-layout.offset)))
                at += 1
            scale = row.load(d, 0, FLOAT)
            if not layout.nested:
                row.put(at, scale)
                if layout.flat_m:
                    row.put(at + 1, builder.fmul(scale, builder.sitofp(row.total(sums, layout.group), FLOAT)))
            bits = builder.and_(builder.bitcast(scale, I32), I32(MAGNITUDE))
            return builder.zext(builder.icmp_unsigned("==", bits, I32(INFINITE)), I64)

        return types.intp(*[types.intp] * 5), emit

    return put


def tail_packer(layout: Layout) -> Any:
    """put(sums, d, to, rows): what a nested tile has after a block's groups, for one row."""

    @intrinsic
    def put(typing: Any, sums: Any, d: Any, to: Any, rows: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            sums, d, to, rows = values
            row = _Row(builder, to, rows)
            pairs = layout.groups // 2 if layout.mins else 0
            each = layout.group // SUMMED * 2  # bytes of a group's sums
            for p in range(pairs):
                both = (builder.add(sums, number((2 * p + i) * each)) for i in (0, 1))
                row.put(p, row.joined(*(row.total(part, layout.group) for part in both)))
            row.put(pairs, row.load(d, 0, FLOAT))
            return context.get_dummy_value()

        return types.void(*[types.intp] * 4), emit

    return put


def group_values(layout: Layout) -> Any:
    """values(tile, g, rows, r, out): group g of a tile's row r as float32, out[rows, DEPTH]."""

    @intrinsic
    def give(typing: Any, x: Any, g: Any, rows: Any, r: Any, out: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            x, g, rows, r, out = values
            word = builder.mul(r, number(4))
            record = builder.add(x, builder.mul(builder.mul(g, rows), number(layout.x_group)))
            row = _Row(builder, builder.add(record, word), rows)
            if layout.nested:
                end = (layout.groups * layout.x_group + layout.x_tail) // 4 - 1
                d = _Row(builder, builder.add(x, word), rows).word(end, FLOAT)
            else:
                d = row.word(layout.steps + (layout.offset > 0), FLOAT)
            shift = builder.add(builder.mul(r, number(DEPTH)), builder.mul(g, number(layout.group)))
            out = builder.add(out, builder.mul(shift, number(4)))
            width, code = (16, I16) if layout.wide else (8, I8)
            for s in range(layout.steps):
                both = row.word(s, I32)
                for i in range(32 // width):
                    element = s // 2 * 4 + s % 2 + 2 * i if layout.wide else 4 * s + i
                    part = builder.trunc(builder.lshr(both, I32(width * i)), code)
                    value = builder.fmul(builder.sitofp(part, FLOAT), d)
                    builder.store(value, tile.at(builder, builder.add(out, number(4 * element)), FLOAT), align=4)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 5), emit

    return give
