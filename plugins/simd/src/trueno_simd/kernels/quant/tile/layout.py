"""How a product of quantized matrices lies in memory while it is made, derived from the table of formats.

y = x Wᵀ is made panel by panel: `COLUMNS` rows of W, `DEPTH` elements of each, decoded once to small integers and then
used for every row of x.  Rows of x come in tiles of a few rows.  Both are cut into *records*, one for each group of
elements that have one scale, in the order in which the micro-kernel reads them, vectors over the rows of W:

    panel:  [ codes: steps · VECTORS vectors | scale: VECTORS | m: VECTORS, flat formats with an offset ] · groups,
            [ mins, two groups in a lane: groups/2 · VECTORS | d: VECTORS | dmin: VECTORS ]   nested formats
    tile:   [ codes: steps · rows words | -offset · sum of the codes: rows | d, d · sum: rows, flat formats ] · groups,
            [ sums, two groups in a word: groups/2 · rows | d: rows ]                         nested formats

A word of 32 bits holds four codes of consecutive elements, or two of 16 bits.  *Nested* formats have whole scales
of groups under one d (the K formats and iq4_xs); *flat* ones have blocks of one group.

The codes of W are made unsigned where the machine's instruction wants that: code + offset is a value's.
"""

import platform
from dataclasses import dataclass
from functools import cached_property

from trueno.backend import Format

from trueno_simd.kernels.tile import VECTOR_BYTES, VECTORS, WIDE
from trueno_simd.llvm import isa

LANES = VECTOR_BYTES // 4
COLUMNS = VECTORS * LANES
ROW = COLUMNS * 4  # bytes of a row of a panel or of sums
DEPTH = 256
UNIT = 2 if WIDE else 1  # tiles have one, two or three times so many rows of x: 3 units by 2 vectors of sums, twice
TALL = 3 * UNIT

_FEATURES = isa.current()
X86 = platform.machine().lower() in ("x86_64", "amd64")
VNNI = _FEATURES.has({"avx512": "avx512vnni", "avx2": "avxvnni"}.get(_FEATURES.level, "none"))
AVX2 = _FEATURES.level in ("avx2", "avx512")
SHUFFLE = X86 and _FEATURES.has("ssse3")
HALF = X86 and _FEATURES.has("f16c")


@dataclass(frozen=True)
class Layout:
    """Panels and tiles of one format.

    way: how codes are multiplied.  "dpbusd": four unsigned by four signed bytes, by VNNI.  "maddubs": the same by
    pairs, through 16 bits, for codes that cannot overflow them.  "words": pairs of 16 bits, everywhere.
    """

    format: Format
    way: str

    @property
    def nested(self) -> bool:
        return bool(self.format.scales)

    @property
    def group(self) -> int:
        """Elements of a group."""
        return self.format.group or self.format.elements

    @property
    def groups(self) -> int:
        """Groups of a whole panel."""
        return DEPTH // self.group

    @property
    def wide(self) -> bool:
        """Whether codes have 16 bits."""
        return self.way == "words"

    @property
    def steps(self) -> int:
        """Words of a group."""
        return self.group // (2 if self.wide else 4)

    @property
    def offset(self) -> int:
        """What makes values unsigned: code in the panel = value + offset."""
        return 0 if self.wide else unsigned_by(self.format)

    @property
    def most(self) -> int:
        """The largest unsigned code."""
        return largest(self.format)

    @property
    def flat_m(self) -> bool:
        return bool(self.format.m) and not self.nested

    @property
    def mins(self) -> bool:
        return bool(self.format.mins)

    # ---- bytes, of the panel

    @property
    def w_group(self) -> int:
        return (self.steps + 1 + self.flat_m) * ROW

    @property
    def w_tail(self) -> int:
        return self.groups * self.w_group

    @property
    def w_d(self) -> int:
        """Where a nested panel has d; dmin follows."""
        return self.w_tail + (self.groups // 2 * ROW if self.mins else 0)

    @property
    def w_bytes(self) -> int:
        return self.w_d + 2 * ROW

    # ---- bytes of a tile, for each of its rows

    @property
    def x_group(self) -> int:
        return 4 * (self.steps + (self.offset > 0) + (0 if self.nested else 1 + self.flat_m))

    @cached_property
    def x_tail(self) -> int:
        if not self.nested:
            return 0
        return 4 * ((self.groups // 2 if self.mins else 0) + 1)

    def x_row(self, k: int) -> int:
        """Of a whole row of k elements."""
        return k // self.group * self.x_group + k // DEPTH * self.x_tail


def unsigned_by(f: Format) -> int:
    """What is added to a format's values so that none is negative."""
    if f.values:
        return -min(f.values)
    return 128 if f.signed else f.bias


def largest(f: Format) -> int:
    """The largest value, once all are unsigned."""
    if f.values:
        return max(f.values) - min(f.values)
    return (1 << f.code_bits) - 1


def layout_of(f: Format) -> Layout:
    """The layout by which this machine multiplies fastest."""
    if VNNI:
        return Layout(f, "dpbusd")
    return Layout(f, "maddubs" if X86 and AVX2 and 2 * 127 * largest(f) < 1 << 15 else "words")
