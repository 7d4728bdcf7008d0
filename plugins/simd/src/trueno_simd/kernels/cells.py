"""Rows of a cache and float32: one float an element, or q8_0 blocks, widened and rounded.

Which of the formats a row is in is a number at run time, so that one kernel is compiled for all of them.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from trueno.backend import FORMATS

from trueno_simd.kernels import tile
from trueno_simd.kernels.quant.dequantize import decoder
from trueno_simd.kernels.quant.halves import HALF, bits_float, float_bits, half_bits, half_float
from trueno_simd.kernels.quant.quantize.blocks import as_half, q8_block
from trueno_simd.llvm import vectors
from trueno_simd.llvm.jit import exact, exact_outer
from trueno_simd.llvm.vectors import Vector, splat, write

CODES = {"f32": 0, "f16": 1, "bf16": 2, "q8_0": 3}
STEP = 16
Q8 = FORMATS["q8_0"]
ELEMENTS, NBYTES = Q8.elements, Q8.nbytes
NAN_HALF = 0x7E00
_I16, _I32 = ir.IntType(16), ir.IntType(32)
_FLOATS = Vector(types.float32, STEP)
_SHORTS, _INTS, _LLVM = ir.VectorType(_I16, STEP), ir.VectorType(_I32, STEP), ir.VectorType(ir.FloatType(), STEP)
decode_block, encode_block = decoder("q8_0"), q8_block("q8_0")
read_short, read_float = vectors.number_reader(types.int16), vectors.number_reader(types.float32)


def _all(value: int) -> Any:
    return ir.Constant(_INTS, [value] * STEP)


def _widened(emit: Any) -> Any:
    """A function address -> 16 floats, which `emit` makes of 16 loaded words."""

    @intrinsic
    def widen(_: Any, place: Any) -> Any:
        def code(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            words = builder.load(builder.inttoptr(values[0], _SHORTS.as_pointer()), align=1)
            return emit(builder, words)

        return _FLOATS(types.intp), code

    return widen


def _of_half(builder: Any, words: Any) -> Any:
    if HALF:
        return builder.fpext(builder.bitcast(words, ir.VectorType(ir.HalfType(), STEP)), _LLVM)
    wide = builder.zext(words, _INTS)
    sign = builder.shl(builder.and_(wide, _all(0x8000)), _all(16))
    rest = builder.and_(wide, _all(0x7FFF))
    above = builder.select(builder.icmp_unsigned("<", rest, _all(0x7C00)), _all(112 << 23), _all(224 << 23))
    normal = builder.add(builder.shl(rest, _all(13)), above)
    unit = splat(builder, ir.Constant(ir.FloatType(), 2.0**-24), STEP)
    small = builder.bitcast(builder.fmul(builder.sitofp(rest, _LLVM), unit), _INTS)
    bits = builder.select(builder.icmp_unsigned("<", rest, _all(0x400)), small, normal)
    return builder.bitcast(builder.or_(sign, bits), _LLVM)


def _of_brain(builder: Any, words: Any) -> Any:
    return builder.bitcast(builder.shl(builder.zext(words, _INTS), _all(16)), _LLVM)


widen_half, widen_brain = _widened(_of_half), _widened(_of_brain)


def _narrowed(emit: Any) -> Any:
    """A function (target, address) that writes 16 words, which `emit` makes of 16 loaded floats."""

    @intrinsic
    def narrow(_: Any, target: Any, source: Any) -> Any:
        def code(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            floats = builder.load(builder.inttoptr(values[1], _LLVM.as_pointer()), align=1)
            builder.store(emit(builder, floats), builder.inttoptr(values[0], _SHORTS.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.intp, types.intp), code

    return narrow


def _to_half(builder: Any, floats: Any) -> Any:
    return builder.bitcast(builder.fptrunc(floats, ir.VectorType(ir.HalfType(), STEP)), _SHORTS)


def _to_brain(builder: Any, floats: Any) -> Any:
    """As `brain_bits`."""
    bits = builder.bitcast(floats, _INTS)
    odd = builder.and_(builder.lshr(bits, _all(16)), _all(1))
    nearest = builder.add(builder.add(bits, _all(0x7FFF)), odd)
    quiet = builder.or_(bits, _all(0x400000))
    words = builder.select(builder.fcmp_unordered("uno", floats, floats), quiet, nearest)
    return builder.trunc(builder.lshr(words, _all(16)), _SHORTS)


narrow_half, narrow_brain = _narrowed(_to_half), _narrowed(_to_brain)


@exact
def row_bytes(form, n):
    """Bytes of a row of n numbers; -1 for one of broken blocks."""
    if form == 0:
        return 4 * n
    if form < 3:
        return 2 * n
    return n // ELEMENTS * NBYTES if n % ELEMENTS == 0 else -1


@exact_outer
def widen_row(form, source, target, n):
    """n numbers of a cache's row as float32."""
    if form == 0:
        tile.copy(target, source, 4 * n)
    elif form == 1:
        i = 0
        while i + STEP <= n:
            write(target + 4 * i, widen_half(source + 2 * i))
            i += STEP
        while i < n:
            write(target + 4 * i, half_float(types.int32(read_short(source + 2 * i)) & 0xFFFF))
            i += 1
    elif form == 2:
        i = 0
        while i + STEP <= n:
            write(target + 4 * i, widen_brain(source + 2 * i))
            i += STEP
        while i < n:
            write(target + 4 * i, bits_float(types.int32(types.int32(read_short(source + 2 * i)) << 16)))
            i += 1
    else:
        for i in range(n // ELEMENTS):
            decode_block(source + NBYTES * i, target + 4 * ELEMENTS * i)


@exact
def brain_bits(x):
    """The bfloat16 nearest to a float32 (ties to even), as 16 bits; a NaN stays one."""
    b = types.int64(float_bits(x)) & 0xFFFFFFFF
    if x != x:
        return types.int32((b | 0x400000) >> 16)
    return types.int32((b + 0x7FFF + ((b >> 16) & 1)) >> 16)


@exact_outer
def narrow_row(form, source, target, n):
    """n float32 as a cache's row, rounded to nearest even; a q8_0 block that is not finite has the scale NaN."""
    if form == 0:
        tile.copy(target, source, 4 * n)
    elif form < 3:
        whole = n // STEP * STEP if form == 2 or HALF else 0
        for i in range(0, whole, STEP):
            if form == 2:
                narrow_brain(target + 2 * i, source + 4 * i)
            elif HALF:
                narrow_half(target + 2 * i, source + 4 * i)
        for i in range(whole, n):
            x = read_float(source + 4 * i)
            write(target + 2 * i, as_half(half_bits(x) if form == 1 else brain_bits(x)))
    else:
        for i in range(n // ELEMENTS):
            broken = False
            for j in range(ELEMENTS):
                x = read_float(source + 4 * (i * ELEMENTS + j))
                broken |= not (np.abs(x) < np.inf)
            if broken:
                tile.clear(target + i * NBYTES, NBYTES)
                write(target + i * NBYTES, as_half(types.int32(NAN_HALF)))
            else:
                encode_block(source + 4 * i * ELEMENTS, target + i * NBYTES)
