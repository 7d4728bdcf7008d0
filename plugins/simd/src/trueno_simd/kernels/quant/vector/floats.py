"""Blocks times float32 activations: values are decoded sixteen at a time in registers, and never stored.

Each value is what dequantizing gives, bit for bit, so that only its product with the activation and the sum round.
`float_rows` walks along a few rows of the matrix at once (they share the loads of x), `float_columns` adds a few
rows, each times its number, to y (they share the loads and stores of y).
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from trueno.backend import FORMATS, Format

from trueno_simd.kernels.quant.vector.blocks import Tile
from trueno_simd.kernels.quant.vector.lanes import F32, I32, Lanes, vec

ROWS = 4
LANES = 16  # of every vector of floats; the target splits it as it must
FLOATS = vec(F32, LANES)


class Values:
    """The values of one block in each of some rows."""

    def __init__(self, tile: Tile, rows: Sequence[Any]) -> None:
        self.tile, self.rows = tile, rows
        lanes, b, f = tile.lanes, tile.lanes.builder, tile.f
        if not f.group:
            self.scales = [tile.spread(row, f.d, LANES) for row in rows]
            self.offsets = [tile.spread(row, f.m, LANES) if f.m else None for row in rows]
            return
        header, start = tile.headers(rows)
        factor, offset = tile.factors(rows, header, start)
        each = [row for row in range(len(rows)) for _ in range(f.groups)]

        def wide(words: Any) -> Any:
            return lanes.floats(lanes.widened(words, I32))

        self.scales = b.fmul(wide(tile.group_scales(header, start)), lanes.shuffle(factor, each))
        self.offsets = None
        if offset is not None:
            mins = wide(tile.words(header, start, f.mins))
            self.offsets = b.fneg(b.fmul(mins, lanes.shuffle(offset, each)))

    def of(self, r: int, elements: Sequence[int]) -> Any:
        """Sixteen values of row r, as float32."""
        lanes, b, f = self.tile.lanes, self.tile.lanes.builder, self.tile.f
        values = lanes.floats(lanes.widened(self.tile.codes(self.rows[r], elements), I32))
        if not f.group:
            scale, offset = self.scales[r], self.offsets[r]
        else:
            group = [r * f.groups + elements[0] // f.group] * LANES
            scale = lanes.shuffle(self.scales, group)
            offset = None if self.offsets is None else lanes.shuffle(self.offsets, group)
        values = b.fmul(values, scale)
        return values if offset is None else b.fadd(values, offset)


def _tile(f: Format, builder: Any) -> Tile:
    tile = Tile(f, Lanes(builder, LANES), signed=True)
    for elements in tile.vectors:
        assert elements == list(range(elements[0], elements[0] + LANES))
    return tile


def float_rows(name: str) -> Any:
    """The intrinsic (w, w_row, x, k, y, valid) for a format.

    y[i] = Σ over p of W[i, p] · x[p] for ROWS rows; those from `valid` on repeat the last and are not stored.  All but
    the counts are addresses, w_row in bytes.
    """
    f = FORMATS[name]

    @intrinsic
    def product(typing: Any, w: Any, w_row: Any, x: Any, k: Any, y: Any, valid: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            w, w_row, x, k, y, valid = values
            b, tile = builder, _tile(f, builder)
            lanes = tile.lanes
            rows = lanes.repeated(w, w_row, ROWS, valid)
            ahead = b.mul(w_row, lanes.int64(ROWS))

            def step(i: Any, totals: list[Any]) -> list[Any]:
                move = b.mul(i, lanes.int64(f.nbytes))
                here = [b.add(row, move) for row in rows]
                for row in here:
                    lanes.prefetch(b.add(row, ahead), f.nbytes)
                values, p = Values(tile, here), b.add(x, b.mul(i, lanes.int64(4 * f.elements)))
                for elements in tile.vectors:
                    a = lanes.load(p, 4 * elements[0], FLOATS)
                    totals = [b.fadd(total, b.fmul(values.of(r, elements), a)) for r, total in enumerate(totals)]
                return totals

            zero = ir.Constant(FLOATS, [0.0] * LANES)
            blocks = b.udiv(k, lanes.int64(f.elements))
            for i, total in enumerate(lanes.loop(blocks, [zero] * ROWS, step)):
                with b.if_then(b.icmp_signed("<", lanes.int64(i), valid)):
                    lanes.store(lanes.sum_floats(total), y, 4 * i)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 6), emit

    return product


def float_columns(name: str, count: int) -> Any:
    """The intrinsic (w, w_row, x, y, n) for a format: y[j] += Σ over i of x[i] · W[i, j], for `count` rows i."""
    f = FORMATS[name]

    @intrinsic
    def product(typing: Any, w: Any, w_row: Any, x: Any, y: Any, n: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            w, w_row, x, y, n = values
            b, tile = builder, _tile(f, builder)
            lanes = tile.lanes
            rows = [b.add(w, b.mul(w_row, lanes.int64(i))) for i in range(count)]
            numbers = [lanes.splat(lanes.load(x, 4 * i, F32), LANES) for i in range(count)]
            ahead = b.mul(w_row, lanes.int64(count))

            def step(i: Any, _: list[Any]) -> list[Any]:
                move = b.mul(i, lanes.int64(f.nbytes))
                here = [b.add(row, move) for row in rows]
                for row in here:
                    lanes.prefetch(b.add(row, ahead), f.nbytes)
                values, p = Values(tile, here), b.add(y, b.mul(i, lanes.int64(4 * f.elements)))
                for elements in tile.vectors:
                    total = lanes.load(p, 4 * elements[0], FLOATS)
                    for r, number in enumerate(numbers):
                        total = b.fadd(total, b.fmul(values.of(r, elements), number))
                    lanes.store(total, p, 4 * elements[0])
                return []

            lanes.loop(b.udiv(n, lanes.int64(f.elements)), [], step)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 5), emit

    return product
