"""Loads, stores and copies between addresses, for the LZ4 kernels: no alignment, little-endian numbers.

Every copy of a fixed size reads all its bytes before it writes one.  "Wild" copies write whole steps and so go on
behind the end of what they copy; each takes the limits up to which it may.  Nothing here checks an address.
"""

import platform
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from trueno_simd.kernels.tile import at as pointer
from trueno_simd.kernels.tile import call
from trueno_simd.llvm.isa import current
from trueno_simd.llvm.jit import inner
from trueno_simd.llvm.vectors import Vector, write

STEP = 16  # bytes of the vector that overlapping copies repeat
_I1, _I8, _I32, _I64 = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64)
_BYTES = ir.VectorType(_I8, STEP)
_X86 = platform.machine().lower() in ("x86_64", "amd64")
SHUFFLES = current().has("ssse3") if _X86 else current().has("neon")
"""Whether one instruction picks 16 bytes of a register by their positions."""


def _loader(size: int) -> Any:
    """A function address -> the number of `size` bytes there, as int64 (8 bytes: with the sign that they give)."""
    kind = ir.IntType(8 * size)

    @intrinsic
    def load(_: Any, address: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            value = builder.load(pointer(builder, values[0], kind), align=1)
            return value if size == 8 else builder.zext(value, _I64)

        return types.intp(types.intp), emit

    return load


def _storer(size: int) -> Any:
    """A function (address, number) that writes the number's low `size` bytes."""
    kind = ir.IntType(8 * size)

    @intrinsic
    def store(_: Any, address: Any, value: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            builder.store(builder.trunc(values[1], kind), pointer(builder, values[0], kind), align=1)
            return context.get_dummy_value()

        return types.void(types.intp, types.intp), emit

    return store


def _copier(size: int) -> Any:
    """A function (target, source) that copies `size` bytes, all of them read first."""
    kind = ir.IntType(8 * size) if size <= 8 else ir.VectorType(_I8, size)

    @intrinsic
    def copy(_: Any, target: Any, source: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            value = builder.load(pointer(builder, values[1], kind), align=1)
            builder.store(value, pointer(builder, values[0], kind), align=1)
            return context.get_dummy_value()

        return types.void(types.intp, types.intp), emit

    return copy


load1, load2, load4, load8 = map(_loader, (1, 2, 4, 8))
store1, store2 = map(_storer, (1, 2))
copy2, copy4, copy8, copy16, copy32 = map(_copier, (2, 4, 8, 16, 32))


@intrinsic
def equal_bytes(_: Any, difference: Any) -> Any:
    """How many of the first bytes are 0 in a number that is not."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        zeros = call(builder, "llvm.cttz.i64", _I64, [values[0], ir.Constant(_I1, 1)])
        return builder.lshr(zeros, ir.Constant(_I64, 3))

    return types.intp(types.intp), emit


@intrinsic
def same32(_: Any, a: Any, b: Any) -> Any:
    """Whether 32 bytes at two addresses are equal."""
    kind = ir.VectorType(_I8, 32)

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        left, right = (builder.load(pointer(builder, value, kind), align=1) for value in values)
        unequal = builder.bitcast(builder.icmp_unsigned("!=", left, right), _I32)
        return builder.icmp_unsigned("==", unequal, ir.Constant(_I32, 0))

    return types.boolean(types.intp, types.intp), emit


# ---- overlapping copies: a match may begin less than a step before its copy, and then repeats what lies between


def _constant(module: Any, name: str, kind: Any, values: list[int]) -> Any:
    """The address of a table in the kernel's own constants."""
    array = ir.Constant(ir.ArrayType(kind, len(values)), values)
    return cgutils.global_constant(module, name, array)


@intrinsic
def repeated(_: Any, source: Any, period: Any) -> Any:
    """The `period` bytes at an address again and again: 16 bytes.  It reads 16; 1 ≤ period ≤ 16.  Needs SHUFFLES."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        source, period = values
        positions = [lane % max(p, 1) for p in range(STEP + 1) for lane in range(STEP)]
        table = builder.ptrtoint(_constant(builder.module, "trueno_lz4_positions", _I8, positions), _I64)
        place = builder.add(table, builder.mul(period, ir.Constant(_I64, STEP)))
        chosen = builder.load(pointer(builder, place, _BYTES), align=1)
        data = builder.load(pointer(builder, source, _BYTES), align=1)
        name = "llvm.x86.ssse3.pshuf.b.128" if _X86 else "llvm.aarch64.neon.tbl1.v16i8"
        return call(builder, name, _BYTES, [data, chosen])

    return Vector(types.uint8, STEP)(types.intp, types.intp), emit


@intrinsic
def whole_periods(_: Any, period: Any) -> Any:
    """The bytes of all whole periods in 16; 1 ≤ period ≤ 16."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        lengths = [STEP - STEP % max(p, 1) for p in range(STEP + 1)]
        table = builder.ptrtoint(_constant(builder.module, "trueno_lz4_periods", _I8, lengths), _I64)
        length = builder.load(pointer(builder, builder.add(table, values[0]), _I8), align=1)
        return builder.zext(length, _I64)

    return types.intp(types.intp), emit


def _shuffled(at, period, end, limit):  # type: ignore[no-untyped-def]
    pattern, step = repeated(at - period, period), whole_periods(period)
    while at < end and at + STEP <= limit:
        write(at, pattern)
        at += step
    return at


def _doubled(at, period, end, limit):  # type: ignore[no-untyped-def]
    distance = period
    while at < end and at + STEP <= limit:
        copy16(at, at - distance)
        if distance < STEP:  # `distance` bytes are right now, and twice as many precede the next
            at += distance
            distance *= 2
        else:
            at += STEP
    return at


_repeat = inner(_shuffled if SHUFFLES else _doubled)


@inner
def copy_match(at, offset, end, limit):  # type: ignore[no-untyped-def]
    """Write from `at` to `end` what begins `offset` bytes before: perhaps bytes that it writes itself.

    1 ≤ offset, `offset` bytes precede `at`, and end ≤ limit: nothing is read or written from there on.  What follows
    `end` may be overwritten.
    """
    if offset >= STEP:
        while at < end and at + 2 * STEP <= limit:
            copy16(at, at - offset)
            copy16(at + STEP, at + STEP - offset)
            at += 2 * STEP
        while at < end and at + STEP <= limit:
            copy16(at, at - offset)
            at += STEP
    elif at + STEP <= limit:
        at = _repeat(at, offset, end, limit)
    while at < end:
        store1(at, load1(at - offset))
        at += 1


# ---- copies between two arrays


@inner
def copy_exactly(target, source, count):  # type: ignore[no-untyped-def]
    """Copy `count` ≥ 0 bytes and touch no other; for few."""
    if count >= 16:
        last = count - 16
        k = 0
        while k < last:
            copy16(target + k, source + k)
            k += 16
        copy16(target + last, source + last)
    elif count >= 8:
        copy8(target, source)
        copy8(target + count - 8, source + count - 8)
    elif count >= 4:
        copy4(target, source)
        copy4(target + count - 4, source + count - 4)
    elif count > 0:
        first, middle, last = load1(source), load1(source + count // 2), load1(source + count - 1)
        store1(target, first)
        store1(target + count // 2, middle)
        store1(target + count - 1, last)


@inner
def copy_wildly(target, target_end, source, source_end, count):  # type: ignore[no-untyped-def]
    """Copy `count` ≥ 0 bytes, and perhaps up to 31 more where neither array ends before."""
    if target + count + 32 <= target_end and source + count + 32 <= source_end:
        k = 0
        while k < count:
            copy32(target + k, source + k)
            k += 32
    else:
        copy_exactly(target, source, count)


@inner
def agreeing(a, b, end):  # type: ignore[no-untyped-def]
    """How many bytes from `a` on equal those from `b` on, up to `end` of the first; b ≤ a."""
    start = a
    while a + 8 <= end:
        difference = load8(a) ^ load8(b)
        if difference != 0:
            return a - start + equal_bytes(difference)
        a += 8
        b += 8
        while a + 32 <= end and same32(a, b):
            a += 32
            b += 32
    while a < end and load1(a) == load1(b):
        a += 1
        b += 1
    return a - start
