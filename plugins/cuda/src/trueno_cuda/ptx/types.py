"""Types of values, of elements in memory and of launch parameters.

A type says how its register is declared and spelled.  PTX has no register type for bf16, tf32 and packs of small
integers, so these are declared as bits; ptxas then checks nothing, and the type here does.
Every address space has an address type of its own, so a pointer cannot change spaces.
"""

import math
import struct
from dataclasses import dataclass
from typing import Final

from trueno_cuda.ptx.errors import BuildError


@dataclass(frozen=True, slots=True, repr=False)
class Type:
    """A scalar or packed type.

    kind: u, s, f of numbers; x of packs of narrower lanes; p of predicates; o of opaque words.
    register: its PTX register type, empty for what lives in memory only.  prefix: of its registers' names.
    word: how loads, stores and moves spell it.  widened: the type that a load of it gives.
    """

    name: str
    bits: int
    kind: str
    register: str
    prefix: str
    word: str
    lane: "Type | None" = None

    @property
    def bytes(self) -> int:
        return self.bits // 8

    @property
    def lanes(self) -> int:
        return 1 if self.lane is None else self.bits // self.lane.bits

    @property
    def integer(self) -> bool:
        return self.kind in "us"

    @property
    def widened(self) -> "Type":
        return {"u8": u32, "s8": s32}.get(self.name, self)

    def __repr__(self) -> str:
        return self.name


pred = Type("pred", 1, "p", "pred", "p", "pred")
u8 = Type("u8", 8, "u", "", "", "u8")
s8 = Type("s8", 8, "s", "", "", "s8")
u16 = Type("u16", 16, "u", "u16", "us", "u16")
s16 = Type("s16", 16, "s", "s16", "ss", "s16")
u32 = Type("u32", 32, "u", "u32", "r", "u32")
s32 = Type("s32", 32, "s", "s32", "s", "s32")
u64 = Type("u64", 64, "u", "u64", "rd", "u64")
s64 = Type("s64", 64, "s", "s64", "sd", "s64")
f16 = Type("f16", 16, "f", "f16", "h", "b16")
bf16 = Type("bf16", 16, "f", "b16", "b", "b16")
f32 = Type("f32", 32, "f", "f32", "f", "f32")
f64 = Type("f64", 64, "f", "f64", "d", "f64")
e4m3 = Type("e4m3", 8, "f", "", "", "b8")
e5m2 = Type("e5m2", 8, "f", "", "", "b8")
tf32 = Type("tf32", 32, "x", "b32", "t", "b32")
f16x2 = Type("f16x2", 32, "x", "f16x2", "hx", "b32", f16)
bf16x2 = Type("bf16x2", 32, "x", "b32", "bx", "b32", bf16)
u16x2 = Type("u16x2", 32, "x", "b32", "ux", "b32", u16)
s16x2 = Type("s16x2", 32, "x", "b32", "sx", "b32", s16)
u8x4 = Type("u8x4", 32, "x", "b32", "uq", "b32", u8)
s8x4 = Type("s8x4", 32, "x", "b32", "sq", "b32", s8)
e4m3x2 = Type("e4m3x2", 16, "x", "b16", "ex", "b16", e4m3)
e5m2x2 = Type("e5m2x2", 16, "x", "b16", "gx", "b16", e5m2)
e4m3x4 = Type("e4m3x4", 32, "x", "b32", "eq", "b32", e4m3)
e5m2x4 = Type("e5m2x4", 32, "x", "b32", "gq", "b32", e5m2)

global_address = Type("global address", 64, "o", "u64", "global", "u64")
local_address = Type("local address", 64, "o", "u64", "local", "u64")
shared_address = Type("shared address", 32, "o", "u32", "shared", "u32")
cluster_address = Type("address in another block's shared memory", 32, "o", "u32", "remote", "u32")
tensor_address = Type("tensor map", 64, "o", "u64", "map", "u64")
descriptor = Type("matrix descriptor", 64, "o", "b64", "desc", "b64")
cache_policy = Type("cache policy", 64, "o", "b64", "policy", "b64")
mbarrier_word = Type("mbarrier", 64, "o", "b64", "state", "b64")

TYPES: Final = {
    t.name: t
    for t in (
        pred, u8, s8, u16, s16, u32, s32, u64, s64, f16, bf16, f32, f64, e4m3, e5m2, tf32, f16x2, bf16x2,
        u16x2, s16x2, u8x4, s8x4, e4m3x2, e5m2x2, e4m3x4, e5m2x4,
    )
}  # fmt: skip
PACKS: Final = {t.lane.name: t for t in TYPES.values() if t.lane is not None and t.bits == 32}
"""The 32-bit pack of each narrow type."""


def checked(kind: object, where: str, example: str) -> Type:
    """`kind`, which must be a type; BuildError with the one that a name or a type of NumPy's stands for."""
    if isinstance(kind, Type):
        return kind
    name = kind if isinstance(kind, str) else getattr(kind, "__name__", getattr(kind, "name", None))
    match = None
    if isinstance(name, str):
        letter = {"float": "f", "int": "s", "uint": "u"}.get(name.rstrip("0123456789"), "")
        spelled = {"bfloat16": "bf16", "bool": "pred", "float": "f32", "int": "s32"}.get(name)
        sized = letter + name.lstrip("abcdefghijklmnopqrstuvwxyz")
        match = next((n for n in (name, spelled, sized) if n in TYPES), None)
    hint = f"say {match}, from trueno_cuda.ptx import {match}" if match else f"the type comes first: {example}"
    shown = name if isinstance(kind, type) else repr(kind)
    raise BuildError(f"{where}: {shown} is not a type of the builder; {hint}")


@dataclass(frozen=True, slots=True)
class ptr:
    """A launch parameter: the address of elements in global memory."""

    element: Type

    def __post_init__(self) -> None:
        if not isinstance(self.element, Type) or self.element.kind not in "usfx":
            raise BuildError(f"ptr({self.element!r}): the element must be a type such as f32 or bf16")

    def __repr__(self) -> str:
        return f"ptr({self.element})"


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A launch parameter: the 128 bytes that the driver's cuTensorMapEncodeTiled fills, passed by value."""

    def __repr__(self) -> str:
        return "tensor_map"


tensor_map: Final = TensorMap()


def literal(kind: Type, number: float) -> str:
    """A Python number as an immediate of `kind`, or as the bits that a move puts into a register of it.

    An integer must be in range; a float is rounded to nearest, and must not overflow to infinity.
    """
    if isinstance(number, bool):
        raise BuildError(f"{number} is a Python bool, where a {kind} is wanted")
    if kind.integer:
        if not isinstance(number, int):
            raise BuildError(f"{number!r} is not an integer, but {kind} needs one; write int(...) or use a float type")
        low, high = (0, 2**kind.bits - 1) if kind.kind == "u" else (-(2 ** (kind.bits - 1)), 2 ** (kind.bits - 1) - 1)
        if not low <= number <= high:
            raise BuildError(f"{number} does not fit into {kind}, which holds {low} to {high}")
        return str(number)
    if kind.lane in (f16, bf16):
        return f"0x{2 * literal(kind.lane, number)[2:]}"
    if kind.kind != "f" or kind.bits < 16:
        raise BuildError(f"{number!r} is a Python number, and {kind} has no constants")
    try:
        number = float(number)
        if kind is bf16:
            return f"0x{_bf16(number):04X}"
        letter, prefix, digits = {16: ("e", "0x", 4), 32: ("f", "0f", 8), 64: ("d", "0d", 16)}[kind.bits]
        return f"{prefix}{int.from_bytes(struct.pack('>' + letter, number)):0{digits}X}"
    except OverflowError:
        raise BuildError(f"{number!r} is too large for {kind}") from None


def _bf16(number: float) -> int:
    """Bits of the nearest bfloat16; from the float64, because rounding twice is not rounding once."""
    if math.isnan(number):
        return 0x7FFF
    if math.isinf(number) or number == 0:
        return int.from_bytes(struct.pack(">f", number)) >> 16
    exponent = max(math.frexp(number)[1] - 8, -133)  # of the last place; 2^-133 is the smallest subnormal
    rounded = math.ldexp(math.copysign(round(math.ldexp(number, -exponent)), number), exponent)  # halves to even
    if abs(rounded) >= 2.0**128:
        raise OverflowError
    return int.from_bytes(struct.pack(">f", rounded)) >> 16
