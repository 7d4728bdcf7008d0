"""Conversions: `x.to(bf16)`, `x.bits(u32)`, k.pack and k.unpack."""

from trueno_cuda.ptx.core import Core
from trueno_cuda.ptx.errors import BuildError
from trueno_cuda.ptx.instructions import CONVERTIBLE
from trueno_cuda.ptx.types import (
    Type,
    bf16,
    bf16x2,
    e4m3x2,
    e5m2x2,
    f16,
    f16x2,
    f32,
    pred,
    s8x4,
    s32,
    tf32,
    u8x4,
    u16,
    u32,
)
from trueno_cuda.ptx.values import Value, Var, least_uniform, seen

ROUND_TO_INTEGER = {"rn": "rni", "rz": "rzi", "rm": "rmi", "rp": "rpi"}


class Conversions(Core):
    """Adds conversions between types."""

    def convert(self, value: Value, kind: Type, rnd: str | None = None, sat: bool = False) -> Value:
        """`value.to(kind)`."""
        source = value.type
        if kind is source:
            return self.builder.copy(value) if isinstance(value, Var) else value
        if source is pred and kind.kind in "us":
            result = self.new(kind.widened, value.uniformity)
            self.emit(f"selp.{kind.widened.word}", result.text, "1", "0", self.read(value))
            return result
        if source is f32 and kind is tf32:
            return self._convert(value, tf32, f"cvt.{rnd or 'rna'}.tf32.f32")
        if source.name not in CONVERTIBLE or kind.name not in CONVERTIBLE:
            raise BuildError(f"{value} cannot become {kind}: k.pack and k.unpack join and split, .bits() relabels")
        if bf16 in (source, kind) and f32 not in (source, kind):
            if source is f16:
                return self.convert(self.convert(value, f32), bf16, rnd, sat)  # exact, then rounded once
            raise BuildError(f"{value} does not become {kind} in one rounding; go through .to(f32)")
        if source is bf16:  # the upper half of the float32, exactly, and on every architecture
            zero, result = self.constant(u16, "0"), self.new(f32, value.uniformity)
            self.emit("mov.b32", result.text, f"{{{zero.text}, {self.read(value)}}}")
            return result
        mode = _rounding(source, kind, rnd)
        return self._convert(value, kind.widened, f"cvt{mode}{'.sat' if sat else ''}.{kind}.{source}")

    def _convert(self, value: Value, kind: Type, opcode: str) -> Value:
        result = self.new(kind, value.uniformity, value.multiple if kind.bits >= value.type.bits else 1)
        if kind.integer and value.type.integer and kind.bits >= value.type.bits:
            result.origin = "copy", (seen(value),)
        self.emit(opcode, result.text, self.read(value))
        return result

    def reinterpret(self, value: Value, kind: Type) -> Value:
        """`value.bits(kind)`."""
        if kind.bits != value.type.bits or "o" in kind.kind + value.type.kind or not kind.register:
            raise BuildError(f"{value} has {value.type.bits} bits that cannot be read as {kind}, which has {kind.bits}")
        result = self.new(kind, value.uniformity)
        self.emit(f"mov.b{kind.bits}", result.text, self.read(value))
        return result

    def pack(self, kind: Type, *lanes: Value) -> Value:
        """Lanes, lowest first, in one register.

        Two f32 are rounded to a f16x2, bf16x2 or fp8 pair, four s32 clamped to a s8x4; halves are joined unchanged.
        """
        kinds = list(dict.fromkeys(v.type for v in lanes))
        result = self.new(kind, least_uniform(*lanes))
        texts = [self.read(v) for v in lanes]
        if kind in (f16x2, bf16x2) and kinds == [f32] and len(lanes) == 2:
            self.emit(f"cvt.rn.{kind}.f32", result.text, *texts[::-1])
        elif kind in (e4m3x2, e5m2x2) and kinds == [f32] and len(lanes) == 2:
            self.emit(f"cvt.rn.satfinite.{kind}.f32", result.text, *texts[::-1])
        elif kind in (s8x4, u8x4) and kinds == [s32] and len(lanes) == 4:
            upper, narrow = self.new(kind), str(kind)[:2]
            self.emit(f"cvt.pack.sat.{narrow}.s32.b32", upper.text, texts[3], texts[2], "0")
            self.emit(f"cvt.pack.sat.{narrow}.s32.b32", result.text, texts[1], texts[0], upper.text)
        elif len(kinds) == 1 and kinds[0].bits * len(lanes) == kind.bits and kinds[0].bits >= 16 and kind.kind != "o":
            if kind.lane not in (None, kinds[0]):
                raise BuildError(f"k.pack: lanes of {kind} are {kind.lane}, not {kinds[0]}")
            self.emit(f"mov.b{kind.bits}", result.text, f"{{{', '.join(texts)}}}")
        else:
            raise BuildError(f"k.pack: {', '.join(map(repr, lanes))} do not make a {kind}")
        return result

    def unpack(self, value: Value, kind: Type | None = None) -> list[Value]:
        """Lanes of a pack, lowest first, converted to `kind` if given.

        8-bit integers become 32-bit ones, a fp8 pair f16, a u64 two u32.
        """
        text, source = self.read(value), value.type
        level = value.uniformity
        if source is bf16x2 and kind is f32:  # a bfloat16 is the upper half of its float32
            low, high = self.new(f32, level), self.new(f32, level)
            self.emit("shl.b32", low.text, text, "16")
            self.emit("and.b32", high.text, text, "0xFFFF0000")
            return [low, high]
        if source in (s8x4, u8x4):
            field = value.bits(s32 if source is s8x4 else u32)
            lanes = [self.builder.apply("bfe", field, 8 * i, 8) for i in range(4)]
        elif source in (e4m3x2, e5m2x2):
            pair = self.new(f16x2, level)
            self.emit(f"cvt.rn.f16x2.{source}", pair.text, text)
            return self.unpack(pair, kind)
        elif source.bits >= 32 and source.kind in "xu" and (source.lane is None or source.lane.bits == 16):
            half = source.lane or {32: u16, 64: u32}[source.bits]
            lanes = [self.new(half, level) for _ in range(2)]
            self.emit(f"mov.b{source.bits}", f"{{{lanes[0].text}, {lanes[1].text}}}", text)
        else:
            raise BuildError(f"k.unpack: {value} has no lanes")
        return lanes if kind is None else [self.convert(v, kind) for v in lanes]


def _rounding(source: Type, kind: Type, rnd: str | None) -> str:
    if rnd is not None and rnd not in ROUND_TO_INTEGER:
        raise BuildError(f".to({kind}): rnd={rnd!r} is not one of {', '.join(ROUND_TO_INTEGER)}")
    if source.kind == "f" and kind.integer:
        if rnd is None:
            raise BuildError(
                f"a {source} becomes {kind} only with a rounding: .to({kind}, 'rz') truncates, 'rn' rounds"
            )
        return f".{ROUND_TO_INTEGER[rnd]}"
    exact = (source.integer and kind.integer) or (source.kind == kind.kind == "f" and kind.bits >= source.bits)
    if exact:
        if rnd is not None:
            raise BuildError(f"{source} to {kind} is exact and takes no rounding")
        return ""
    return f".{rnd or 'rn'}"
