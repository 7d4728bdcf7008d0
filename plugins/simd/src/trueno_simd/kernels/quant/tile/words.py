"""The vector instructions of the tiled product, as methods that emit LLVM IR; addresses are integers in bytes."""

from typing import Any

from llvmlite import ir

from trueno_simd.kernels import tile
from trueno_simd.kernels.quant.tile.layout import AVX2, HALF, LANES, SHUFFLE, VNNI, X86
from trueno_simd.kernels.tile import VECTOR_BYTES

I8, I16, I32, I64 = (ir.IntType(n) for n in (8, 16, 32, 64))
FLOAT = ir.FloatType()
INTS, FLOATS = ir.VectorType(I32, LANES), ir.VectorType(FLOAT, LANES)
SHORTS, BYTES = ir.VectorType(I16, 2 * LANES), ir.VectorType(I8, 4 * LANES)
FUSED = ("contract",)
INFINITE, MAGNITUDE = 0x7F800000, 0x7FFFFFFF


def number(value: int) -> Any:
    return ir.Constant(I64, value)


def ints(value: int) -> Any:
    """The same int32 in each lane."""
    value &= 0xFFFFFFFF
    return ir.Constant(INTS, [value - (1 << 32) if value >> 31 else value] * LANES)


class Words:
    """Emits into one builder."""

    def __init__(self, builder: Any) -> None:
        self.b = builder

    def load(self, address: Any, offset: int, kind: Any = INTS) -> Any:
        place = self.b.add(address, number(offset)) if offset else address
        return self.b.load(tile.at(self.b, place, kind), align=1)

    def store(self, value: Any, address: Any, offset: int) -> None:
        place = self.b.add(address, number(offset)) if offset else address
        self.b.store(value, tile.at(self.b, place, value.type), align=1)

    def broadcast(self, address: Any, offset: int, kind: Any = INTS) -> Any:
        """The word there, in each lane."""
        return tile.splat(self.b, self.load(address, offset, kind.element), kind)

    def shuffle(self, a: Any, c: Any, lanes: list[int]) -> Any:
        return self.b.shuffle_vector(a, c, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))

    def joined(self, parts: list[Any]) -> Any:
        """Vectors of one size, one after another."""
        while len(parts) > 1:
            width = 2 * parts[0].type.count
            parts = [self.shuffle(a, c, list(range(width))) for a, c in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    def pieces(self, a: Any, size: int) -> list[Any]:
        """A vector cut into vectors of `size` bytes."""
        count = size * 8 // a.type.element.width
        return [self.shuffle(a, a, list(range(i, i + count))) for i in range(0, a.type.count, count)]

    def cast(self, a: Any, kind: Any) -> Any:
        return self.b.bitcast(a, kind)

    def fma(self, a: Any, c: Any, d: Any) -> Any:
        """a · c + d, fused where that is cheap."""
        return self.b.fadd(self.b.fmul(a, c, flags=FUSED), d, flags=FUSED)

    def floats(self, a: Any) -> Any:
        return self.b.sitofp(a, FLOATS)

    # ---- products of codes, four bytes or two shorts a lane

    def dot_bytes(self, total: Any, w: Any, x: Any) -> Any:
        """total + the sum of four products, w unsigned and x signed bytes."""
        args = [total, self.cast(w, BYTES), self.cast(x, BYTES)]
        return tile.call(self.b, f"llvm.x86.avx512.vpdpbusd.{VECTOR_BYTES * 8}", INTS, args)

    def pair_bytes(self, w: Any, x: Any) -> Any:
        """Sums of two products, in 16 bits: w unsigned, x signed."""
        name = {64: "llvm.x86.avx512.pmaddubs.w.512", 32: "llvm.x86.avx2.pmadd.ub.sw"}[VECTOR_BYTES]
        return tile.call(self.b, name, SHORTS, [self.cast(w, BYTES), self.cast(x, BYTES)])

    def pair_shorts(self, w: Any, x: Any) -> Any:
        """Sums of two products, in 32 bits."""
        w, x = self.cast(w, SHORTS), self.cast(x, SHORTS)
        if not X86:  # by shifts: the low half, sign and all, then the high one
            w, x = self.cast(w, INTS), self.cast(x, INTS)
            half = ints(16)
            low = self.b.mul(*(self.b.ashr(self.b.shl(a, half), half) for a in (w, x)))
            return self.b.add(low, self.b.mul(self.b.ashr(w, half), self.b.ashr(x, half)))
        size = VECTOR_BYTES if AVX2 else 16
        name = {64: "llvm.x86.avx512.pmaddw.d.512", 32: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.sse2.pmadd.wd"}[size]
        to = ir.VectorType(I32, size // 4)
        pairs = zip(self.pieces(w, size), self.pieces(x, size), strict=True) if size < VECTOR_BYTES else [(w, x)]
        return self.joined([tile.call(self.b, name, to, [a, c]) for a, c in pairs])

    def dot_shorts(self, total: Any, w: Any, x: Any) -> Any:
        """total + the sum of two products."""
        if VNNI:
            args = [total, self.cast(w, SHORTS), self.cast(x, SHORTS)]
            return tile.call(self.b, f"llvm.x86.avx512.vpdpwssd.{VECTOR_BYTES * 8}", INTS, args)
        return self.b.add(total, self.pair_shorts(w, x))

    # ---- decoding

    def masked(self, a: Any, shift: int, mask: int, to: int = 0) -> Any:
        """((a >> shift) & mask) << to; nothing of `mask` may fall off."""
        net = shift - to
        if net > 0:
            a = self.b.lshr(a, ints(net))
        elif net < 0:
            a = self.b.shl(a, ints(-net))
        return self.b.and_(a, ints(mask << to))

    def half(self, a: Any) -> Any:
        """The float16 in the low bits of each lane, as float32; the bits above are zero."""
        if HALF:
            shorts = self.b.trunc(a, ir.VectorType(I16, LANES))
            return self.b.fpext(self.cast(shorts, ir.VectorType(ir.HalfType(), LANES)), FLOATS)
        magnitude = self.b.shl(self.b.and_(a, ints(0x7FFF)), ints(13))
        scaled = self.b.fmul(self.cast(magnitude, FLOATS), ir.Constant(FLOATS, [2.0**112] * LANES))
        special = self.b.icmp_unsigned(">=", magnitude, ints(0x0F800000))  # infinities and NaN
        bits = self.b.select(special, self.b.or_(magnitude, ints(INFINITE)), self.cast(scaled, INTS))
        sign = self.b.shl(self.b.and_(a, ints(0x8000)), ints(16))
        return self.cast(self.b.or_(bits, sign), FLOATS)

    def lookup(self, codes: Any, table: list[int]) -> Any:
        """Each byte, 0 … 15, replaced by the table's."""
        if SHUFFLE:
            size = VECTOR_BYTES if AVX2 else 16
            name = {64: "avx512.pshuf.b.512", 32: "avx2.pshuf.b", 16: "ssse3.pshuf.b.128"}[size]
            kind = ir.VectorType(I8, size)
            values = ir.Constant(kind, [v - 256 if v > 127 else v for v in table] * (size // 16))
            codes = self.cast(codes, BYTES)
            parts = self.pieces(codes, size) if size < VECTOR_BYTES else [codes]
            results = [tile.call(self.b, f"llvm.x86.{name}", kind, [values, part]) for part in parts]
            return self.cast(self.joined(results), INTS)
        level: list[Any] = [ints(v * 0x01010101) for v in table]
        for bit in range(4):  # choose between neighbours by one bit of the code after another
            chosen = self.b.mul(self.masked(codes, bit, 0x01010101), ints(255))
            level = [
                self.b.xor(a, self.b.and_(self.b.xor(a, c), chosen))
                for a, c in zip(level[::2], level[1::2], strict=True)
            ]
        return level[0]

    def any_infinite(self, values: list[Any]) -> Any:
        """1 if a lane of these floats is infinite, else 0."""
        infinite = None
        for value in values:
            here = self.b.icmp_unsigned("==", self.b.and_(self.cast(value, INTS), ints(MAGNITUDE)), ints(INFINITE))
            infinite = here if infinite is None else self.b.or_(infinite, here)
        assert infinite is not None
        return self.b.zext(tile.call(self.b, f"llvm.vector.reduce.or.v{LANES}i1", ir.IntType(1), [infinite]), I64)
