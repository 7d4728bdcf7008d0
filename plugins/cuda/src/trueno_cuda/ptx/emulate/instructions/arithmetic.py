"""add, sub, mul, mad, fma, div, rem, min, max, abs, neg, sad, the carries, dp4a and dp2a, in every type.

Integers wrap; floats are rounded once, in the mode that the instruction names.
"""

from collections.abc import Callable

import numpy as np

from trueno_cuda.ptx.emulate import floats
from trueno_cuda.ptx.emulate.compile import Compiler, Fetch, Step
from trueno_cuda.ptx.emulate.opcodes import opcode
from trueno_cuda.ptx.syntax.tree import Instruction
from trueno_cuda.ptx.syntax.types import B32, S32, TYPES, Array, Type

Function = Callable[..., Array]
FLOATS = ("3 RND? ftz? sat? f32", "3 RND? f64", "3 rn? ftz? sat? f16|f16x2", "3 rn? bf16|bf16x2")
BINARY: dict[str, Function] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}


def mode_of(ins: Instruction) -> str:
    return next((m for m in ins.mods if m in floats.MODES), "rn")


def halves(function: Function, kind: Type) -> Function:
    """A function of one 16-bit type applied to both halves of a packed pair."""
    half = np.dtype(np.float16) if kind.name == "f16x2" else np.dtype(np.uint16 if kind.name != "s16x2" else np.int16)

    def both(*packed: Array) -> Array:
        n = max(p.size for p in packed)
        parts = [np.broadcast_to(p, n) if p.size != n else p for p in packed]
        pairs = [np.ascontiguousarray(p).view(np.uint16).view(half) for p in parts]
        return np.ascontiguousarray(function(*pairs)).view(np.uint16).view(np.uint32)

    return both


def half_of(kind: Type) -> Type:
    """The element type of a packed pair; any other type itself."""
    return TYPES[kind.name[:-2]] if kind.name.endswith("16x2") else kind


def with_modifiers(ins: Instruction, kind: Type, function: Function) -> Function:
    """Add .ftz and .sat (of f32) and .relu to a float function."""
    ftz, sat, relu = "ftz" in ins.mods, "sat" in ins.mods, "relu" in ins.mods
    name = half_of(kind).name
    if not (ftz or sat or relu) or (ftz and name == "f64"):
        return function

    def clean(x: Array) -> Array:
        if name == "f32":
            return floats.flush(x)
        if name == "f16":
            return np.where(np.abs(x) < np.float16(2.0**-14), np.copysign(np.float16(0), x), x)
        return x

    def wrapped(*args: Array) -> Array:
        if ftz:
            args = tuple(clean(a) for a in args)
        r = function(*args)
        if ftz:
            r = clean(r)
        if not (sat or relu):
            return r
        value = floats.decode(r, half_of(kind))
        if sat:  # NaN becomes +0
            fixed = np.where(value > 0, np.minimum(value, 1), 0)
        else:  # NaN stays NaN
            fixed = np.where(np.isnan(value), np.nan, np.maximum(value, 0))
        return floats.encode(fixed.astype(np.float64), half_of(kind)).astype(r.dtype)

    return wrapped


def float_step(c: Compiler, ins: Instruction, kind: Type, function: Function, sources: list[Fetch]) -> Step:
    """A float function, of one value or of a packed pair."""
    function = with_modifiers(ins, kind, function)
    if kind.name.endswith("16x2"):
        function = halves(function, kind)
    return c.value(ins, kind, function, *sources)


def exact_binary(op: str, a: Array, b: Array) -> Array:
    """The operation on short floats as a float64 rounded to odd."""
    x, y = np.broadcast_arrays(a.astype(np.float64), b.astype(np.float64))
    if op == "sub":
        op, y = "add", -y
    r: Array = BINARY[op](x, y)
    if op == "mul":
        return r  # 24 + 24 bits fit
    return floats.to_odd(r, np.where(np.isfinite(r), floats.remainder_sign(op, r, x, y), 0))


def float_binary(op: str, kind: Type, mode: str) -> Function:
    """add, sub, mul or div of one float type in one rounding mode."""
    ufunc = BINARY[op]
    if kind.name in ("f32", "f64") and mode == "rn":
        return ufunc
    if kind.name == "f64":

        def directed(a: Array, b: Array) -> Array:
            a, b = np.broadcast_arrays(a, -b if op == "sub" else b)
            name = "add" if op == "sub" else op
            r = BINARY[name](a, b)
            return floats.direct(r, np.where(np.isfinite(r), floats.remainder_sign(name, r, a, b), 0), mode)

        return directed
    if kind.name == "f16" and mode == "rn":
        return lambda a, b: ufunc(a.astype(np.float32), b.astype(np.float32)).astype(np.float16)

    def narrow(a: Array, b: Array) -> Array:
        return floats.encode(exact_binary(op, floats.decode(a, kind), floats.decode(b, kind)), kind, mode)

    return narrow


@opcode("add sub", "3 INT|u16x2|s16x2", "3 sat s32", *FLOATS, flops=1)
def add(c: Compiler, ins: Instruction) -> Step:
    kind = c.type(ins)
    sources = c.sources(ins, kind)
    if kind.kind == "f":
        return float_step(c, ins, kind, float_binary(ins.opcode, half_of(kind), mode_of(ins)), sources)
    ufunc: Function = np.add if ins.opcode == "add" else np.subtract
    if kind.name.endswith("16x2"):
        return c.value(ins, kind, halves(ufunc, kind), *sources)
    if "sat" in ins.mods:
        return c.value(ins, kind, lambda a, b: clamp(ufunc(a.astype(np.int64), b.astype(np.int64)), kind), *sources)
    return c.value(ins, kind, ufunc, *sources)


def clamp(x: Array, kind: Type) -> Array:
    info = np.iinfo(kind.dtype)
    return np.clip(x, info.min, info.max).astype(kind.dtype)


def wide(kind: Type) -> Type:
    return TYPES[f"{kind.kind}{kind.bits * 2}"]


def high(kind: Type) -> Function:
    """The upper half of a product."""
    if kind.bits < 64:
        twice = wide(kind).dtype
        return lambda a, b: ((a.astype(twice) * b.astype(twice)) >> twice.type(kind.bits)).astype(kind.dtype)

    def product(a: Array, b: Array) -> Array:
        x, y = a.view(np.uint64), b.view(np.uint64)
        low = np.uint64(0xFFFF_FFFF)
        s = np.uint64(32)
        p = (x & low) * (y & low)
        q = (x >> s) * (y & low) + (p >> s)
        t = (x & low) * (y >> s) + (q & low)
        r = (x >> s) * (y >> s) + (q >> s) + (t >> s)
        if kind.kind == "s":
            r = r - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
        return np.asarray(r.view(kind.dtype))

    return product


def product(ins: Instruction, kind: Type) -> tuple[Function, Type]:
    """mul's three forms: low half, high half, both."""
    if "wide" in ins.mods:
        twice = wide(kind)
        return lambda a, b: a.astype(twice.dtype) * b.astype(twice.dtype), twice
    return (high(kind), kind) if "hi" in ins.mods else (np.multiply, kind)


@opcode("mul", "3 lo|hi INT", "3 wide u16|u32|s16|s32", *FLOATS, flops=1)
@opcode("mul24", "3 lo|hi u32|s32")
def mul(c: Compiler, ins: Instruction) -> Step:
    kind = c.type(ins)
    sources = c.sources(ins, kind)
    if kind.kind == "f":
        return float_step(c, ins, kind, float_binary("mul", half_of(kind), mode_of(ins)), sources)
    function, result = product(ins, kind)
    if ins.opcode == "mul24":
        function = mul24(ins, kind)
    return c.value(ins, result, function, *sources)


def mul24(ins: Instruction, kind: Type) -> Function:
    shift = 16 if "hi" in ins.mods else 0

    def run(a: Array, b: Array) -> Array:
        x, y = ((v.astype(np.int64) << 40) >> 40 if kind.kind == "s" else v.astype(np.int64) & 0xFFFFFF for v in (a, b))
        return ((x * y) >> shift).astype(kind.dtype)

    return run


@opcode("fma", "4 RND ftz? sat? f32", "4 RND f64", "4 rn ftz? sat? f16|f16x2", "4 rn ftz? relu f16|f16x2",
        "4 rn relu? bf16|bf16x2", flops=2)  # fmt: skip
@opcode("mad", "4 lo|hi INT", "4 wide u16|u32|s16|s32", "4 RND ftz? sat? f32", "4 RND f64", flops=2)
@opcode("mad24", "4 lo|hi u32|s32")
@opcode("mad mad24", "4 hi sat s32")
def fma(c: Compiler, ins: Instruction) -> Step:
    kind = c.type(ins)
    if kind.kind == "f":
        sources = c.sources(ins, kind)
        mode = mode_of(ins)
        half = half_of(kind)
        if kind.name == "f32":
            function: Function = lambda a, b, d: floats.fma32(a, b, d, mode)  # noqa: E731
        elif kind.name == "f64":
            function = lambda a, b, d: floats.fma64(a, b, d, mode)  # noqa: E731
        else:
            function = lambda a, b, d: floats.encode(  # noqa: E731
                floats.fma_narrow(floats.decode(a, half), floats.decode(b, half), floats.decode(d, half)), half, mode
            )
        return float_step(c, ins, kind, function, sources)
    times, result = product(ins, kind)
    if ins.opcode == "mad24":
        times = mul24(ins, kind)
    a, b = c.fetch(ins.operands[1], kind), c.fetch(ins.operands[2], kind)
    d = c.fetch(ins.operands[3], result)
    if "sat" in ins.mods:
        return c.value(ins, result, lambda x, y, z: clamp(times(x, y).astype(np.int64) + z, result), a, b, d)
    return c.value(ins, result, lambda x, y, z: times(x, y) + z, a, b, d)


@opcode("div", "3 INT", "3 approx|full|RND ftz? f32", "3 RND f64", flops=1)
def div(c: Compiler, ins: Instruction) -> Step:
    """Float division is rounded correctly; .approx and .full too (the hardware's may be 2 ulp off)."""
    kind = c.type(ins)
    sources = c.sources(ins, kind)
    if kind.kind == "f":
        return float_step(c, ins, kind, float_binary("div", kind, mode_of(ins)), sources)
    return c.value(ins, kind, quotient, *sources)


def quotient(a: Array, b: Array) -> Array:
    """Toward zero; by zero gives all ones, as the hardware's expansion does."""
    zero = b == 0
    safe = np.where(zero, b.dtype.type(1), b)
    q = (a - np.fmod(a, safe)) // safe
    return np.where(zero, ~b.dtype.type(0), q) if zero.any() else q


@opcode("rem", "3 INT")
def rem(c: Compiler, ins: Instruction) -> Step:
    def remainder(a: Array, b: Array) -> Array:
        zero = b == 0
        return np.where(zero, a, np.fmod(a, np.where(zero, b.dtype.type(1), b)))

    kind = c.type(ins)
    return c.value(ins, kind, remainder, *c.sources(ins, kind))


def float_extreme(op: str, nan: bool, absolute: bool, kind: Type) -> Function:
    """min or max: a number beats NaN unless .NaN; −0 is below +0."""
    ufunc = {(True, "min"): np.minimum, (True, "max"): np.maximum, (False, "min"): np.fmin, (False, "max"): np.fmax}[
        nan, op
    ]

    def one(a: Array, b: Array) -> Array:
        r = ufunc(a, b)
        tie = (a == 0) & (b == 0)
        if tie.any():
            sign = np.signbit(a) | np.signbit(b) if op == "min" else np.signbit(a) & np.signbit(b)
            r = np.where(tie, np.where(sign, r.dtype.type(-0.0), r.dtype.type(0.0)), r)
        return r

    def run(*args: Array) -> Array:
        a, b = (floats.decode(x, kind) if kind.name == "bf16" else x for x in args)
        if absolute:
            r = one(np.abs(a), np.abs(b))
            r = np.where(np.signbit(a) ^ np.signbit(b), -r, r)
        else:
            r = one(a, b)
        return floats.f32_to_bf16(r) if kind.name == "bf16" else r

    return run


@opcode("min max", "3 INT|u16x2", "3 relu? s32|s16x2", "3 ftz? NaN? f32|f16|f16x2",
        "3 ftz? NaN? xorsign abs f32|f16|f16x2", "3 NaN? bf16|bf16x2",
        "3 NaN? xorsign abs bf16|bf16x2", "3 f64", flops=1)  # fmt: skip
def extreme(c: Compiler, ins: Instruction) -> Step:
    kind = c.type(ins)
    sources = c.sources(ins, kind)
    if kind.kind == "f":
        function = float_extreme(ins.opcode, "NaN" in ins.mods, "xorsign" in ins.mods, half_of(kind))
        return float_step(c, ins, kind, function, sources)
    ufunc: Function = np.minimum if ins.opcode == "min" else np.maximum
    function = (lambda a, b: np.maximum(ufunc(a, b), a.dtype.type(0))) if "relu" in ins.mods else ufunc
    if kind.name.endswith("16x2"):
        function = halves(function, kind)
    return c.value(ins, kind, function, *sources)


@opcode("abs neg", "2 s16|s32|s64|f64|bf16|bf16x2", "2 ftz? f32|f16|f16x2")
def sign(c: Compiler, ins: Instruction) -> Step:
    """Of floats, the sign bit alone changes, of NaN too."""
    kind = c.type(ins)
    if kind.kind != "f":
        return c.value(ins, kind, np.abs if ins.opcode == "abs" else np.negative, *c.sources(ins, kind))
    raw = TYPES[f"b{kind.bits}"]
    top = 1 << (kind.bits - 1)
    if kind.name.endswith("x2"):
        top |= 1 << 15
    bit = raw.dtype.type(top)
    sources = c.sources(ins, raw)
    if ins.opcode == "neg":
        function: Function = lambda a: a ^ bit  # noqa: E731
    else:
        function = lambda a: a & ~bit  # noqa: E731
    if "ftz" in ins.mods and kind.name == "f32":
        inner = function
        function = lambda a: inner(floats.flush(a.view(np.float32)).view(np.uint32))  # noqa: E731
    return c.value(ins, raw, function, *sources)


@opcode("sad", "4 INT")
def sad(c: Compiler, ins: Instruction) -> Step:
    kind = c.type(ins)
    return c.value(ins, kind, lambda a, b, d: np.where(a > b, a - b, b - a) + d, *c.sources(ins, kind))


@opcode("dp4a", "4 u32|s32 u32|s32")
@opcode("dp2a", "4 lo|hi u32|s32 u32|s32")
def dot(c: Compiler, ins: Instruction) -> Step:
    """Four or two products of bytes, added to a 32-bit integer."""
    types = [TYPES[m] for m in ins.mods if m in TYPES]
    first = "i1" if types[0].kind == "s" else "u1"
    second = "i1" if types[1].kind == "s" else "u1"
    a, b, d = (c.fetch(o, B32) for o in ins.operands[1:4])
    result = S32 if "s" in (types[0].kind, types[1].kind) else TYPES["u32"]

    def four(x: Array, y: Array, z: Array) -> Array:
        p = np.ascontiguousarray(x).view(first).reshape(-1, 4).astype(np.int32)
        q = np.ascontiguousarray(y).view(second).reshape(-1, 4).astype(np.int32)
        return np.asarray((p * q).sum(axis=1, dtype=np.int32).view(np.uint32) + z)

    def two(x: Array, y: Array, z: Array) -> Array:
        p = np.ascontiguousarray(x).view("i2" if first == "i1" else "u2").reshape(-1, 2).astype(np.int32)
        q = np.ascontiguousarray(y).view(second).reshape(-1, 4).astype(np.int32)
        q = q[:, 2:] if "hi" in ins.mods else q[:, :2]
        return np.asarray((p * q).sum(axis=1, dtype=np.int32).view(np.uint32) + z)

    function = four if ins.opcode == "dp4a" else two
    return c.value(ins, result, lambda x, y, z: function(x, y, z).view(result.dtype), a, b, d)
