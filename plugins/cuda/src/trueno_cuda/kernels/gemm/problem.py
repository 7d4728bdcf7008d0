"""A matrix product as numbers: its sides, and the offsets of the matrices of stacks."""

from dataclasses import dataclass
from math import prod

from trueno.backend import stacks as broadcast

Shape = tuple[int, ...]
MOST = 1 << 31
"""Below this lies every axis, so that an index and a tile more fit into 32 bits."""


@dataclass(frozen=True, slots=True)
class Problem:
    """C = A B of m x n sums of `depth` terms, `lead` of them.

    a_gaps, b_gaps: elements between neighbours along each leading axis.  pitch: elements from one row of C to the next,
    where C is some columns of a wider matrix; else 0.
    """

    m: int
    n: int
    depth: int
    lead: tuple[int, ...] = ()
    a_gaps: tuple[int, ...] = ()
    b_gaps: tuple[int, ...] = ()
    pitch: int = 0

    @property
    def count(self) -> int:
        return prod(self.lead)

    @property
    def line(self) -> int:
        """Elements from one row of C to the next."""
        return self.pitch or self.n


def matrices(a: Shape, b: Shape, out: Shape) -> Problem | None:
    """The problem of `matmul`; None for shapes that do not agree."""
    if len(a) != 2 or len(b) != 2 or a[1] != b[0] or out != (a[0], b[1]):
        return None
    return Problem(a[0], b[1], a[1])


def stacks(a: Shape, b: Shape, out: Shape) -> Problem | None:
    """The problem of `batched_matmul`; None for shapes that do not agree."""
    if min(len(a), len(b)) < 2 or a[-1] != b[-2] or out[-2:] != (a[-2], b[-1]) or len(out) != max(len(a), len(b)):
        return None
    m, depth, n = a[-2], a[-1], b[-1]
    whole = out[:-2]
    pairs = zip((1,) * (len(whole) - len(a) + 2) + a[:-2], (1,) * (len(whole) - len(b) + 2) + b[:-2], strict=True)
    gaps = broadcast.leading(a[:-2], whole, m * depth), broadcast.leading(b[:-2], whole, depth * n)
    if gaps[0] is None or gaps[1] is None or tuple(y if x == 1 else x for x, y in pairs) != whole:
        return None
    lead, (a_gaps, b_gaps) = broadcast.merged(whole, gaps[0], gaps[1])
    if len(lead) == 1 and b_gaps == (0,) and a_gaps == (m * depth,):  # one matrix for all: one tall product
        return Problem(m * lead[0], n, depth)
    return Problem(m, n, depth, lead, a_gaps, b_gaps)
