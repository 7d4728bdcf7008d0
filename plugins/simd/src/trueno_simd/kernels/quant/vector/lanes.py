"""Emitting LLVM IR about bytes, 16-bit words and int32 lanes: what decoding blocks and multiplying codes take.

Vectors here have the number of lanes that the algorithm needs, up to four registers' worth; LLVM splits or pads them to
the registers of the target.  Instructions are named in one place only, the multiply-adds: u8 times i8 in pairs
(`vpmaddubsw`), i16 in pairs (`vpmaddwd`, `vpdpwssd`) and u8 times i8 in fours (`vpdpbusd`); without them the same sums
are built from plain multiplications.  All of them are exact here: the bounds are stated where they are used.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from llvmlite import ir

from trueno_simd.kernels.tile import VECTOR_BYTES
from trueno_simd.llvm.isa import Isa, current
from trueno_simd.llvm.vectors import call, splat, suffix

I8, I16, I32, I64, F32 = (*(ir.IntType(n) for n in (8, 16, 32, 64)), ir.FloatType())
ZERO = -1  # in a shuffle's list: a lane of zeros


def vec(kind: Any, count: int) -> Any:
    return ir.VectorType(kind, count)


class Lanes:
    """Emits into `builder`; `width` is the number of codes (bytes) that one vector of codes holds."""

    def __init__(self, builder: Any, width: int = VECTOR_BYTES, isa: Isa | None = None) -> None:
        self.builder, self.width, self.isa = builder, width, isa or current()
        self._vnni = self.isa.has("avxvnni") or (self.isa.level == "avx512" and self.isa.has("avx512vnni"))
        self._ssse3 = self.isa.level in ("avx", "avx2", "avx512")  # which is all of SSE4 too
        self._loaded: dict[Any, Any] = {}

    # ---- constants, addresses, memory

    def int64(self, value: int) -> Any:
        return ir.Constant(I64, value)

    def fill(self, kind: Any, value: Any) -> Any:
        """A vector of one constant, or of a list of them."""
        values = list(value) if isinstance(value, list | tuple) else [value] * kind.count
        return ir.Constant(kind, values)

    def load(self, address: Any, offset: int, kind: Any) -> Any:
        """The value `offset` bytes from an address, in any space.  Loads of one block are emitted once."""
        key = (address, offset, str(kind))
        if key not in self._loaded:
            place = self.builder.add(address, self.int64(offset)) if offset else address
            pointer = self.builder.inttoptr(place, kind.as_pointer())
            self._loaded[key] = self.builder.load(pointer, align=1)
        return self._loaded[key]

    def forget(self) -> None:
        """Loads are not shared beyond here: another basic block begins."""
        self._loaded.clear()

    def store(self, value: Any, address: Any, offset: int = 0) -> None:
        place = self.builder.add(address, self.int64(offset)) if offset else address
        self.builder.store(value, self.builder.inttoptr(place, value.type.as_pointer()), align=1)

    def prefetch(self, address: Any, size: int) -> None:
        """Prefetch from an address; nothing happens if it is invalid."""
        for line in range(0, size, 64):
            pointer = self.builder.inttoptr(self.builder.add(address, self.int64(line)), I8.as_pointer())
            call(self.builder, "llvm.prefetch.p0", ir.VoidType(), [pointer, I32(0), I32(3), I32(1)])

    def repeated(self, base: Any, pitch: Any, count: int, valid: Any) -> list[Any]:
        """The addresses of `count` rows; those from `valid` on are the last valid one's."""
        b, last, rows = self.builder, self.builder.sub(valid, self.int64(1)), [base]
        for i in range(1, count):
            row = b.select(b.icmp_signed("<", self.int64(i), last), self.int64(i), last)
            rows.append(b.add(base, b.mul(pitch, row)))
        return rows

    # ---- moving lanes

    def shuffle(self, a: Any, lanes: Sequence[int], b: Any = None) -> Any:
        """Lanes of a, then of b; ZERO gives a zero, and so takes the place of b."""
        if b is None:
            zero = ir.Constant(a.type, [0] * a.type.count)
            b = zero if ZERO in lanes else ir.Constant(a.type, ir.Undefined)
            lanes = [a.type.count if i == ZERO else i for i in lanes]
        return self.builder.shuffle_vector(a, b, ir.Constant(vec(I32, len(lanes)), list(lanes)))

    def concat(self, parts: Sequence[Any]) -> Any:
        """Vectors of one type, a power of two of them, end to end."""
        parts = list(parts)
        while len(parts) > 1:
            n = parts[0].type.count
            parts = [self.shuffle(a, range(2 * n), b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    def repeat(self, a: Any, times: int) -> Any:
        return self.shuffle(a, list(range(a.type.count)) * times) if times > 1 else a

    def splat(self, value: Any, count: int) -> Any:
        return splat(self.builder, value, count)

    def scalars(self, values: Sequence[Any]) -> Any:
        """A vector of these numbers."""
        vector = ir.Constant(vec(values[0].type, len(values)), ir.Undefined)
        for i, value in enumerate(values):
            vector = self.builder.insert_element(vector, value, I32(i))
        return vector

    def gather(self, address: Any, offsets: Sequence[int], size: int) -> Any:
        """The bytes at these offsets of an object of `size` bytes, as a vector; nothing beyond the object is read."""
        offsets, n = list(offsets), len(offsets)
        low, high = min(offsets), max(offsets) + 1
        if offsets == list(range(low, high)):
            return self.load(address, low, vec(I8, n))
        for period in (16, 32):
            if n > period and n % period == 0 and offsets == offsets[:period] * (n // period):
                return self.repeat(self.gather(address, offsets[:period], size), n // period)
        half = n // 2
        if n == 64 and all(o + 1 == p for i, (o, p) in enumerate(pairwise(offsets)) if i != 31):
            return self.concat([self.load(address, offsets[i], vec(I8, half)) for i in (0, half)])
        window = max(n, self.width)
        even = all(o % 2 == 0 and p == o + 1 for o, p in zip(offsets[::2], offsets[1::2], strict=True))
        permutes = window >= 64 and (even or self.isa.has("avx512vbmi"))  # bytes, or words, from anywhere
        permutes |= window <= 16 or all(o % 16 == i % 16 for i, o in enumerate(offsets))
        if permutes and window <= size <= 2 * window:  # two loads have it all, whatever is asked for
            first, second = self.load(address, 0, vec(I8, window)), None
            if high > window:
                second = self.load(address, size - window, vec(I8, window))
            order = [o if o < window else o - size + 2 * window for o in offsets]
            return self.shuffle(first, order, second)
        if permutes and size >= window and high - low <= window:
            start = min(low, size - window)
            return self.shuffle(self.load(address, start, vec(I8, window)), [o - start for o in offsets])
        if n > 16:
            return self.concat([self.gather(address, offsets[i : i + half], size) for i in (0, half)])
        if high - low <= 16 <= size:
            start = min(low, size - 16)
            return self.shuffle(self.load(address, start, vec(I8, 16)), [o - start for o in offsets])
        return self.scalars([self.load(address, o, I8) for o in offsets])

    # ---- kinds of numbers

    def bits(self, a: Any, kind: Any, count: int) -> Any:
        return self.builder.bitcast(a, vec(kind, count))

    def widened(self, a: Any, kind: Any) -> Any:
        """Signed integers in wider lanes."""
        return self.builder.sext(a, vec(kind, a.type.count))

    def floats(self, a: Any) -> Any:
        """Signed integers as float32."""
        return self.builder.sitofp(a, vec(F32, a.type.count))

    def halves(self, words: Any) -> Any:
        """float16 in 16-bit words as float32, subnormal numbers, Inf and NaN included."""
        b, n = self.builder, words.type.count
        if self.isa.has("f16c") or self.isa.has("neon"):
            return b.fpext(b.bitcast(words, vec(ir.HalfType(), n)), vec(F32, n))
        wide = b.zext(words, vec(I32, n))
        rest = b.shl(b.and_(wide, self.fill(wide.type, 0x7FFF)), self.fill(wide.type, 13))
        sign = b.shl(b.and_(wide, self.fill(wide.type, 0x8000)), self.fill(wide.type, 16))
        power = b.fmul(b.bitcast(rest, vec(F32, n)), self.fill(vec(F32, n), 2.0**112), flags=("arcp",))
        special = b.icmp_unsigned(">=", rest, self.fill(wide.type, 0x7C00 << 13))
        exponent = b.select(special, self.fill(wide.type, 0x7F800000), self.fill(wide.type, 0))
        return b.bitcast(b.or_(b.or_(b.bitcast(power, wide.type), sign), exponent), vec(F32, n))

    def powers(self, codes: Any) -> Any:
        """2^(e - 128) of bytes e, as float32; the two smallest are subnormal."""
        b, n = self.builder, codes.type.count
        e = b.zext(codes, vec(I32, n))
        normal = b.shl(b.sub(e, self.fill(e.type, 1)), self.fill(e.type, 23))
        tiny = b.shl(self.fill(e.type, 0x00200000), b.and_(e, self.fill(e.type, 1)))
        return b.bitcast(b.select(b.icmp_unsigned("<", e, self.fill(e.type, 2)), tiny, normal), vec(F32, n))

    def lookup(self, codes: Any, table: Sequence[int]) -> Any:
        """table[code] of bytes below 16."""
        b, n = self.builder, codes.type.count
        name, part = "", n
        if self._ssse3 and n >= 16:
            part = min(n, {"avx512": 64, "avx2": 32}.get(self.isa.level, 16))
            name = {16: "llvm.x86.ssse3.pshuf.b.128", 32: "llvm.x86.avx2.pshuf.b", 64: "llvm.x86.avx512.pshuf.b.512"}[
                part
            ]
        elif self.isa.level == "neon" and n >= 16:
            part, name = 16, "llvm.aarch64.neon.tbl1.v16i8"
        if name:
            entries = self.fill(vec(I8, part), [table[i % 16] for i in range(part)])
            return self.by_parts(part, lambda c: call(b, name, c.type, [entries, c]), codes)
        chosen = self._chosen(min(n, 16), table)
        return self.by_parts(min(n, 16), lambda c: b.call(chosen, [c]), codes)

    def _chosen(self, count: int, table: Sequence[int]) -> Any:
        """A function for tables where no instruction is: a tree of choices, by a bit of the code each."""
        kind, module = vec(I8, count), self.builder.module
        name = f"lookup.{count}.{bytes(v % 256 for v in table).hex()}"
        if name in module.globals:
            return module.globals[name]
        function = ir.Function(module, ir.FunctionType(kind, [kind]), name)
        function.linkage = "internal"
        function.attributes.add("noinline")  # otherwise a kernel would contain it a hundred times
        b, codes = ir.IRBuilder(function.append_basic_block()), function.args[0]
        candidates = [self.fill(kind, value) for value in table]
        for bit in range(4):
            set_ = b.icmp_signed("!=", b.and_(codes, self.fill(kind, 1 << bit)), self.fill(kind, 0))
            candidates = [b.select(set_, y, x) for x, y in zip(candidates[::2], candidates[1::2], strict=True)]
        b.ret(candidates[0])
        return function

    def by_parts(self, count: int, function: Callable[..., Any], *operands: Any) -> Any:
        """A function of vectors of `count` bytes, on longer ones."""
        n = operands[0].type.count
        if n == count:
            return function(*operands)
        pieces = [
            [
                self.shuffle(x, range(i * x.type.count * count // n, (i + 1) * x.type.count * count // n))
                for x in operands
            ]
            for i in range(n // count)
        ]
        return self.concat([function(*piece) for piece in pieces])

    # ---- multiply-adds

    def _pairs(self, a: Any) -> Any:
        n = a.type.count
        return self.builder.add(self.shuffle(a, range(0, n, 2)), self.shuffle(a, range(1, n, 2)))

    def madd16(self, a: Any, b: Any) -> Any:
        """i16 times i16, the products of each two lanes added in an int32."""
        n = a.type.count
        part = min(n, {"avx512": 32, "avx2": 16}.get(self.isa.level, 8))
        names = {8: "llvm.x86.sse2.pmadd.wd", 16: "llvm.x86.avx2.pmadd.wd", 32: "llvm.x86.avx512.pmaddw.d.512"}
        if self.isa.level not in ("sse2", "avx", "avx2", "avx512") or n < 8:
            return self._pairs(self.builder.mul(self.widened(a, I32), self.widened(b, I32)))
        kind = vec(I32, part // 2)
        return self.by_parts(part, lambda x, y: call(self.builder, names[part], kind, [x, y]), a, b)

    def madd8(self, u: Any, a: Any) -> Any:
        """u8 times i8, the products of each two lanes added in an int16, where that is large enough."""
        b, n = self.builder, u.type.count
        if self._ssse3:
            part = min(n, {"avx512": 64, "avx2": 32}.get(self.isa.level, 16))
            name = {16: "ssse3.pmadd.ub.sw.128", 32: "avx2.pmadd.ub.sw", 64: "avx512.pmaddubs.w.512"}[part]
            kind = vec(I16, part // 2)
            return self.by_parts(part, lambda x, y: call(b, f"llvm.x86.{name}", kind, [x, y]), u, a)
        return self._madd8_plain(u, a, b.lshr, 0xFF)

    def _madd8_plain(self, u: Any, a: Any, shift: Any, mask: int) -> Any:
        b, n = self.builder, u.type.count // 2
        u, a = self.bits(u, I16, n), self.bits(a, I16, n)
        eight = self.fill(u.type, 8)
        low = b.and_(u, self.fill(u.type, mask)) if mask else b.ashr(b.shl(u, eight), eight)
        first = b.mul(low, b.ashr(b.shl(a, eight), eight))
        return b.add(first, b.mul(shift(u, eight), b.ashr(a, eight)))

    def madd8_signed(self, s: Any, a: Any) -> Any:
        """i8 times i8 likewise, a > -128."""
        b, n = self.builder, s.type.count
        if not self._ssse3:
            return self._madd8_plain(s, a, b.ashr, 0)
        if self.isa.level == "avx512":
            negative = b.icmp_signed("<", s, self.fill(s.type, 0))
            a = b.select(negative, b.sub(self.fill(a.type, 0), a), a)
            s = b.select(negative, b.sub(self.fill(s.type, 0), s), s)
            return self.madd8(s, a)
        part = 32 if self.isa.level == "avx2" and n >= 32 else 16
        name = {16: "llvm.x86.ssse3.psign.b.128", 32: "llvm.x86.avx2.psign.b"}[part]
        sign = lambda x, y: call(b, name, x.type, [x, y])  # noqa: E731
        return self.madd8(self.by_parts(part, sign, s, s), self.by_parts(part, sign, a, s))

    @property
    def fours(self) -> bool:
        """Whether there is an instruction for u8 times i8 in fours."""
        return self._vnni

    def dot4(self, total: Any, u: Any, a: Any) -> Any:
        """int32 total + u8 times i8, each four lanes; needs `fours`."""
        part = min(u.type.count, 64 if self.isa.level == "avx512" else 32)
        name = f"llvm.x86.avx512.vpdpbusd.{8 * part}"
        return self.by_parts(part, lambda x, y, z: call(self.builder, name, z.type, [z, x, y]), u, a, total)

    def add_madd16(self, total: Any, a: Any, b: Any) -> Any:
        """int32 total + `madd16`."""
        if not self._vnni or a.type.count < 8:
            return self.builder.add(total, self.madd16(a, b))
        part = min(a.type.count, 32 if self.isa.level == "avx512" else 16)
        name = f"llvm.x86.avx512.vpdpwssd.{16 * part}"
        return self.by_parts(part, lambda x, y, z: call(self.builder, name, z.type, [z, x, y]), a, b, total)

    def sum_floats(self, a: Any) -> Any:
        """The sum of all lanes."""
        function = f"llvm.vector.reduce.fadd.{suffix(a.type)}"
        kind = ir.FunctionType(F32, [F32, a.type])
        fold = self.builder.module.globals.get(function) or ir.Function(self.builder.module, kind, function)
        return self.builder.call(fold, [ir.Constant(F32, -0.0), a], fastmath=("reassoc", "nsz", "contract"))

    # ---- loops

    def loop(self, count: Any, carried: Sequence[Any], body: Callable[[Any, list[Any]], Sequence[Any]]) -> list[Any]:
        """body(i, values) -> values, for i below count; the values after the last."""
        b = self.builder
        before = b.block
        head, inside, end = (b.append_basic_block(f"blocks.{part}") for part in ("head", "body", "end"))
        b.branch(head)
        b.position_at_end(head)
        i = b.phi(I64)
        i.add_incoming(self.int64(0), before)
        phis = []
        for value in carried:
            phi = b.phi(value.type)
            phi.add_incoming(value, before)
            phis.append(phi)
        b.cbranch(b.icmp_signed("<", i, count), inside, end)
        b.position_at_end(inside)
        self.forget()
        for phi, value in zip(phis, body(i, phis), strict=True):
            phi.add_incoming(value, b.block)
        i.add_incoming(b.add(i, self.int64(1)), b.block)
        b.branch(head)
        b.position_at_end(end)
        self.forget()
        return phis
