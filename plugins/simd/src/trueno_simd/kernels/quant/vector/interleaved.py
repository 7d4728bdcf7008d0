"""Dot products of interleaved rows (`trueno.formats.interleave`) with quantized activations: a lane for each row.

There is no sum across lanes and no shuffle of scales, and activations are broadcast from memory: some 25
instructions per block of 256 and row for q4_k, where plain rows take 40.  That pays where the matrix is in a cache;
from memory both layouts wait for it.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from trueno.backend import FORMATS, ROWS, Format, Pieces, interleave

from trueno_simd.kernels.quant.vector.dots import Product
from trueno_simd.kernels.quant.vector.lanes import F32, I8, I16, I32, vec

AHEAD = 16384  # bytes between what is read and what is prefetched; without, streaming takes twice as long


class _Group(Product):
    """One block of ROWS interleaved rows."""

    def __init__(self, f: Format, builder: Any) -> None:
        super().__init__(f, builder, 4 * ROWS)
        self.unit = {byte: (o, u) for o, n, u in interleave.units(f) for byte in range(o, o + n)}

    def _at(self, byte: int) -> int:
        """Where a group's block has what is `byte` of a row's, for the first row."""
        start, unit = self.unit[byte]
        return ROWS * start + (byte - start) // unit * unit * ROWS + (byte - start) % unit

    def _byte(self, address: Any, byte: int) -> Any:
        """A byte of every row, as int32."""
        return self.b.zext(self.lanes.load(address, self._at(byte), vec(I8, ROWS)), vec(I32, ROWS))

    def codes(self, address: Any, elements: Sequence[int]) -> Any:
        """Four elements of every row."""
        b, f, n = self.b, self.f, 4 * ROWS
        code = None
        for plane in f.planes:
            offsets, shifts = self.tile.places(plane, elements)
            start = f.fields[plane.field].offset
            dword, inside = divmod(offsets[0] - start, 4)
            words = self.lanes.load(address, self._at(start + 4 * dword), vec(I32, ROWS))
            if plane.run == 1:  # four neighbouring bits: a copy of them for each byte, and one bit of each is taken
                bit = shifts[0] + 8 * inside
                four = b.and_(b.lshr(words, self.lanes.fill(words.type, bit)), self.lanes.fill(words.type, 15))
                spread = b.mul(four, self.lanes.fill(words.type, 0x00204081 << plane.to))
                part = b.and_(spread, self.lanes.fill(words.type, (0x01010101 << plane.to) & 0xFFFFFFFF))
            else:
                move, mask = shifts[0] - plane.to, ((1 << plane.bits) - 1) << plane.to
                if move:
                    words = (b.lshr if move > 0 else b.shl)(words, self.lanes.fill(words.type, abs(move)))
                part = b.and_(words, self.lanes.fill(words.type, mask * 0x01010101)) if plane.bits < 8 else words
            code = part if code is None else b.or_(code, part)
        return self.tile.valued(self.lanes.bits(code, I8, n))

    def _whole(self, address: Any, pieces: Pieces, g: int, *, signed: bool = False) -> Any:
        """Group g's scale, or min, of every row."""
        b, total = self.b, None
        for piece in pieces[g]:
            byte = self._byte(address, piece.byte)
            if signed:
                return b.ashr(b.shl(byte, self.lanes.fill(byte.type, 24)), self.lanes.fill(byte.type, 24))
            part = b.lshr(byte, self.lanes.fill(byte.type, piece.shift)) if piece.shift else byte
            if piece.shift + piece.bits < 8:
                part = b.and_(part, self.lanes.fill(byte.type, (1 << piece.bits) - 1))
            part = b.shl(part, self.lanes.fill(byte.type, piece.to)) if piece.to else part
            total = part if total is None else b.or_(total, part)
        return total

    def _scale(self, address: Any, name: str) -> Any:
        """A field's float of every row."""
        offset = self._at(self.f.fields[name].offset)
        if self.f.e8m0:
            return self.lanes.powers(self.lanes.load(address, offset, vec(I8, ROWS)))
        return self.lanes.halves(self.lanes.load(address, offset, vec(I16, ROWS)))

    def _quads(self) -> list[int]:
        """Where each four elements begin, those from the same bytes one after another."""
        first, near = self.f.planes[0], min(plane.run for plane in self.f.planes if plane.run > 1)
        period = first.ways * first.run
        return sorted(range(0, self.f.elements, 4), key=lambda e: (e // period, e % near, e))

    def _sum(self, sums: Any, g: int) -> Any:
        """The sum of a group's activations, int32."""
        size = self.f.group or self.f.elements
        at = range(g * size // 16, (g + 1) * size // 16)
        parts = [self.b.sext(self.lanes.load(sums, 2 * i, I16), I32) for i in at]
        return parts[0] if len(parts) == 1 else self.b.add(*parts)

    def step(self, address: Any, codes: Any, d: Any, sums: Any, total: Any) -> Any:
        """total + the block's products, float32, a lane for each row."""
        b, lanes, f = self.b, self.lanes, self.f
        size, together = f.group or f.elements, 1 if lanes.fours else 4
        waiting: dict[int, list[Any]] = {g: [] for g in range(f.groups)}
        left = [size // 4] * f.groups
        by_scale: dict[int, Any] = {}
        whole, mins = self.zero, self.zero
        for e in self._quads():
            g = e // size
            if g not in by_scale:
                by_scale[g] = self.zero
                if self.tile.bias:
                    by_scale[g] = lanes.splat(b.mul(self._sum(sums, g), I32(-self.tile.bias)), ROWS)
            a = lanes.bits(lanes.splat(lanes.load(codes, e, I32), ROWS), I8, 4 * ROWS)
            waiting[g].append((self.codes(address, range(e, e + 4)), a))
            left[g] -= 1
            if len(waiting[g]) == together or not left[g]:
                by_scale[g] = self.dot(by_scale[g], waiting[g])
                waiting[g] = []
            if left[g]:
                continue
            if not f.scales:
                whole = by_scale[g]
                continue
            factor = self._whole(address, f.scales, g, signed=f.scale_signed)
            if f.scale_bias:
                factor = b.sub(factor, lanes.fill(factor.type, f.scale_bias))
            whole = b.add(whole, b.mul(by_scale[g], factor))
            if f.mins:
                mins = b.add(mins, b.mul(self._whole(address, f.mins, g), lanes.splat(self._sum(sums, g), ROWS)))
        scale = lanes.splat(lanes.load(d, 0, F32), ROWS)
        if f.group:  # in which order: see Super and Plain
            value = b.fmul(lanes.floats(whole), self._scale(address, f.d))
            if f.mins:
                value = b.fsub(value, b.fmul(lanes.floats(mins), self._scale(address, f.m)))
            return b.fadd(total, b.fmul(value, scale))
        total = b.fadd(total, b.fmul(b.fmul(lanes.floats(whole), scale), self._scale(address, f.d)))
        if f.m:
            scaled_sum = b.fmul(b.sitofp(self._sum(sums, 0), F32), lanes.load(d, 0, F32))
            total = b.fadd(total, b.fmul(lanes.splat(scaled_sum, ROWS), self._scale(address, f.m)))
        return total


def interleaved_rows(name: str) -> Any:
    """The intrinsic (w, codes, d, sums, k, y): ROWS products of a group at w."""
    f = FORMATS[name]

    @intrinsic
    def product(typing: Any, w: Any, codes: Any, d: Any, sums: Any, k: Any, y: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            w, codes, d, sums, k, y = values
            group = _Group(f, builder)
            lanes, b = group.lanes, builder

            def step(i: Any, running: list[Any]) -> list[Any]:
                p = b.mul(i, lanes.int64(f.elements))
                address = b.add(w, b.mul(i, lanes.int64(ROWS * f.nbytes)))
                lanes.prefetch(b.add(address, lanes.int64(AHEAD)), ROWS * f.nbytes)
                scale = b.add(d, b.mul(i, lanes.int64(4)))
                return [group.step(address, b.add(codes, p), scale, b.add(sums, b.lshr(p, lanes.int64(3))), running[0])]

            zero = ir.Constant(vec(F32, ROWS), [0.0] * ROWS)
            total = lanes.loop(b.udiv(k, lanes.int64(f.elements)), [zero], step)[0]
            lanes.store(total, y)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 6), emit

    return product
