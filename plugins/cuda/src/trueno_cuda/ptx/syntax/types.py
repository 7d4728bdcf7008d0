"""PTX's types: their width, kind of number, and the NumPy dtype that holds one lane's value.

A register holds bits.  Each register array has the dtype of its declaration and is viewed as the type of the
instruction that reads it, so no read copies.  Types without a NumPy dtype (bf16, packed pairs, 8-bit floats) are
held as unsigned integers and decoded by `floats`.
"""

from typing import Any, NamedTuple

import numpy as np

from trueno_cuda.ptx.syntax.errors import Refusal

Array = np.ndarray[Any, Any]


class Type(NamedTuple):
    """name: as in PTX, without the dot.  kind: u, s, f, b (bits), p (predicate).  dtype: what NumPy holds."""

    name: str
    bits: int
    kind: str
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        return self.bits // 8


def _types() -> dict[str, Type]:
    table = {"pred": Type("pred", 1, "p", np.dtype(bool))}
    for bits in (8, 16, 32, 64):
        table[f"u{bits}"] = Type(f"u{bits}", bits, "u", np.dtype(f"u{bits // 8}"))
        table[f"s{bits}"] = Type(f"s{bits}", bits, "s", np.dtype(f"i{bits // 8}"))
        table[f"b{bits}"] = Type(f"b{bits}", bits, "b", np.dtype(f"u{bits // 8}"))
    for bits in (16, 32, 64):
        table[f"f{bits}"] = Type(f"f{bits}", bits, "f", np.dtype(f"f{bits // 8}"))
    for name, bits in (("bf16", 16), ("tf32", 32), ("f16x2", 32), ("bf16x2", 32), ("u16x2", 32), ("s16x2", 32),
                       ("e4m3", 8), ("e5m2", 8), ("e4m3x2", 16), ("e5m2x2", 16)):  # fmt: skip
        table[name] = Type(name, bits, "f" if "16x2" not in name or "f" in name else name[0], np.dtype(f"u{bits // 8}"))
    return table


TYPES = _types()
U32, S32, U64, B32, B64, F32, F64, U16, PRED = (
    TYPES[name] for name in ("u32", "s32", "u64", "b32", "b64", "f32", "f64", "u16", "pred")
)


def opaque(name: str) -> Type:
    """A type that registers and variables have in texts that are only read: a texture, or 128 bits."""
    digits = name.lstrip("abcdefghijklmnopqrstuvwxyz_")
    bits = int(digits) if digits in ("8", "16", "32", "64", "128") else 64
    return Type(name, bits, "b", np.dtype(f"V{bits // 8}"))


def constant(value: int | float, type: Type) -> Array:  # noqa: A002 - PTX's word
    """One value as an array of one lane; integers wrap, float literals take the type's width.

    Raises Refusal where the literal is not of the type's kind, as ptxas does: bits alone take both.
    """
    if type.kind == "p":
        return np.array([bool(value)])
    if isinstance(value, float) and type.kind in "fb" and type.bits in (32, 64):
        with np.errstate(over="ignore"):
            return np.array([value], f"f{type.bytes}").view(type.dtype)
    if isinstance(value, float) or type.kind == "f":
        raise Refusal(f"the literal {value} where .{type.name} is wanted")
    return np.array([value & ((1 << type.bits) - 1)], f"u{type.bytes}").view(type.dtype)
