"""dequantize w[m,b] bytes -> y[m,k] float32, every format, from the table's planes, groups and pieces.

A block is straight-line vector code: 16 elements at a time, their bits are taken from each plane (the same shift for
all 16, or, where a byte holds neighbours, one bit mask), joined, turned into values, widened and multiplied by the
group's scale; formats with an offset add it.  Each product is exact, so the bits are ggml's whatever the order.

Floor: the bytes of w read and 4 k m written; some 6 instructions for each 16 elements.  Measured on
one Zen 5 core, 262 144 elements in cache: 15 to 25 G elements/s with AVX-512, which is 60 to 100 GB/s written and 2.4
(q8_0, q4_k) to 20 times (iq4_nl, mxfp4) ggml's row functions; with AVX2 10 to 20 G; with SSE2 2 to 9, 0.8 to 5 times.
"""

from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from trueno.backend import FORMATS, INTERLEAVED, Call, Format, Kernel, Piece, Plane, Rates

from trueno_simd.kernels.quant import groups, printed
from trueno_simd.kernels.quant.halves import HALF
from trueno_simd.kernels.quant.quantize.store import whole_vectors
from trueno_simd.kernels.table import BLOCKS, KERNELS
from trueno_simd.llvm import isa
from trueno_simd.llvm.isa import current
from trueno_simd.llvm.vectors import call, splat

STEP = 16  # elements of a vector: every run and group of the table is a multiple of it, save runs of 1
X86 = current().level in isa.X86
EXTENDS = current().has("sse4.1") or not X86  # signed bytes widen by one instruction; else they are shifted up by 128
_I8, _I16, _I32, _I64, _F32 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
_BYTES, _INTS, _FLOATS = ir.VectorType(_I8, STEP), ir.VectorType(_I32, STEP), ir.VectorType(_F32, STEP)


def _every(kind: Any, value: int) -> Any:
    return ir.Constant(kind, [value] * kind.count)


class _Block:
    """One block's code: what is loaded once is kept."""

    def __init__(self, builder: Any, f: Format, source: Any) -> None:
        whole_vectors(f)
        self.builder, self.f, self.source = builder, f, source
        self.bytes: dict[int, Any] = {}
        self.vectors: dict[int, Any] = {}

    def load(self, offset: int, kind: Any) -> Any:
        place = self.builder.add(self.source, ir.Constant(_I64, offset))
        return self.builder.load(self.builder.inttoptr(place, kind.as_pointer()), align=1)

    # ---- scales

    def byte(self, offset: int) -> Any:
        if offset not in self.bytes:
            self.bytes[offset] = self.builder.zext(self.load(offset, _I8), _I32)
        return self.bytes[offset]

    def pieces(self, parts: tuple[Piece, ...]) -> Any:
        """Bits of several bytes put together, as int32."""
        builder, code = self.builder, None
        for p in parts:
            part = self.byte(p.byte)
            part = builder.lshr(part, _I32(p.shift)) if p.shift else part
            part = builder.and_(part, _I32((1 << p.bits) - 1)) if p.shift + p.bits < 8 else part
            part = builder.shl(part, _I32(p.to)) if p.to else part
            code = part if code is None else builder.or_(code, part)
        return code

    def number(self, name: str) -> Any:
        """A field of one float16, float32 or (the scale of e8m0 formats) power of two, as float."""
        builder, field = self.builder, self.f.fields[name]
        if self.f.e8m0 and name == self.f.d:
            e = self.byte(field.offset)
            small = builder.shl(_I32(0x00200000), e)
            bits = builder.shl(builder.sub(e, _I32(1)), _I32(23))
            return builder.bitcast(builder.select(builder.icmp_unsigned("<", e, _I32(2)), small, bits), _F32)
        if field.dtype == "<f4":
            return self.load(field.offset, _F32)
        assert field.dtype == "<f2"
        if HALF:
            return builder.fpext(builder.bitcast(self.load(field.offset, _I16), ir.HalfType()), _F32)
        h = builder.zext(self.load(field.offset, _I16), _I32)
        sign = builder.shl(builder.and_(h, _I32(0x8000)), _I32(16))
        rest = builder.and_(h, _I32(0x7FFF))
        above = builder.select(builder.icmp_unsigned("<", rest, _I32(0x7C00)), _I32(112 << 23), _I32(224 << 23))
        normal = builder.add(builder.shl(rest, _I32(13)), above)
        small = builder.fmul(builder.sitofp(rest, _F32), ir.Constant(_F32, 2.0**-24))
        small = builder.bitcast(small, _I32)
        bits = builder.select(builder.icmp_unsigned("<", rest, _I32(0x400)), small, normal)
        return builder.bitcast(builder.or_(sign, bits), _F32)

    def spread(self, name: str) -> Any:
        """`number` in each lane.  A float16 is spread before it is widened: into the low lane of a register alone it
        would be loaded by an instruction that waits for what the register held, which is the block before.
        """
        field, builder = self.f.fields[name], self.builder
        if not HALF or field.dtype != "<f2":
            return splat(builder, self.number(name), STEP)
        halves = splat(builder, self.load(field.offset, _I16), STEP)
        return builder.fpext(builder.bitcast(halves, ir.VectorType(ir.HalfType(), STEP)), _FLOATS)

    def scale(self, g: int) -> Any:
        """The whole number that scales group g, as float."""
        f, builder = self.f, self.builder
        value = self.pieces(f.scales[g])
        if f.scale_signed:
            value = builder.sext(builder.trunc(value, _I8), _I32)
        elif f.scale_bias:
            value = builder.sub(value, _I32(f.scale_bias))
        return builder.sitofp(value, _F32)

    # ---- codes

    def part(self, plane: Plane, e: int) -> Any:
        """`plane`'s bits of the codes of elements e … e + 15, at their place in the code."""
        builder, start = self.builder, self.f.fields[plane.field].offset
        if plane.run == 1:
            mask = builder.bitcast(self.load(start + e // 8, _I16), ir.VectorType(ir.IntType(1), STEP))
            return builder.select(mask, _every(_BYTES, 1 << plane.to), _every(_BYTES, 0))
        chunk, rest = divmod(e, plane.run * plane.ways)
        way, r = divmod(rest, plane.run)
        offset = start + chunk * plane.run + r
        if offset not in self.vectors:
            self.vectors[offset] = self.load(offset, _BYTES)
        part, shift = self.vectors[offset], way * plane.bits
        # one shift to where the bits belong, then one mask
        if shift > plane.to:
            part = builder.lshr(part, _every(_BYTES, shift - plane.to))
        elif shift < plane.to:
            part = builder.shl(part, _every(_BYTES, plane.to - shift))
        kept = ((1 << plane.bits) - 1) << plane.to
        return part if kept == 255 else builder.and_(part, _every(_BYTES, kept))

    def values(self, e: int) -> Any:
        """What the codes of elements e … e + 15 stand for, as float."""
        f, builder = self.f, self.builder
        code = self.part(f.planes[0], e)
        for plane in f.planes[1:]:
            code = builder.or_(code, self.part(plane, e))
        bias, signed = f.bias, f.signed
        if f.values:
            code, signed = looked_up(builder, code, f.values), True
        if signed and not EXTENDS:
            code, bias, signed = builder.xor(code, _every(_BYTES, 128)), 128, False
        elif bias and EXTENDS:
            code, bias, signed = builder.sub(code, _every(_BYTES, bias)), 0, True
        wide = builder.sitofp((builder.sext if signed else builder.zext)(code, _INTS), _FLOATS)
        return builder.fsub(wide, _every(_FLOATS, bias)) if bias else wide

    def emit(self, target: Any) -> None:
        f, builder = self.f, self.builder
        d = self.number(f.d) if f.scales else self.spread(f.d)
        m = self.number(f.m) if f.mins else self.spread(f.m) if f.m else None
        group = f.group or f.elements
        for e in range(0, f.elements, STEP):
            g = e // group
            if e % group == 0:
                factor = splat(builder, builder.fmul(d, self.scale(g)), STEP) if f.scales else d
                added = m
                if f.mins:
                    least = builder.sitofp(self.pieces(f.mins[g]), _F32)
                    added = splat(builder, builder.fneg(builder.fmul(m, least)), STEP)
            y = builder.fmul(self.values(e), factor)
            y = builder.fadd(y, added) if f.m else y
            place = builder.add(target, ir.Constant(_I64, 4 * e))
            builder.store(y, builder.inttoptr(place, _FLOATS.as_pointer()), align=4)


def looked_up(builder: Any, code: Any, values: tuple[int, ...]) -> Any:
    """values[code] of 16 codes below 16, as bytes."""
    table = ir.Constant(_BYTES, [v % 256 for v in values])
    if X86 and current().has("ssse3"):
        return call(builder, "llvm.x86.ssse3.pshuf.b.128", _BYTES, [table, code])
    if current().has("neon"):
        return call(builder, "llvm.aarch64.neon.tbl1.v16i8", _BYTES, [table, code])
    chosen = _every(_BYTES, values[0] % 256)
    for i, value in enumerate(values[1:], 1):
        chosen = builder.select(
            builder.icmp_unsigned("==", code, _every(_BYTES, i)), _every(_BYTES, value % 256), chosen
        )
    return chosen


@cache
def decoder(format: str) -> Any:
    """For compiled code: (source, target), addresses of one block and of its elements."""
    f = FORMATS[format]

    @intrinsic
    def decode(_: Any, source: Any, target: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            _Block(builder, f, values[0]).emit(values[1])
            return context.get_dummy_value()

        return types.void(types.intp, types.intp), emit

    return decode


TEMPLATE = '''"""dequantize: rows of <format> blocks to float32."""

from numba import types

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.llvm.jit import exact_outer
from trueno_simd.kernels.operands import overlaps, reader, source, target
from trueno_simd.kernels.quant.dequantize import decoder
from trueno_simd.kernels.quant.printed import CHUNK
from trueno_simd.kernels.quant.regions import share_out
from trueno_simd.kernels.tile import address
from trueno_simd.llvm.calls import address_of, pack

JOB = reader(4)
decode = decoder("<format>")
SHARE = max(1, CHUNK // <nbytes_and_floats>)  # blocks of a chunk


@exact_outer
def blocks(args, index):
    w, out, count, share = JOB(args)
    for i in range(index * share, min((index + 1) * share, count)):
        decode(w + i * <nbytes>, out + i * <elements> * 4)
    return 0


@kernel_entry(types.intp(source(types.uint8, 2), target(types.float32, 2)))
def kernel(w, out):
    m, b = w.shape
    if b % <nbytes> or out.shape[0] != m or out.shape[1] != b // <nbytes> * <elements> or overlaps(out, w):
        return -1
    count = w.size // <nbytes>
    if count:
        args = pack((address(w), address(out), count, SHARE))
        share_out(address_of(blocks), args, (count + SHARE - 1) // SHARE)
    return 0
'''


@KERNELS.add("dequantize", rates=Rates(0.3e-6, 1e11, 8e10), dtypes=BLOCKS)
def dequantize(device: None, call: Call) -> Kernel:
    """w[m,b] bytes -> out[m,k] float32; the parameter `format` names the blocks."""
    name = dict(call.static)["format"]
    if laid := INTERLEAVED.get(name):
        return groups.dequantize(laid, _plain(laid.plain))
    return _plain(name)


def _plain(name: str) -> Kernel:
    f = FORMATS[name]
    return printed.compiled("dequantize", TEMPLATE, f.name, nbytes_and_floats=f.nbytes + 4 * f.elements)
