"""Rows of a quantized matrix, decoded to a panel of AMX's tiles (`records`)."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from trueno_simd.kernels.quant.amx.records import CODES, LINE, SUMMED, Records
from trueno_simd.kernels.quant.tile.decode import QUAD, Blocks
from trueno_simd.kernels.quant.tile.layout import LANES
from trueno_simd.kernels.quant.tile.words import BYTES, I64, INTS, SHORTS, Words, ints


def every(value: int) -> Any:
    """The same 16 bits in each lane."""
    return ir.Constant(SHORTS, [value] * SHORTS.count)


def panel_decoder(records: Records) -> Any:
    """decode(rows, shift, codes, scales) -> flag: one block of LANES rows, to their lanes of a panel.

    rows: address of LANES addresses, to each of which `shift` bytes are added.  codes, scales: where the block's codes
    begin, and a flat block's scale; a nested block fills the panel at `codes`.  The flag is 1 where a scale or an
    offset is infinite: sums of codes then do not show what the sum of values would be (0 · inf).
    """
    f, layout = records.format, records.layout

    def put_products(e: Words, codes: Any, scale: Any, panel: Any, place: int) -> None:
        """Four elements, times their scale: elements 0 and 2 of each row, then 1 and 3."""
        codes = e.cast(codes, SHORTS)
        even, odd = (
            e.b.mul(e.b.sub(part, every(layout.offset)), scale)
            for part in (e.b.and_(codes, every(0xFF)), e.b.lshr(codes, every(8)))
        )
        low = e.b.or_(e.b.and_(even, every(0xFF)), e.b.shl(odd, every(8)))
        e.store(low, panel, place)
        if records.parts == 2:  # 256ths, once the lower byte counts as signed
            even, odd = (e.b.add(part, every(128)) for part in (even, odd))
            high = e.b.or_(e.b.lshr(even, every(8)), e.b.and_(odd, every(-256)))
            e.store(high, panel, place + CODES)

    def put_nested(e: Words, blocks: Blocks, panel: Any) -> Any:
        for g in range(layout.groups):
            scale = blocks.scale(g)
            if records.sign < 0:
                scale = e.b.sub(ints(0), scale)
            both = e.cast(e.b.or_(e.masked(scale, 0, 0xFFFF), e.b.shl(scale, ints(16))), SHORTS)
            for quad in range(g * layout.group // QUAD, (g + 1) * layout.group // QUAD):
                put_products(e, blocks.codes(quad), both, panel, quad * LINE)
            if records.mins:
                number = e.cast(e.floats(blocks.gathered(f.mins[g])), INTS)
                twice = e.b.or_(number, e.b.lshr(number, ints(16)))
                for i in range(g * layout.group // SUMMED, (g + 1) * layout.group // SUMMED):
                    e.store(twice, panel, records.w_mins + i * LINE)
        d, flag = blocks.d()
        e.store(e.b.fneg(d) if records.sign < 0 else d, panel, records.w_d)
        if records.mins:
            e.store(e.b.fneg(blocks.half(f.m)), panel, records.w_d + LINE)
        return flag

    def put_flat(e: Words, blocks: Blocks, panel: Any, scales: Any) -> Any:
        bias = ir.Constant(BYTES, [layout.offset] * BYTES.count)
        for quad in range(f.elements // QUAD):
            e.store(e.b.sub(e.cast(blocks.codes(quad), BYTES), bias), panel, quad * LINE)
        d, flag = blocks.d()
        e.store(d, scales, 0)
        if records.flat_m:
            e.store(blocks.half(f.m), scales, layout.groups * LINE)
        return flag

    @intrinsic
    def decode(typing: Any, rows: Any, shift: Any, codes: Any, scales: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            e, (rows, shift, codes, scales) = Words(builder), values
            blocks = Blocks(e, f, [builder.add(e.load(rows, 8 * i, I64), shift) for i in range(LANES)])
            return put_nested(e, blocks, codes) if records.nested else put_flat(e, blocks, codes, scales)

        return types.intp(*[types.intp] * 4), emit

    return decode
