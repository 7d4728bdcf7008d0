"""Reading rows of keys and values, four numbers at a time, from the bytes of a cache."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trueno.backend import FORMATS, cache_row_bytes

from trueno_cuda.ptx import Builder, Pointer, Type, Value, bf16, f16, f32, s32, u16, u32

CELLS = {"f32": f32, "f16": f16, "bf16": bf16}
"""Formats that are arrays of floats."""
Q8 = FORMATS["q8_0"]
SCALE, CODES = (Q8.fields[name].offset // 2 for name in (Q8.d, "qs"))
"""Where a block's scale and codes begin, in halves."""
HALVES = Q8.nbytes // 2
PIECE = 4
"""Numbers that one read takes."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of n numbers in a format of caches.  form: its name."""

    form: str
    n: int

    @property
    def nbytes(self) -> int:
        """Bytes of a row; -1 for a part of a block."""
        return cache_row_bytes(self.form, self.n)

    @property
    def element(self) -> Type:
        """What a pointer to a cache counts: numbers, or the halves of blocks."""
        return CELLS.get(self.form, u16)

    @property
    def units(self) -> int:
        """Elements of a row."""
        return self.nbytes // self.element.bytes

    @property
    def wide(self) -> bool:
        """Whether four numbers of an aligned row are one access."""
        return self.form in CELLS and self.n % PIECE == 0


def piece(
    k: Builder, row: Pointer, at: Value, rows: Rows, vectors: bool, where: Value | None = None
) -> list[Value]:  # fmt: skip
    """Numbers at … at + 3 of a row, as float32; `at` is a multiple of 4, and what lies beyond the row's end is 0.

    vectors: whether rows begin at multiples of 16 bytes.  where: which threads read; the others get 0.
    """
    inside = None if rows.n % PIECE == 0 else [at + i < rows.n for i in range(PIECE)]
    if rows.form == "q8_0":
        block = row + at // Q8.elements * HALVES
        d = block.load(SCALE, where=where).bits(f16).to(f32)
        first = CODES + at % Q8.elements // 2
        pairs = [block.load(first + i, where=where) for i in range(2)]
        words = [pair.to(u32) for pair in pairs]
        word = words[0] | (words[1] << 16)
        return [k.bfe(word.bits(s32), 8 * i, 8).to(f32) * d for i in range(PIECE)]
    if rows.wide and vectors:
        values = row.load(k.multiple_of(at, PIECE), vec=PIECE, where=where)
    else:
        masks = [where if inside is None else inside[i] if where is None else inside[i] & where for i in range(PIECE)]
        values = [row.load(at + i, where=mask) for i, mask in enumerate(masks)]
    return [v if v.type is f32 else v.to(f32) for v in values]


def aligned(address: int, rows: Rows) -> bool:
    """Whether elements at an address can be read at all."""
    return address % rows.element.bytes == 0


def half_bits(k: Builder, x: Value) -> Value:
    """The bits of a float32 as float16, to nearest even; of a NaN its sign and the upper part of its payload."""
    bits = x.bits(u32)
    nan = ((bits >> 16) & 0x8000) | ((bits >> 13) & 0x3FF) | 0x7E00
    return k.select(x != x, nan, x.to(f16).bits(u16).to(u32))


def brain_bits(k: Builder, x: Value) -> Value:
    """The bits of a float32 as bfloat16, to nearest even; of a NaN its upper half, and quiet."""
    bits = x.bits(u32)
    nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return k.select(x != x, (bits >> 16) | 0x40, nearest)


NARROW: dict[str, Any] = {"f16": half_bits, "bf16": brain_bits}


def narrowed(k: Builder, form: str, values: Sequence[Value]) -> list[Value]:
    """Numbers of float32 as cells of a cache hold them."""
    return list(values) if form == "f32" else [NARROW[form](k, v).to(u16) for v in values]
