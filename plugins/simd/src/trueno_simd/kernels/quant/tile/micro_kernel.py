"""The micro-kernel of products with quantized matrices: a tile of sums held in registers over a whole panel.

A tile keeps `rows` by VECTORS vectors of sums of each of two kinds: integers, within a group of elements that share
a scale, and floats above them.  Each step loads VECTORS vectors of W's codes, broadcasts `rows` words of x's and makes
their products by one instruction each (vpdpbusd: four products a lane; without it two or three instructions):

    nested   total += scale · sum(codes);   out += d_x · (d · total - dmin · sum(min · sum of x))
    flat     out += d_x · (d · sum(codes)) + m · (d_x · sum of x)

Offsets that make codes unsigned cost nothing: sums begin with -offset · (sum of x's codes), computed once for x.
A group costs each sum one conversion and one multiply-add, to eight products of four where it has 32 elements.

Measured on one Zen 5 core (AVX-512 VNNI), q4_k from L1: 740 GFLOP/s; the products alone reach 860.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from trueno_simd.kernels.quant.tile.layout import LANES, ROW, Layout
from trueno_simd.kernels.quant.tile.words import FLOATS, FUSED, I64, SHORTS, Words, ints, number
from trueno_simd.kernels.tile import VECTOR_BYTES, VECTORS

ZERO = ir.Constant(FLOATS, [0.0] * LANES)
ONES = ir.Constant(SHORTS, [1] * (2 * LANES))


def micro_kernel(layout: Layout, rows: int) -> Any:
    """multiply(panel, tile, out, groups): out[rows, COLUMNS] float32 += one panel times one tile; addresses.

    `groups` is how many of a flat panel's groups there are, the last of a row being perhaps no whole panel.
    """
    everywhere = [(r, v) for r in range(rows) for v in range(VECTORS)]

    def products(e: Words, panel: Any, x: Any) -> dict[tuple[int, int], Any]:
        """Sums over one group."""
        sums = {}
        for r, v in everywhere:
            sums[r, v] = e.broadcast(x, (layout.steps * rows + r) * 4) if layout.offset else ints(0)
        once = 1 if layout.way != "maddubs" else min(layout.steps, (2**15 - 1) // (256 * layout.most))
        for first in range(0, layout.steps, once):
            short: dict[tuple[int, int], Any] = {}
            for s in range(first, min(first + once, layout.steps)):
                w = [e.load(panel, s * ROW + v * VECTOR_BYTES) for v in range(VECTORS)]
                for r in range(rows):
                    word = e.broadcast(x, (s * rows + r) * 4)
                    for v in range(VECTORS):
                        if layout.way == "dpbusd":
                            sums[r, v] = e.dot_bytes(sums[r, v], w[v], word)
                        elif layout.wide:
                            sums[r, v] = e.dot_shorts(sums[r, v], w[v], word)
                        else:
                            pairs = e.pair_bytes(w[v], word)
                            short[r, v] = e.b.add(short[r, v], pairs) if (r, v) in short else pairs
            for at, pairs in short.items():
                sums[at] = e.dot_shorts(sums[at], pairs, ONES)
        return sums

    def scaled(e: Words, sums: Any, totals: Any, panel: Any, x: Any) -> dict[tuple[int, int], Any]:
        """`totals` with a group's sums, times their scales."""
        place = layout.steps * ROW
        scales = [e.load(panel, place + v * VECTOR_BYTES, FLOATS) for v in range(VECTORS)]
        products = {}
        if layout.nested:
            for r, v in everywhere:
                products[r, v] = e.fma(e.floats(sums[r, v]), scales[v], totals[r, v])
            return products
        m = [e.load(panel, place + ROW + v * VECTOR_BYTES, FLOATS) for v in range(VECTORS)] if layout.flat_m else []
        after = (layout.steps + (layout.offset > 0)) * rows * 4
        for r in range(rows):
            d = e.broadcast(x, after + r * 4, FLOATS)
            for v in range(VECTORS):
                products[r, v] = e.fma(e.b.fmul(e.floats(sums[r, v]), scales[v]), d, totals[r, v])
            if layout.flat_m:
                total = e.broadcast(x, after + (rows + r) * 4, FLOATS)
                for v in range(VECTORS):
                    products[r, v] = e.fma(m[v], total, products[r, v])
        return products

    def finish(e: Words, totals: Any, panel: Any, x: Any, out: Any) -> None:
        """A nested format's d, dmin and the sums that mins multiply."""
        below = {at: ints(0) for at in everywhere}
        pairs = layout.groups // 2 if layout.mins else 0
        for p in range(pairs):
            w = [e.load(panel, p * ROW + v * VECTOR_BYTES) for v in range(VECTORS)]
            for r in range(rows):
                word = e.broadcast(x, (p * rows + r) * 4)
                for v in range(VECTORS):
                    below[r, v] = e.dot_shorts(below[r, v], w[v], word)
        d = [e.load(panel, pairs * ROW + v * VECTOR_BYTES, FLOATS) for v in range(VECTORS)]
        dmin = [e.load(panel, (pairs + 1) * ROW + v * VECTOR_BYTES, FLOATS) for v in range(VECTORS)]
        for r in range(rows):
            d_x = e.broadcast(x, (pairs * rows + r) * 4, FLOATS)
            for v in range(VECTORS):
                total = e.b.fmul(totals[r, v], d[v])
                if layout.mins:
                    total = e.b.fsub(total, e.b.fmul(e.floats(below[r, v]), dmin[v], flags=FUSED),
                                     flags=FUSED)  # fmt: skip
                place = r * ROW + v * VECTOR_BYTES
                e.store(e.fma(total, d_x, e.load(out, place, FLOATS)), out, place)

    @intrinsic
    def multiply(typing: Any, panel: Any, x: Any, out: Any, groups: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            e, (panel, x, out, groups) = Words(builder), values
            if layout.nested:
                groups = number(layout.groups)
            before = builder.block
            initial = {}
            for r, v in everywhere:
                initial[r, v] = ZERO if layout.nested else e.load(out, r * ROW + v * VECTOR_BYTES, FLOATS)
            body, end = builder.append_basic_block("group"), builder.append_basic_block("group.end")
            builder.branch(body)
            builder.position_at_end(body)
            phis = {name: builder.phi(I64) for name in ("left", "panel", "x")}
            for name, start in (("left", groups), ("panel", panel), ("x", x)):
                phis[name].add_incoming(start, before)
            totals = {at: builder.phi(FLOATS) for at in everywhere}
            for at, phi in totals.items():
                phi.add_incoming(initial[at], before)
            sums = products(e, phis["panel"], phis["x"])
            new = scaled(e, sums, totals, phis["panel"], phis["x"])
            for at, phi in totals.items():
                phi.add_incoming(new[at], body)
            left = builder.sub(phis["left"], number(1))
            panel = builder.add(phis["panel"], number(layout.w_group))
            x = builder.add(phis["x"], number(layout.x_group * rows))
            for name, value in (("left", left), ("panel", panel), ("x", x)):
                phis[name].add_incoming(value, body)
            builder.cbranch(builder.icmp_signed(">", left, number(0)), body, end)
            builder.position_at_end(end)
            if layout.nested:
                finish(e, new, panel, x, out)
            else:
                for (r, v), value in new.items():
                    e.store(value, out, r * ROW + v * VECTOR_BYTES)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 4), emit

    return multiply
