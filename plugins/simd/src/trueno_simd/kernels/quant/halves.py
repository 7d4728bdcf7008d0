"""float16 in compiled code: as bits, and rounded; by an instruction where the target has one, else in integers.

LLVM would call a runtime function where the target lacks it (SSE2, AVX), which Numba does not link.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from trueno_simd.llvm.isa import current
from trueno_simd.llvm.jit import exact

HALF = current().has("f16c") or current().has("neon")
INFINITE = np.int32(0x7F800000)
_I16, _I32 = ir.IntType(16), ir.IntType(32)


@intrinsic
def float_bits(_: Any, x: Any) -> Any:
    """A float32's bits as int32."""
    return types.int32(types.float32), lambda context, builder, sig, values: builder.bitcast(values[0], _I32)


@intrinsic
def bits_float(_: Any, x: Any) -> Any:
    """The float32 of these bits."""
    return types.float32(types.int32), lambda context, builder, sig, values: builder.bitcast(values[0], ir.FloatType())


@intrinsic
def _narrow(_: Any, x: Any) -> Any:
    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        return builder.zext(builder.bitcast(builder.fptrunc(values[0], ir.HalfType()), _I16), _I32)

    return types.int32(types.float32), emit


@intrinsic
def _widen(_: Any, b: Any) -> Any:
    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        half = builder.bitcast(builder.trunc(values[0], _I16), ir.HalfType())
        return builder.fpext(half, ir.FloatType())

    return types.float32(types.int32), emit


@exact
def half_bits(x):
    """The float16 nearest to a float32 (ties to even), as 16 bits in an int32; NaN is 0x7E00 with the sign."""
    if HALF:
        return _narrow(x)
    b = types.int64(float_bits(x))
    sign, b = (b >> 16) & 0x8000, b & 0x7FFFFFFF
    if b >= 0x47800000:  # 2^16 and more
        return types.int32(sign | (0x7E00 if b > 0x7F800000 else 0x7C00))
    if b < 0x38800000:  # subnormal: the sum's last bit is worth 2^-24
        return types.int32(sign | (float_bits(bits_float(types.int32(b)) + np.float32(0.5)) - 0x3F000000))
    return types.int32(sign | ((b + 0xFFF + ((b >> 13) & 1) - (112 << 23)) >> 13))


@exact
def half_float(h):
    """The float32 of a float16's 16 bits."""
    if HALF:
        return _widen(h)
    h = types.int64(h)
    sign, b = (h & 0x8000) << 16, h & 0x7FFF
    if b < 0x400:
        b = types.int64(float_bits(np.float32(b) * np.float32(2.0**-24)))
    else:
        b = (b << 13) + ((224 if b >= 0x7C00 else 112) << 23)
    return bits_float(types.int32(sign | b))


@exact
def through_half(x):
    """A float32 rounded to float16 and back."""
    return half_float(half_bits(x))
