"""Whole numbers of every thread of one block: what an instruction makes of them, where they are known.

A value is None where nothing is known of it, one number that all threads have, or a vector with a number per thread.
Numbers of 16, 32 and 64 bits are kept with their sign; instructions on unsigned numbers take it away.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from trueno_cuda.ptx.syntax.tree import Immediate, Instruction, Operand
from trueno_cuda.ptx.syntax.types import TYPES, Array

Value = Any
"""None, an int, a bool, or a vector of one of these."""
Read = Callable[[Operand], Value]
WHOLE = {"u16", "s16", "b16", "u32", "s32", "b32", "u64", "s64", "b64"}
SIGNED = {"min", "max", "shr", "div", "rem", "setp", "bfe"}
"""Opcodes that treat numbers with and without a sign differently, beside products that keep their upper bits."""
SOURCES = {"mov": 1, "cvta": 1, "neg": 1, "abs": 1, "not": 1, "cvt": 1, "mad": 3, "selp": 3, "bfe": 3, "bfi": 4,
           "prmt": 3, "lop3": 4}  # fmt: skip
"""How many operands an opcode takes beside its result, where there are not two."""
RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "lo": lambda a, b: a < b, "ls": lambda a, b: a <= b, "hi": lambda a, b: a > b, "hs": lambda a, b: a >= b,
}  # fmt: skip
SIMPLE: dict[str, Callable[..., Any]] = {
    "mov": lambda a: a, "cvta": lambda a: a, "neg": lambda a: -a, "abs": abs, "not": lambda a: ~a,
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "and": lambda a, b: a & b, "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b, "min": lambda a, b: _either(a < b, a, b), "max": lambda a, b: _either(a > b, a, b),
}  # fmt: skip


def wrapped(value: Value, bits: int) -> Value:
    """A number cut to so many bits, with its sign."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        half = 1 << (bits - 1)
        return (value + half & (1 << bits) - 1) - half
    if value.dtype == bool:
        return value
    if bits == 64:
        return value.astype(np.int64)
    return value.astype(f"i{bits // 8}").astype(np.int64)


def unsigned(value: Value, bits: int) -> Value:
    """The number that its bits are without a sign; a vector of 64 bits becomes one of NumPy's uint64."""
    if value is None or isinstance(value, bool):
        return value
    if bits < 64 or isinstance(value, int):
        return value & ((1 << bits) - 1)
    return value.astype(np.uint64)


def result(ins: Instruction, read: Read) -> Value:
    """What an instruction writes to its first operand; None where that is not known."""
    name, mods = ins.opcode, ins.mods
    kinds = [m for m in mods if m in TYPES]
    if not kinds or ins.unread or len(ins.operands) - 1 != SOURCES.get(name, 2):
        return None
    if kinds[-1] == "pred":
        return _predicate(name, [read(o) for o in ins.operands[1:]])
    if name == "cvt":
        return _converted(kinds, read(ins.operands[1]), mods)
    if any(kind not in WHOLE for kind in kinds) or "cc" in mods:
        return _selected(ins, read) if name == "selp" else None
    kind = TYPES[kinds[-1]]
    sign = (
        kind.kind == "s" or (kind.kind == "b" and name != "shr") or not (name in SIGNED or {"hi", "wide"} & set(mods))
    )
    if name == "selp":
        return _selected(ins, read)
    values = [read(o) for o in ins.operands[1:]]
    if any(value is None for value in values) or not values:
        return _absorbed(name, values)
    if not sign:
        values = [unsigned(value, kind.bits) for value in values[:2]] + values[2:]
    if name == "setp":
        compare = RELATIONS.get(mods[0])
        return None if compare is None or len(values) != 2 else compare(*values)
    if name in SIMPLE and "sat" not in mods:
        return wrapped(SIMPLE[name](*values), kind.bits)
    return _arithmetic(name, mods, kind.bits, values)


def _absorbed(name: str, values: list[Value]) -> Value:
    """A product with zero, or bits that a mask takes away, whatever the other operand is."""
    known = [value for value in values if value is not None]
    return 0 if name in ("mul", "and") and known and isinstance(known[0], int) and known[0] == 0 else None


def _arithmetic(name: str, mods: tuple[str, ...], bits: int, values: list[Value]) -> Value:
    a = values[0]
    b = values[1] if len(values) > 1 else 0
    if name in ("mul", "mad"):
        if "hi" in mods:
            if bits > 32:
                return None
            product = a * b >> bits
        else:
            product = a * b
        wide = 2 * bits if "wide" in mods else bits
        return wrapped(product + values[2] if name == "mad" else product, wide)
    if name in ("shl", "shr"):
        if isinstance(b, int) and isinstance(a, int):
            return wrapped(
                (a << b if name == "shl" else a >> b) if 0 <= b < bits else 0 if name == "shl" else -(a < 0), bits
            )
        a = np.asarray(a)
        b = np.clip(np.asarray(b), 0, 63).astype(a.dtype if a.dtype == np.uint64 else np.int64)
        return wrapped(a << b if name == "shl" else a >> b, bits)
    if name in ("div", "rem"):
        if np.any(np.asarray(b) == 0):
            return None
        if any(isinstance(v, np.ndarray) and v.dtype == np.uint64 for v in (a, b)):
            quotient = a // b
        else:
            quotient = abs(a) // abs(b) * (1 - 2 * ((a < 0) ^ (b < 0)))
        return wrapped(quotient if name == "div" else a - quotient * b, bits)
    if name == "bfe" and len(values) == 3 and all(isinstance(v, int) for v in values[1:]):
        field = (unsigned(a, bits) >> b) & ((1 << values[2]) - 1) if 0 <= b < bits and 0 < values[2] < 64 else None
        if field is None or mods[-1][0] == "u":
            return field
        half = 1 << (values[2] - 1)
        return (field ^ half) - half
    if name == "bfi" and len(values) == 4 and all(isinstance(v, int) for v in values[2:]) and bits == 32:
        start, length = values[2], values[3]
        if not (0 <= start < 32 and 0 < length < 33):
            return None
        field = ((1 << length) - 1 << start) & 0xFFFFFFFF
        return wrapped(unsigned(a, 32) << start & field | unsigned(b, 32) & ~field & 0xFFFFFFFF, 32)
    if name == "prmt" and len(values) == 3 and mods == ("b32",) and isinstance(values[2], int):
        return wrapped(_permuted(unsigned(a, 32), unsigned(b, 32), values[2]), 32)
    if name == "lop3" and len(values) == 4 and mods == ("b32",) and isinstance(values[3], int):
        return wrapped(_looked_up([unsigned(v, 32) for v in values[:3]], values[3]), 32)
    return None


def _permuted(a: Value, b: Value, selector: int) -> Value:
    """Four of the eight bytes of two words, each as it is or as eight copies of its sign."""
    result = a & 0
    for place in range(4):
        which = selector >> 4 * place
        byte = (b if which & 4 else a) >> 8 * (which & 3) & 255
        result = result | ((byte >> 7) * 255 if which & 8 else byte) << 8 * place
    return result


def _looked_up(words: list[Value], table: int) -> Value:
    """Each bit of the result is the bit of a table that the bits of three words choose."""
    result = words[0] & 0
    for index in range(8):
        if table >> index & 1:
            chosen = 0xFFFFFFFF
            for place, word in enumerate(words):
                chosen = chosen & (word if index >> 2 - place & 1 else word ^ 0xFFFFFFFF)
            result = result | chosen
    return result


def _predicate(name: str, values: list[Value]) -> Value:
    known = [v for v in values if v is not None]
    if name == "mov" and known:
        return values[0]
    if len(known) == len(values):
        if name == "not":
            return np.logical_not(values[0]) if isinstance(values[0], np.ndarray) else not values[0]
        if name in ("and", "or", "xor") and len(values) == 2:
            return {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[name](*values)
    if len(known) == 1 and name in ("and", "or") and not isinstance(known[0], np.ndarray):
        return known[0] if bool(known[0]) == (name == "or") else None
    return None


def _selected(ins: Instruction, read: Read) -> Value:
    a, b, chosen = (read(o) for o in ins.operands[1:4])
    if chosen is None:
        return None
    if not isinstance(chosen, np.ndarray):
        return a if chosen else b
    if chosen.all() or not chosen.any():
        return a if chosen.any() else b
    return None if a is None or b is None else _either(chosen, a, b)


def _either(chosen: Any, a: Value, b: Value) -> Value:
    if isinstance(chosen, np.ndarray):
        return np.where(chosen, a, b)
    return a if chosen else b


def _converted(kinds: list[str], value: Value, mods: tuple[str, ...]) -> Value:
    to, source = TYPES[kinds[0]], TYPES[kinds[-1]]
    if value is None or len(kinds) != 2 or to.kind not in "usb" or source.kind not in "usb" or "sat" in mods:
        return None
    if source.bits < 64:
        value = unsigned(value, source.bits) if source.kind == "u" else wrapped(value, source.bits)
    return unsigned(value, 8) if to.name == "u8" else wrapped(value, to.bits)


def literal(operand: Operand) -> Value:
    """An immediate operand, with its sign."""
    if isinstance(operand, Immediate) and not isinstance(operand.value, float):
        value = int(operand.value)
        return wrapped(value, 64 if value >= 1 << 32 or value < -(1 << 31) else 32) if value >= 1 << 31 else value
    return None


def merged(old: Value, new: Value, mask: Array) -> Value:
    """A register after some threads wrote it; those that did not write a new register hold anything."""
    if mask.all():
        return new
    if old is None or new is None:
        return None
    return np.where(mask, new, old)
