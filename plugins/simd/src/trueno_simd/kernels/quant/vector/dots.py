"""Rows of blocks times one row of activations: the loops in which quantized products spend their time.

Every value of a block is scale · (u - B) with an unsigned code u, so that a group's part of the product is

    scale · (Σ u·a - B · Σ a)

in whole numbers.  In formats of 256 the groups' scales are whole numbers too, and the sum over a whole block stays one
(below 2^31 for any bytes: 128 · 255 · 127 · 256), so a block costs one conversion to float32: `vpmaddubsw` makes
pairs, `vpdpwssd` scales them and adds them up.  Σ a is known beforehand.  Blocks of 32 are scaled in float32, as many
at a time as fill a vector.

ROWS rows go together: they share the loads and the arrangement of activations, and the unpacking of scales fills
whole vectors.  Nothing is carried from one row to another, so that a row's result does not depend on its neighbours.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from trueno.backend import FORMATS, Format

from trueno_simd.kernels.quant.vector.blocks import Tile
from trueno_simd.kernels.quant.vector.lanes import F32, I16, I32, Lanes, vec
from trueno_simd.kernels.tile import VECTOR_BYTES
from trueno_simd.llvm.isa import Isa

ROWS = 4


def _abcd(lanes: Lanes, rows: Sequence[Any]) -> Any:
    """Four int32 vectors, summed to one vector of their count: lane i has a part of the sum of row i % 4."""
    b, n = lanes.builder, rows[0].type.count

    def fold(x: Any, y: Any, low: Sequence[int], high: Sequence[int]) -> Any:
        first, second = (
            [base + i % 4 + (n if i >= 4 else 0) for base in range(0, n, 4) for i in part] for part in (low, high)
        )
        return b.add(lanes.shuffle(x, first, y), lanes.shuffle(x, second, y))

    pairs = [fold(x, y, (0, 4, 1, 5), (2, 6, 3, 7)) for x, y in zip(rows[::2], rows[1::2], strict=True)]
    return fold(pairs[0], pairs[1], (0, 1, 4, 5), (2, 3, 6, 7))


def _abcd_of_rows(lanes: Lanes, sums: Any, count: int) -> Any:
    """One vector that has the parts of each row side by side, summed likewise to `count` lanes."""
    each = sums.type.count // ROWS
    if each < count // ROWS:
        raise NotImplementedError("fewer parts than lanes")
    total = None
    for start in range(0, each, count // ROWS):
        order = [row * each + start + i for i in range(count // ROWS) for row in range(ROWS)]
        part = lanes.shuffle(sums, order)
        total = part if total is None else lanes.builder.add(total, part)
    return total


class Product:
    """What the loops of both kinds of blocks share."""

    def __init__(self, f: Format, builder: Any, width: int, isa: Isa | None = None) -> None:
        self.f, self.lanes, self.b = f, Lanes(builder, width, isa), builder
        unsigned = Tile(f, self.lanes, signed=False)
        self.tile = unsigned if self.lanes.fours or unsigned.largest <= 127 else Tile(f, self.lanes, signed=True)
        self.ints = vec(I32, min(width, len(self.tile.vectors[0])) // 4)  # of the sums of codes
        self.zero = ir.Constant(self.ints, [0] * self.ints.count)

    def dot(self, total: Any, pairs: Sequence[tuple[Any, Any]]) -> Any:
        """int32 total + Σ u·a, each four lanes."""
        lanes, b = self.lanes, self.b
        if lanes.fours:
            for u, a in pairs:
                total = lanes.dot4(total, u, a)
            return total
        multiply = lanes.madd8_signed if self.tile.signed else lanes.madd8
        largest, words, added = 128 if self.tile.signed else self.tile.largest, None, 0
        for u, a in pairs:
            part = multiply(u, a)
            added += 1
            words = part if words is None else b.add(words, part)
            if (added + 1) * 2 * largest * 127 > 32767:
                total = lanes.add_madd16(total, words, lanes.fill(words.type, 1))
                words, added = None, 0
        return total if words is None else lanes.add_madd16(total, words, lanes.fill(words.type, 1))


class Super(Product):
    """A block of 256: whole-number scales."""

    def step(self, rows: Sequence[Any], codes: Any, d: Any, sums: Any, total: Any) -> Any:
        """total + the block's products, float32 [abcd …]; rows, codes, d, sums are the addresses of this block."""
        b, lanes, tile, f = self.b, self.lanes, self.tile, self.f
        header, start = tile.headers(rows)
        scales = tile.group_scales(header, start)
        factor, offset = tile.factors(rows, header, start)
        running = [self.zero] * ROWS
        for elements in tile.vectors:
            a = lanes.gather(codes, elements, tile.elements)
            for r, row in enumerate(rows):
                running[r] = self._scaled(running[r], tile.codes(row, elements), a, scales, r, elements)
        whole = _abcd(lanes, running)
        count = whole.type.count
        if tile.bias:  # in whole numbers and not lane by lane, for what is taken off may be all there is
            whole = b.sub(whole, self._times_sums(scales, sums, tile.bias, count))
            while count > ROWS:
                count //= 2
                whole = b.add(lanes.shuffle(whole, range(count)), lanes.shuffle(whole, range(count, 2 * count)))
        value = b.fmul(lanes.floats(whole), lanes.repeat(factor, count // ROWS))
        if offset is not None:
            mins = lanes.floats(self._times_sums(tile.words(header, start, f.mins), sums, 1, count))
            value = b.fsub(value, b.fmul(mins, lanes.repeat(offset, count // ROWS)))
        scale = lanes.splat(lanes.load(d, 0, F32), count)
        return b.fadd(total, b.fmul(value, scale))

    def _scaled(self, total: Any, u: Any, a: Any, scales: Any, r: int, elements: Sequence[int]) -> Any:
        lanes, b, f = self.lanes, self.b, self.f
        first = [r * f.groups + e // f.group for e in elements]
        if not lanes.fours or self.tile.largest <= 127:
            multiply = lanes.madd8_signed if self.tile.signed else lanes.madd8
            return lanes.add_madd16(total, multiply(u, a), lanes.shuffle(scales, first[::2]))
        wide = lanes.shuffle(lanes.widened(scales, I32), first[::4])
        return b.add(total, b.mul(lanes.dot4(self.zero, u, a), wide))

    def _times_sums(self, words: Any, sums: Any, times: int, count: int) -> Any:
        """times · Σ of each group's scale or min times its activations' sum, int32 [abcd …]."""
        lanes, b = self.lanes, self.b
        totals = lanes.load(sums, 0, vec(I16, 16))
        if self.f.groups == 8:
            totals = b.add(lanes.shuffle(totals, range(0, 16, 2)), lanes.shuffle(totals, range(1, 16, 2)))
        products = _abcd_of_rows(lanes, lanes.madd16(words, lanes.repeat(totals, ROWS)), count)
        return b.mul(products, lanes.fill(products.type, times)) if times != 1 else products


class Plain(Product):
    """Blocks of 32, each with its own scale: as many as fill a vector."""

    def step(self, rows: Sequence[Any], codes: Any, d: Any, totals: Sequence[Any]) -> list[Any]:
        """totals[row] + the tile's products, float32; lane i belongs to block i · blocks // lanes."""
        b, lanes, tile, f = self.b, self.lanes, self.tile, self.f
        count = self.ints.count
        activations = [lanes.gather(codes, elements, tile.elements) for elements in tile.vectors]
        begin = self.zero
        if tile.bias:
            splat = lanes.fill(activations[0].type, tile.bias)
            begin = b.sub(begin, self.dot(begin, [(splat, a) for a in activations]))
        each = [i * tile.blocks // count for i in range(count)]
        scale = lanes.shuffle(lanes.load(d, 0, vec(F32, tile.blocks)), each)
        ones = lanes.fill(activations[0].type, 1)
        sums = b.fmul(lanes.floats(self.dot(self.zero, [(ones, a) for a in activations])), scale) if f.m else None
        results = []
        for row, total in zip(rows, totals, strict=True):
            pairs = [(tile.codes(row, elements), a) for elements, a in zip(tile.vectors, activations, strict=True)]
            # the activations' scale first: it is a float16, and mxfp4's may be close to the largest number
            value = b.fmul(lanes.floats(self.dot(begin, pairs)), scale)
            total = b.fadd(total, b.fmul(value, tile.spread(row, f.d, count)))
            if sums is not None:
                total = b.fadd(total, b.fmul(sums, tile.spread(row, f.m, count)))
            results.append(total)
        return results


def quantized_rows(name: str, width: int = VECTOR_BYTES, isa: Isa | None = None) -> Any:
    """The intrinsic (w, w_row, codes, d, sums, k, y, valid) for a format.

    y[i] = Σ over p of W[i, p] · a[p] for ROWS rows; those from `valid` on repeat the last and are not stored.  All but
    the counts are addresses, w_row in bytes; codes, d, sums are as `activations.quantized` writes them.
    """
    f = FORMATS[name]

    @intrinsic
    def product(typing: Any, w: Any, w_row: Any, codes: Any, d: Any, sums: Any, k: Any, y: Any, valid: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            w, w_row, codes, d, sums, k, y, valid = values
            b = builder
            at = Lanes(b)
            rows = at.repeated(w, w_row, ROWS, valid)
            ahead = b.mul(w_row, at.int64(ROWS))

            def places(tile: Tile, i: Any, start: Any) -> Any:
                """Addresses of the i-th tile after block `start`: of each row's, of codes, d and sums."""
                block = b.add(b.mul(i, at.int64(tile.blocks)), start)
                move = b.mul(block, at.int64(f.nbytes))
                for row in rows:
                    at.prefetch(b.add(b.add(row, ahead), move), tile.size)
                p = b.mul(block, at.int64(f.elements))
                return (
                    [b.add(row, move) for row in rows],
                    b.add(codes, p),
                    b.add(d, b.mul(block, at.int64(4))),
                    b.add(sums, b.lshr(p, at.int64(3))),
                )

            blocks = b.udiv(k, at.int64(f.elements))
            if f.group:
                product = Super(f, b, width, isa)

                def step(i: Any, running: list[Any]) -> list[Any]:
                    here, c, s, t = places(product.tile, i, at.int64(0))
                    return [product.step(here, c, s, t, running[0])]

                count = ROWS if product.tile.bias else product.ints.count
                zero = ir.Constant(vec(F32, count), [0.0] * count)
                total = product.lanes.loop(blocks, [zero], step)[0]
                lanes = product.lanes
                totals = [lanes.shuffle(total, range(i, total.type.count, ROWS)) for i in range(ROWS)]
                totals = [lanes.sum_floats(x) for x in totals]
            else:
                totals = _plain(f, b, width, isa, places, blocks)
            for i, value in enumerate(totals):
                with b.if_then(b.icmp_signed("<", at.int64(i), valid)):
                    at.store(value, y, 4 * i)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 8), emit

    return product


def _plain(f: Format, b: Any, width: int, isa: Isa | None, places: Any, blocks: Any) -> list[Any]:
    """Whole tiles, then single blocks."""
    results: list[Any] = []
    done = ir.Constant(blocks.type, 0)
    products = [Plain(f, b, size, isa) for size in (width, 16)]
    for product in products if products[0].tile.blocks > 1 else products[:1]:
        count, wide = product.ints.count, product.tile.blocks
        whole = b.udiv(b.sub(blocks, done), ir.Constant(blocks.type, wide))

        def step(i: Any, running: list[Any], product: Any = product, done: Any = done) -> list[Any]:
            here, c, s, _ = places(product.tile, i, done)
            return product.step(here, c, s, running)

        zero = ir.Constant(vec(F32, count), [0.0] * count)
        totals = product.lanes.loop(whole, [zero] * ROWS, step)
        sums = [product.lanes.sum_floats(x) for x in totals]
        results = [b.fadd(x, y) for x, y in zip(results, sums, strict=True)] if results else sums
        done = b.add(done, b.mul(whole, ir.Constant(blocks.type, wide)))
    return results
