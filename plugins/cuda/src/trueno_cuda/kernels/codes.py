"""Floats as integers that are in the order of a ranking, and the weights of what is ranked."""

from trueno_cuda.ptx import Builder, Value, f32, f64, u32, u64
from trueno_cuda.rows.elementary32 import horner
from trueno_cuda.rows.elementary64 import EXP2, SHIFTER, from_words, words

NEGLIGIBLE = 80.0
"""Where an exponent of two ends: 2^-80 is 0 beside 1 by far."""


def number(k: Builder, value: Value) -> Value:
    """An element as it is compared: 16-bit floats as float32."""
    return value.to(f32) if value.type.bits == 16 else value


def code_of(k: Builder, value: Value) -> Value:
    """An f32 or f64 as an unsigned integer that ascends as numbers descend; NaN is 0, and -0 as +0."""
    kind = {32: u32, 64: u64}[value.type.bits]
    bits = value.bits(kind)
    top = 1 << kind.bits - 1
    ordered = k.select(bits >= top, bits, k.xor(bits, top - 1))
    ordered = k.select(value == 0.0, k.const(kind, top - 1), ordered)
    return k.select(value != value, k.const(kind, 0), ordered)


def value_of(k: Builder, code: Value) -> Value:
    """The number of a code, which is not a NaN's."""
    top = 1 << code.type.bits - 1
    return k.select(code >= top, code, k.xor(code, top - 1)).bits(f32 if code.type is u32 else f64)


def widened(k: Builder, value: Value) -> Value:
    """An f32 as f64, by integers, which are faster than the conversion: 0 is 2^-127, and Inf 2^128."""
    if value.type is f64:
        return value
    bits = value.bits(u32)
    high = ((k.shr(bits, 3) & 0x0FFFFFFF) + (896 << 20)) | (bits & (1 << 31))
    return from_words(k, k.shl(bits, 29), high)


def halving(k: Builder, y: Value) -> Value:
    """2^-y as f64, for a y of 0 or more, which may be infinite."""
    y = k.min(y, NEGLIGIBLE)
    t = y + SHIFTER
    f = (t - SHIFTER) - y
    low, high = words(k, k.fma(f, horner(k, f, *EXP2), 1.0))
    return from_words(k, low, high - k.shl(words(k, t)[0], 20))
