"""cvt in all its forms, cvt.pack, and cvta between address spaces."""

from collections.abc import Callable

import numpy as np

from trueno_cuda.ptx.emulate import floats
from trueno_cuda.ptx.emulate.compile import Compiler, Step
from trueno_cuda.ptx.emulate.instructions.arithmetic import clamp, mode_of
from trueno_cuda.ptx.emulate.memory import LOCAL, PARAM, SHARED
from trueno_cuda.ptx.emulate.opcodes import opcode
from trueno_cuda.ptx.syntax.tree import Instruction
from trueno_cuda.ptx.syntax.types import B32, F32, S32, TYPES, Array, Type

Function = Callable[..., Array]
INTEGER_MODES: dict[str, Callable[[Array], Array]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}


@opcode("cvt", "2 sat? BYTES BYTES", "2 RND ftz? sat? f16|bf16|f32|f64 BYTES", "2 RNI ftz? sat? BYTES f16|bf16|f32|f64",
        "2 RND|RNI? ftz? sat? relu? satfinite? f16|bf16|f32|f64 f16|bf16|f32|f64",
        "2 rn|rz|rna relu? satfinite? tf32 f32", "3 rn|rz ftz? relu? satfinite? f16x2|bf16x2 f32",
        "3 rn satfinite relu? e4m3x2|e5m2x2 f32",
        "2 rn relu? f16x2 e4m3x2|e5m2x2")  # fmt: skip
def cvt(c: Compiler, ins: Instruction) -> Step:
    types = [TYPES[m] for m in ins.mods if m in TYPES]
    result, source = types[0], types[1]
    if result.name.endswith("x2") or source.name.endswith("x2"):
        return pair(c, ins, result, source)
    a = c.fetch(ins.operands[1], source, wide=True)
    return c.value(ins, result, conversion(ins, result, source), a, extend=True)


def conversion(ins: Instruction, result: Type, source: Type) -> Function:
    mode = mode_of(ins)
    rounding = next((INTEGER_MODES[m] for m in ins.mods if m in INTEGER_MODES), None)
    sat, ftz = "sat" in ins.mods, "ftz" in ins.mods
    if source.kind == "f" and result.kind == "f":
        return float_to_float(ins, result, source, mode, rounding)
    if source.kind == "f":
        assert rounding is not None

        def to_integer(a: Array) -> Array:
            a = floats.flush(a) if ftz and source is F32 else a
            return float_to_integer(rounding(floats.decode(a, source).astype(np.float64)), result)

        return to_integer
    if result.kind == "f":
        return lambda a: integer_to_float(a, result, mode, sat)
    if sat:
        return lambda a: saturate(a, result)
    return lambda a: a.astype(result.dtype)


def saturate(a: Array, result: Type) -> Array:
    """An integer clamped to another integer type's range."""
    info = np.iinfo(result.dtype)
    low, high = max(info.min, np.iinfo(a.dtype).min), min(info.max, np.iinfo(a.dtype).max)
    return np.clip(a, a.dtype.type(low), a.dtype.type(high)).astype(result.dtype)


def float_to_integer(x: Array, result: Type) -> Array:
    """Rounded float64 to an integer type: clamped, NaN to 0."""
    info = np.iinfo(result.dtype)
    inside = (x > float(info.min)) & (x < float(info.max))
    r = np.where(inside, x, 0.0).astype(result.dtype)
    r = np.where(x >= float(info.max), info.max, r)
    return np.where(x <= float(info.min), info.min, r).astype(result.dtype)


def integer_to_float(a: Array, result: Type, mode: str, sat: bool) -> Array:
    if a.dtype.itemsize < 8:
        r = floats.encode(a.astype(np.float64), result, mode)
    else:
        high = (a >> a.dtype.type(32)).astype(np.float64) * 4294967296.0
        low = (a & a.dtype.type(0xFFFF_FFFF)).astype(np.float64)
        s, error = floats.two_sum(high, low)
        if result.bits == 64:
            r = floats.direct(s, error, mode)
        else:
            r = floats.encode(floats.to_odd(s, error), result, mode)
    return np.clip(r, 0, 1).astype(r.dtype) if sat and result.dtype.kind == "f" else r


def float_to_float(
    ins: Instruction, result: Type, source: Type, mode: str, rounding: Callable[[Array], Array] | None
) -> Function:
    sat, ftz, relu, limit = ("sat" in ins.mods, "ftz" in ins.mods, "relu" in ins.mods, "satfinite" in ins.mods)

    def run(a: Array) -> Array:
        if ftz and source is F32:
            a = floats.flush(a)
        if source.name == result.name and rounding is None:
            x = floats.decode(a, source)
            if sat:
                x = np.where(x > 0, np.minimum(x, 1), 0).astype(x.dtype)
            return floats.encode(x.astype(np.float64), result) if sat else a
        x = floats.decode(a, source)
        if rounding is not None:
            x = rounding(x)
        if relu:
            x = np.where(np.isnan(x), x, np.maximum(x, 0))
        if sat:
            x = np.where(x > 0, np.minimum(x, 1), 0)
        if result is F32 and x.dtype == np.float32:
            r: Array = x
        elif result.name == "tf32":
            r = floats.f32_to_tf32(x.astype(np.float32), mode if mode != "rn" or "rn" in ins.mods else "rna")
        elif result.name in ("e4m3", "e5m2"):
            r = floats.to_float8(x, result.name)
        else:
            if limit:
                top = 65504.0 if result.name == "f16" else 3.3895313892515355e38
                x = np.clip(x, -top, top)
            r = floats.encode(x.astype(np.float64), result, mode)
        return floats.flush(r) if ftz and result is F32 else r

    return run


def pair(c: Compiler, ins: Instruction, result: Type, source: Type) -> Step:
    """Two floats to a packed pair (the first operand is the upper half), or a pair of 8-bit floats to a pair."""
    if source.name.endswith("x2"):
        narrow, wide_ = TYPES[source.name[:-2]], TYPES[result.name[:-2]]
        one = conversion(ins, wide_, narrow)

        def widen(a: Array) -> Array:
            low, high = (a & 0xFF).astype(np.uint8), (a >> 8).astype(np.uint8)
            parts = [np.ascontiguousarray(one(v)).view(f"u{wide_.bytes}").astype(np.uint32) for v in (low, high)]
            return parts[0] | (parts[1] << np.uint32(16))

        return c.value(ins, result, widen, c.fetch(ins.operands[1], TYPES["b16"]))
    half = TYPES[result.name[:-2]]
    one = conversion(ins, half, source)
    bits = half.bits
    whole = np.dtype(f"u{result.bytes}")

    def both(a: Array, b: Array) -> Array:
        high, low = (np.ascontiguousarray(one(v)).view(f"u{half.bytes}").astype(whole) for v in (a, b))
        return np.asarray((high << whole.type(bits)) | low)

    return c.value(ins, result, both, c.fetch(ins.operands[1], source), c.fetch(ins.operands[2], source))


@opcode("cvt", "3 pack sat u16|s16 s32", "4 pack sat u8|s8 s32 b32")
def pack(c: Compiler, ins: Instruction) -> Step:
    """cvt.pack.sat: two (or with a third operand, two more) integers, saturated, side by side."""
    kind = next(TYPES[m] for m in ins.mods if m in TYPES)
    a, b = c.fetch(ins.operands[1], S32), c.fetch(ins.operands[2], S32)
    raw = np.dtype(f"u{kind.bytes}")

    def two(x: Array, y: Array) -> Array:
        high, low = (clamp(v.astype(np.int64), kind).view(raw).astype(np.uint32) for v in (x, y))
        return (high << np.uint32(kind.bits)) | low

    if len(ins.operands) == 3:
        return c.value(ins, B32, two, a, b)
    rest = c.fetch(ins.operands[3], B32)
    return c.value(ins, B32, lambda x, y, z: (z << np.uint32(2 * kind.bits)) | two(x, y), a, b, rest)


@opcode("cvta", "2 to? SPACE u64")
def cvta(c: Compiler, ins: Instruction) -> Step:
    """cvta.space: an address of a space to a generic one; cvta.to.space: back."""
    kind = c.type(ins)
    space = next(
        m.split("::")[0] for m in ins.mods if m.split("::")[0] in ("global", "shared", "local", "param", "const")
    )
    base = {"global": 0, "const": 0, "shared": SHARED, "local": LOCAL, "param": PARAM}[space]
    amount = np.uint64(base)
    if base == 0:
        return c.value(ins, kind, lambda a: a, c.fetch(ins.operands[1], kind))
    if "to" in ins.mods:
        return c.value(ins, kind, lambda a: a - amount, c.fetch(ins.operands[1], kind))
    return c.value(ins, kind, lambda a: a + amount, c.fetch(ins.operands[1], kind))
