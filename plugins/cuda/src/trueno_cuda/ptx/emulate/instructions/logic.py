"""Comparison, selection, bits: setp, set, selp, slct, and/or/xor/not/cnot, shifts, bfe, bfi, prmt, lop3, …"""

from collections.abc import Callable

import numpy as np

from trueno_cuda.ptx.emulate import floats
from trueno_cuda.ptx.emulate.compile import Compiler, Step, literal
from trueno_cuda.ptx.emulate.group import Group
from trueno_cuda.ptx.emulate.instructions.arithmetic import half_of
from trueno_cuda.ptx.emulate.machine import Machine
from trueno_cuda.ptx.emulate.opcodes import opcode
from trueno_cuda.ptx.syntax.errors import Refusal
from trueno_cuda.ptx.syntax.tree import Immediate, Instruction, Pair, Sink
from trueno_cuda.ptx.syntax.types import B32, F32, PRED, TYPES, U32, Array, Type

Function = Callable[..., Array]
COMPARE: dict[str, Function] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
LOGIC: dict[str, Function] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


FLOAT = "eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan"
SIGNED, UNSIGNED = "eq|ne|lt|le|gt|ge", "eq|ne|lt|le|gt|ge|lo|ls|hi|hs"
SET = "u32|s32|f32"


def compared(*forms: str) -> list[str]:
    """Forms of a comparison: alone, or joined with a predicate."""
    return [*(f"3 {form}" for form in forms), *(f"4 {form} and|or|xor" for form in forms)]


def comparison(ins: Instruction, kind: Type) -> Function:
    """The test that a setp or set names; NaN fails all but ne and the unordered ones."""
    name = next(m for m in ins.mods if m in COMPARE or m in ("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"))
    ftz = "ftz" in ins.mods
    half = half_of(kind)

    def prepare(x: Array) -> Array:
        if kind.kind == "f" and kind.name not in ("f32", "f64", "f16"):
            x = floats.decode(x, half)
        return floats.flush(x) if ftz and kind.name == "f32" else x

    def test(a: Array, b: Array) -> Array:
        a, b = prepare(a), prepare(b)
        if kind.kind != "f":
            return np.asarray(COMPARE[name](a, b))
        unordered = np.isnan(a) | np.isnan(b)
        if name == "num":
            return ~unordered
        if name == "nan":
            return unordered
        if name.endswith("u"):
            return np.asarray(COMPARE[name[:-1]](a, b)) | unordered
        return np.asarray(COMPARE[name](a, b)) & ~unordered if name == "ne" else np.asarray(COMPARE[name](a, b))

    return test


@opcode("setp", *compared(f"{FLOAT} ftz? f32|f16|f16x2", f"{FLOAT} f64|bf16|bf16x2", f"{SIGNED} s16|s32|s64",
                          f"{UNSIGNED} u16|u32|u64", "eq|ne BITS"))  # fmt: skip
def setp(c: Compiler, ins: Instruction) -> Step:
    """setp.lt.and.f32 p|q, a, b, c: p = (a < b) and c, q = not (a < b) and c."""
    kind = c.type(ins)
    if kind.name.endswith("16x2"):
        return setp_pair(c, ins, kind)
    test = comparison(ins, kind)
    a, b = c.fetch(ins.operands[1], kind), c.fetch(ins.operands[2], kind)
    target = ins.operands[0]
    first, second = (target.first, target.second) if isinstance(target, Pair) else (target, Sink())
    store, store_not = c.store(first, PRED), c.store(second, PRED)
    join = next((LOGIC[m] for m in ins.mods if m in LOGIC), None)
    other = c.fetch(ins.operands[3], PRED) if len(ins.operands) > 3 else None
    if other is None and isinstance(second, Sink):

        def plain(m: Machine, g: Group, sel: Array | None) -> None:
            store(g, test(a(m, g), b(m, g)), sel)

        return plain

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        p = test(a(m, g), b(m, g))
        q = ~p
        if other is not None and join is not None:
            o = other(m, g)
            p, q = join(p, o), join(q, o)
        store(g, p, sel)
        store_not(g, q, sel)

    return run


def setp_pair(c: Compiler, ins: Instruction, kind: Type) -> Step:
    """setp of f16x2: one predicate a half."""
    test = comparison(ins, half_of(kind))
    a, b = c.fetch(ins.operands[1], B32), c.fetch(ins.operands[2], B32)
    target = ins.operands[0]
    first, second = (target.first, target.second) if isinstance(target, Pair) else (target, Sink())
    low, high = c.store(first, PRED), c.store(second, PRED)
    half = half_of(kind).dtype
    join = next((LOGIC[m] for m in ins.mods if m in LOGIC), None)
    other = c.fetch(ins.operands[3], PRED) if join else None

    def run(m: Machine, g: Group, sel: Array | None) -> None:
        x, y = a(m, g), b(m, g)
        p = test(x.astype(np.uint16).view(half), y.astype(np.uint16).view(half))
        q = test((x >> 16).astype(np.uint16).view(half), (y >> 16).astype(np.uint16).view(half))
        if other is not None and join is not None:
            o = other(m, g)
            p, q = join(p, o), join(q, o)
        low(g, p, sel)
        high(g, q, sel)

    return run


@opcode("set", *compared(f"{FLOAT} ftz? {SET} f32|f16", f"{FLOAT} {SET} f64|bf16", f"{SIGNED} {SET} s16|s32|s64",
                         f"{UNSIGNED} {SET} u16|u32|u64", f"eq|ne {SET} BITS"))  # fmt: skip
def set_(c: Compiler, ins: Instruction) -> Step:
    """set.lt.u32.f32: all ones or zero; 1.0 or 0 where the result is a float."""
    types = [TYPES[m] for m in ins.mods if m in TYPES]
    result, kind = types[0], types[1]
    test = comparison(ins, kind)
    sources = [c.fetch(o, kind) for o in ins.operands[1:3]]
    if len(ins.operands) > 3:
        sources.append(c.fetch(ins.operands[3], PRED))
    join = next((LOGIC[m] for m in ins.mods if m in LOGIC), None)

    def run(a: Array, b: Array, p: Array | None = None) -> Array:
        hit = test(a, b)
        if p is not None and join is not None:
            hit = join(hit, p)
        if result is F32:
            return hit.astype(np.float32)
        return np.where(hit, np.uint32(0xFFFF_FFFF), np.uint32(0)).view(result.dtype)

    return c.value(ins, result, run, *sources)


@opcode("selp", "4 BITS|INT|f32|f64")
def selp(c: Compiler, ins: Instruction) -> Step:
    kind = c.type(ins)
    a, b = c.fetch(ins.operands[1], kind), c.fetch(ins.operands[2], kind)
    return c.value(ins, kind, lambda x, y, p: np.asarray(np.where(p, x, y)), a, b, c.fetch(ins.operands[3], PRED))


@opcode("slct", "4 BITS|INT|f32|f64 s32", "4 ftz? BITS|INT|f32|f64 f32")
def slct(c: Compiler, ins: Instruction) -> Step:
    kind, test = [TYPES[m] for m in ins.mods if m in TYPES]
    a, b, d = c.fetch(ins.operands[1], kind), c.fetch(ins.operands[2], kind), c.fetch(ins.operands[3], test)
    return c.value(ins, kind, lambda x, y, z: np.asarray(np.where(z >= 0, x, y)), a, b, d)


@opcode("and or xor", "3 pred|BITS")
def logic(c: Compiler, ins: Instruction) -> Step:
    kind = c.type(ins)
    return c.value(ins, kind, LOGIC[ins.opcode], *c.sources(ins, kind))


@opcode("not", "2 pred|BITS")
@opcode("cnot", "2 BITS")
def negate(c: Compiler, ins: Instruction) -> Step:
    kind = c.type(ins)
    if ins.opcode == "cnot":
        return c.value(ins, kind, lambda a: (a == 0).astype(kind.dtype), *c.sources(ins, kind))
    return c.value(ins, kind, np.invert, *c.sources(ins, kind))


@opcode("shl", "3 BITS")
@opcode("shr", "3 BITS|INT")
def shift(c: Compiler, ins: Instruction) -> Step:
    """Amounts past the width give 0, or the sign."""
    kind = c.type(ins)
    bits, dtype = kind.bits, kind.dtype
    a, b = c.fetch(ins.operands[1], kind), c.fetch(ins.operands[2], U32)
    arithmetic = ins.opcode == "shr" and kind.kind == "s"

    def run(x: Array, n: Array) -> Array:
        amount = np.minimum(n, bits - 1).astype(dtype)
        r = x << amount if ins.opcode == "shl" else x >> amount
        over = n >= bits
        return np.asarray(r if arithmetic or not over.any() else np.where(over, dtype.type(0), r))

    if isinstance(ins.operands[2], Immediate) and 0 <= literal(ins.operands[2]) < bits:
        fixed = dtype.type(literal(ins.operands[2]))
        if ins.opcode == "shl":
            return c.value(ins, kind, lambda x: x << fixed, a)
        return c.value(ins, kind, lambda x: x >> fixed, a)
    return c.value(ins, kind, run, a, b)


@opcode("shf", "4 l|r clamp|wrap b32")
def funnel(c: Compiler, ins: Instruction) -> Step:
    """shf.l and .r of the 64 bits b:a by 0 to 31 (.wrap) or to 32 (.clamp)."""
    left, wrap = "l" in ins.mods, "wrap" in ins.mods

    def run(a: Array, b: Array, n: Array) -> Array:
        amount = (n & 31 if wrap else np.minimum(n, 32)).astype(np.uint64)
        both = (b.astype(np.uint64) << np.uint64(32)) | a
        if left:
            return ((both << amount) >> np.uint64(32)).astype(np.uint32)
        return (both >> amount).astype(np.uint32)

    return c.value(ins, B32, run, *c.sources(ins, B32))


@opcode("bfe", "4 u32|u64|s32|s64")
def bfe(c: Compiler, ins: Instruction) -> Step:
    """A field of `length` bits at `position`; signed ones repeat their top bit, or the value's where they pass it."""
    kind = c.type(ins)
    bits = kind.bits
    raw = TYPES[f"u{bits}"]
    a = c.fetch(ins.operands[1], raw)
    p, n = c.fetch(ins.operands[2], U32), c.fetch(ins.operands[3], U32)

    def run(x: Array, position: Array, length: Array) -> Array:
        at, size = position & 255, length & 255
        field = np.where(at < bits, x >> np.minimum(at, bits - 1).astype(x.dtype), x.dtype.type(0))
        one = x.dtype.type(1)
        mask = np.where(size >= bits, ~x.dtype.type(0), (one << np.minimum(size, bits - 1).astype(x.dtype)) - one)
        r = field & mask
        if kind.kind == "s":
            top = np.minimum(np.maximum(at.astype(np.int64) + size - 1, 0), bits - 1).astype(x.dtype)
            negative = ((x >> top) & one).astype(bool) & (size > 0)
            inside = np.clip(bits - at.astype(np.int64), 0, size)  # bits of the field that the value has
            keep = np.where(
                inside >= bits, ~x.dtype.type(0), (one << np.minimum(inside, bits - 1).astype(x.dtype)) - one
            )
            r = np.where(negative, r | ~keep, r)
        return np.asarray(r.view(kind.dtype))

    return c.value(ins, kind, run, a, p, n)


@opcode("bfi", "5 b32|b64")
def bfi(c: Compiler, ins: Instruction) -> Step:
    """Bits of a into b."""
    kind = c.type(ins)
    bits = kind.bits
    a, b = c.fetch(ins.operands[1], kind), c.fetch(ins.operands[2], kind)
    p, n = c.fetch(ins.operands[3], U32), c.fetch(ins.operands[4], U32)

    def run(x: Array, y: Array, position: Array, length: Array) -> Array:
        at, size = (position & 255).astype(np.int64), (length & 255).astype(np.int64)
        one = x.dtype.type(1)
        full = np.where(size >= bits, ~x.dtype.type(0), (one << np.minimum(size, bits - 1).astype(x.dtype)) - one)
        shift = np.minimum(at, bits - 1).astype(x.dtype)
        mask = np.where(at < bits, full << shift, x.dtype.type(0))
        return np.asarray((y & ~mask) | ((x << shift) & mask))

    return c.value(ins, kind, run, a, b, p, n)


@opcode("bmsk", "3 clamp|wrap b32")
def bmsk(c: Compiler, ins: Instruction) -> Step:
    wrap = "wrap" in ins.mods

    def run(a: Array, b: Array) -> Array:
        at, size = (a & 31, b & 31) if wrap else (np.minimum(a, 32), np.minimum(b, 32))
        ones = (np.uint64(1) << size.astype(np.uint64)) - np.uint64(1)
        return (ones << at.astype(np.uint64)).astype(np.uint32)

    return c.value(ins, B32, run, *c.sources(ins, B32))


@opcode("brev", "2 b32|b64")
def brev(c: Compiler, ins: Instruction) -> Step:
    kind = c.type(ins)
    return c.value(ins, kind, lambda a: reverse(a, kind.bits), *c.sources(ins, kind))


def reverse(a: Array, bits: int) -> Array:
    """Swap neighbours of 1, 2, 4, … bits."""
    out = a
    step = 1
    while step < bits:
        mask = sum(((1 << step) - 1) << k for k in range(0, bits, 2 * step))
        m, s = a.dtype.type(mask), a.dtype.type(step)
        out = ((out >> s) & m) | ((out & m) << s)
        step *= 2
    return out


@opcode("clz popc", "2 b32|b64")
@opcode("bfind", "2 shiftamt? u32|u64|s32|s64")
def counting(c: Compiler, ins: Instruction) -> Step:
    kind = c.type(ins)
    bits = kind.bits
    raw = TYPES[f"u{bits}"]
    if ins.opcode == "popc":
        return c.value(ins, U32, lambda a: np.bitwise_count(a).astype(np.uint32), *c.sources(ins, raw))
    if ins.opcode == "clz":
        return c.value(ins, U32, lambda a: (bits - length(a)).astype(np.uint32), *c.sources(ins, raw))
    amount = "shiftamt" in ins.mods

    def find(a: Array) -> Array:
        x = np.where(a.view(kind.dtype) < 0, ~a, a) if kind.kind == "s" else a
        n = length(x)
        position = n.astype(np.int64) - 1
        if amount:
            position = np.where(n > 0, bits - 1 - position, -1)
        return (position & 0xFFFF_FFFF).astype(np.uint32)

    return c.value(ins, U32, find, *c.sources(ins, raw))


def length(a: Array) -> Array:
    """Bits up to the highest one."""
    x = a
    for k in (1, 2, 4, 8, 16, 32):
        if k < a.dtype.itemsize * 8:
            x = x | (x >> a.dtype.type(k))
    return np.bitwise_count(x)


@opcode("prmt", "4 f4e|b4e|rc8|ecl|ecr|rc16? b32")
def prmt(c: Compiler, ins: Instruction) -> Step:
    """Four bytes out of eight, by the nibbles of a selector; bit 3 of a nibble repeats the byte's sign."""
    mode = next((m for m in ins.mods if m in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")), "")
    table = {
        "f4e": [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]],
        "b4e": [[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]],
        "rc8": [[k] * 4 for k in range(4)],
        "ecl": [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]],
        "ecr": [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]],
        "rc16": [[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]],
    }

    def run(a: Array, b: Array, s: Array) -> Array:
        both = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32))
        out: Array = np.zeros(1, np.uint32)
        for k in range(4):
            if mode:
                index: Array = np.array([row[k] for row in table[mode]])[s & 3]
                repeat = np.zeros(1, bool)
            else:
                nibble = (s >> np.uint32(4 * k)) & 15
                index, repeat = nibble & 7, (nibble & 8) != 0
            byte = ((both >> (index.astype(np.uint64) * np.uint64(8))) & np.uint64(255)).astype(np.uint32)
            byte = np.where(repeat, np.where(byte & 128, np.uint32(255), np.uint32(0)), byte)
            out = out | (byte << np.uint32(8 * k))
        return out

    return c.value(ins, B32, run, *c.sources(ins, B32))


@opcode("lop3", "5 b32", "6 or|and b32")
def lop3(c: Compiler, ins: Instruction) -> Step:
    """Any function of three bits, by its truth table; `lop3.or d|p, …, q` also tests the result."""
    bits = literal(ins.operands[4])
    sources = [c.fetch(o, B32) for o in ins.operands[1:4]]

    def run(a: Array, b: Array, d: Array) -> Array:
        out: Array = np.zeros(1, np.uint32)
        for k in range(8):
            if bits >> k & 1:
                out = out | ((a if k & 4 else ~a) & (b if k & 2 else ~b) & (d if k & 1 else ~d))
        return out

    target = ins.operands[0]
    if len(ins.operands) == 5:
        return c.value(ins, B32, run, *sources)
    if not isinstance(target, Pair):
        raise Refusal("with a predicate, a result d|p is wanted")
    store, store_p = c.store(target.first, B32), c.store(target.second, PRED)
    other = c.fetch(ins.operands[5], PRED)
    join = LOGIC["or" if "or" in ins.mods else "and"]

    def pair(m: Machine, g: Group, sel: Array | None) -> None:
        r = run(*[s(m, g) for s in sources])
        p = join(r != 0, other(m, g))
        store(g, r, sel)
        store_p(g, p, sel)

    return pair
