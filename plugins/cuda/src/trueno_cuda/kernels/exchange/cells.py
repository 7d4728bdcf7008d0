"""How numbers lie in an inbox: as float32, or rounded to bfloat16, two in a word."""

from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from trueno_cuda.ptx import Builder, Pointer, Value, bf16x2, f32, u16, u32

UPPER = 0xFFFF0000
QUIET = 0x400000


class Cells:
    """V numbers at once."""

    def __init__(self, k: Builder, V: int, NARROW: bool) -> None:
        self.k, self.V, self.NARROW = k, V, NARROW
        self.vec = min(V, 4)

    def read(self, x: Pointer, at: Value, where: Any = None) -> list[Value]:
        """Numbers of an operand."""
        places = [at * self.V + j if j else at * self.V for j in range(0, self.V, self.vec)]
        return [value for place in places for value in x.load(place, vec=self.vec, where=where)]

    def write(self, out: Pointer, at: Value, values: list[Value], where: Any = None) -> None:
        """Numbers of a result."""
        for j in range(0, self.V, self.vec):
            out.store(at * self.V + j if j else at * self.V, values[j : j + self.vec], where=where)

    def words(self, values: list[Value]) -> list[Value]:
        """Numbers as they are sent."""
        if not self.NARROW:
            return values
        return [pair(self.k, *values[j : j + 2]) for j in range(0, self.V, 2)]

    def numbers(self, words: list[Value]) -> list[Value]:
        """What was sent, as float32."""
        return [value for word in words for value in unpaired(word)][: self.V] if self.NARROW else words

    def send(self, slot: Pointer, at: Value, words: list[Value], where: Any) -> None:
        if not self.NARROW:
            slot.store(at * self.V, words, where=where)
        elif self.V == 1:
            slot.cast(u16).store(at, words[0].to(u16), where=where)
        else:
            slot.cast(u32).store(at * (self.V // 2), words, where=where)

    def arrived(self, slot: Pointer, at: Value, where: Any) -> list[Value]:
        """Words of a slot."""
        if not self.NARROW:
            return slot.load(at * self.V, vec=self.V, where=where)
        if self.V == 1:
            return [slot.cast(u16).load(at, where=where).to(u32)]
        return slot.cast(u32).load(at * (self.V // 2), vec=self.V // 2, where=where)


def pair(k: Builder, low: Value, high: Value | None = None) -> Value:
    """Two numbers, or one, rounded to bfloat16 in one word."""
    if k.target.number >= 80:
        return k.pack(bf16x2, low, k.const(f32, 0.0) if high is None else high).bits(u32)
    low, upper = _rounded(k, low) >> 16, None if high is None else _rounded(k, high) & UPPER
    return low if upper is None else low | upper


def _rounded(k: Builder, x: Value) -> Value:
    """The bits of a number whose upper half is its bfloat16, where no instruction rounds to it."""
    bits = x.bits(u32)
    return k.select(x != x, bits | QUIET, bits + 0x7FFF + (bits >> 16 & 1))


def unpaired(word: Value) -> tuple[Value, Value]:
    """Both numbers of a word, as float32."""
    return (word << 16).bits(f32), (word & UPPER).bits(f32)


def stored(x: np.ndarray[Any, Any], narrow: bool) -> np.ndarray[Any, Any]:
    """The bits of numbers in an inbox, on the host.  narrow: as bfloat16."""
    return x.astype(bfloat16).view(np.uint16) if narrow else x.astype(np.float32).view(np.uint32)


def loaded(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The numbers again, as float32."""
    return bits.view(bfloat16 if bits.itemsize == 2 else np.float32).astype(np.float32)
