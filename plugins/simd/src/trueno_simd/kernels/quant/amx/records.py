"""How a product of quantized matrices on AMX's tiles lies in memory, derived from the table of formats.

A *panel* is COLUMNS rows of W by DEPTH elements, each LINE of it four elements of every one of these rows, as int8: two
tiles stand side by side.  A *block* is ROWS rows of x by DEPTH elements.  What they hold:

    flat    panel: [ codes | scales: a LINE per group | m: a LINE per group, formats with an offset ]
            block: [ a tile per group: its codes in one half, zeros in the other | d · groups | d · sum · groups ]
    nested  panel: [ codes · scales, `parts` times | mins, formats that have them | d | -dmin ]
            block: [ a tile per 64 elements | sums of 16 codes, formats with mins | d ]

*Flat* formats have a float scale for each group of 32 elements, so each group's sums are scaled apart; the zeros let
one tile of W serve two groups.  *Nested* ones have whole scales under one d for all 256: codes · scales are whole, too,
so that they are folded into the panel, and one sum over all 256 elements is exact in 32 bits.  Where the products need
16 bits they are two *parts*, each a signed byte: the lower one, and 256ths that are left.

Mins multiply sums of 16 codes, which have 12 bits: as two bfloat16, of a multiple of 16 and the rest.  The
mins are written twice, side by side, for both.  All this is exact in float32.
"""

from dataclasses import dataclass

from trueno.backend import FORMATS, Format

from trueno_simd.kernels.quant.tile.layout import DEPTH, Layout
from trueno_simd.llvm.amx import ROW, ROWS, TILE

COLUMNS = 2 * ROWS
LINE = 2 * ROW
CODES = DEPTH // 4 * LINE  # bytes of a panel's codes
STEP = 64  # elements of a tile
SUMS = ROWS * LINE  # bytes of ROWS by COLUMNS sums
SUMMED = 16  # elements of each of the sums that quantizing x gives
FLAT = 32  # elements of a flat group


def fits(least: int, most: int) -> bool:
    """Whether int8 holds these numbers."""
    return least >= -128 and most <= 127


@dataclass(frozen=True)
class Records:
    """The records of one format; places are in bytes."""

    format: Format

    def __post_init__(self) -> None:
        f = self.format
        assert self.layout.group == FLAT or (self.nested and self.layout.group % SUMMED == 0)
        assert FORMATS[f.activations].elements == (DEPTH if self.nested else FLAT)

    @property
    def layout(self) -> Layout:
        """What it shares with the products of `tile`."""
        return Layout(self.format, "dpbusd")

    @property
    def nested(self) -> bool:
        return self.layout.nested

    @property
    def flat_m(self) -> bool:
        return self.layout.flat_m

    @property
    def mins(self) -> bool:
        return self.layout.mins

    @property
    def span(self) -> tuple[int, int]:
        """The least and the largest of what a panel holds: a value, times its scale."""
        f = self.format
        least = -self.layout.offset
        values = least, least + self.layout.most
        if not self.nested:
            return values
        bits = max(sum(p.bits for p in pieces) for pieces in f.scales)
        low = -(1 << bits - 1) if f.scale_signed else -f.scale_bias
        scales = low, low + (1 << bits) - 1
        products = [v * s for v in values for s in scales]
        return min(products), max(products)

    @property
    def sign(self) -> int:
        """-1 where the negated products fit into a byte, and the products do not (q3_k: -4 · -32)."""
        least, most = self.span
        return -1 if not fits(least, most) and fits(-most, -least) else 1

    @property
    def parts(self) -> int:
        return 1 if fits(*sorted(self.sign * end for end in self.span)) else 2

    # ---- the panel

    @property
    def w_scales(self) -> int:
        """Where a flat panel's scales are."""
        return CODES

    @property
    def w_mins(self) -> int:
        return self.parts * CODES

    @property
    def w_d(self) -> int:
        """Where a nested panel's d is; -dmin follows."""
        return self.w_mins + (SUMS if self.mins else 0)

    @property
    def w_bytes(self) -> int:
        if self.nested:
            return self.w_d + 2 * LINE
        return self.w_scales + (1 + self.flat_m) * self.layout.groups * LINE

    # ---- the block of x

    @property
    def x_mins(self) -> int:
        return DEPTH // STEP * TILE

    @property
    def x_d(self) -> int:
        if self.nested:
            return self.x_mins + (TILE if self.mins else 0)
        return self.layout.groups * TILE

    @property
    def x_m(self) -> int:
        """Where a flat block's d · sum are."""
        return self.x_d + ROWS * 4 * self.layout.groups

    @property
    def x_bytes(self) -> int:
        if self.nested:
            return self.x_d + ROWS * 4
        return self.x_m + self.flat_m * (self.x_m - self.x_d)

    # ---- the sums of one block with one panel

    @property
    def stage(self) -> int:
        return (self.parts + self.mins if self.nested else self.layout.groups) * SUMS
