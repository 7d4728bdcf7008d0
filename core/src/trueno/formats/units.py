"""How kernels divide blocks: columns, units, and where a group's scale is, as a formula of the group's number.

Sixteen elements whose codes are in neighbouring bytes are a *column*: every run and group of the table is a multiple of
16, so a column has one shift per plane, and one scale.  A *unit* is the columns that share the bytes of the first
plane: one column for each way of packing several codes into a byte, `run` elements apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from trueno.formats.table import FORMATS

COLUMN = 16
"""Elements of a column."""


@dataclass(frozen=True, slots=True)
class UnitShape:
    """The units of a format: `ways` columns, `run` elements apart, in a period of `run * ways` elements.

    units: of a block.
    """

    run: int
    ways: int
    units: int

    @property
    def elements(self) -> int:
        """Elements of a unit."""
        return self.ways * COLUMN


@cache
def unit_shape(name: str) -> UnitShape:
    """The units of the format called `name`."""
    f = FORMATS[name]
    first = f.planes[0]
    period = first.run * first.ways
    for p in f.planes[1:]:  # the bytes that a unit's columns need of the other planes are the same, too
        assert p.run == 1 or (first.run % p.run == 0 and (p.run * p.ways) % period == 0)
        assert p.run > 1 or (p.bits == 1 and period == 32)
    return UnitShape(first.run, first.ways, f.elements // first.ways // COLUMN)


class Term(NamedTuple):
    """((g & mask) >> shift) · factor of a number g; where the shift is 0, a kernel needs none."""

    mask: int
    shift: int
    factor: int


class Linear(NamedTuple):
    """A number that depends on g as a sum: `first`, and some terms of g."""

    first: int
    terms: tuple[Term, ...]

    def at(self, g: int) -> int:
        """The number for one g."""
        return self.first + sum(((g & t.mask) >> t.shift) * t.factor for t in self.terms)


def linear(values: Sequence[int]) -> Linear | None:
    """values[g], for g below their number (a power of two), as a sum of bits of g; None if there is no such sum.

    Bits whose shares double from one to the next are one term.  A bit of g that the values do not have is in no mask,
    so that any larger g gives a value, too.
    """
    steps = [values[1 << b] - values[0] for b in range((len(values) - 1).bit_length())]
    if any(v != values[0] + sum(s for b, s in enumerate(steps) if g >> b & 1) for g, v in enumerate(values)):
        return None
    terms, b = [], 0
    while b < len(steps):
        stop = b + 1
        while stop < len(steps) and steps[stop] == 2 * steps[stop - 1]:
            stop += 1
        if steps[b]:
            shift = 0 if steps[b] % (1 << b) == 0 else b
            terms.append(Term((1 << stop) - (1 << b), shift, steps[b] if shift else steps[b] >> b))
        b = stop
    return Linear(values[0], tuple(terms))
