"""One of the products of a call, and how the rows of several are shared out among blocks."""

from collections.abc import Sequence
from typing import NamedTuple

from trueno_cuda.kernels.epilogue import Epilogue

ALIGN = 256


def aligned(nbytes: int) -> int:
    """Bytes of scratch behind which the next array may begin."""
    return -(-nbytes // ALIGN) * ALIGN


Numbered = tuple[int, "Task"]
"""A product with its number in the call."""


class Task(NamedTuple):
    """One of several products of one x (see `products.Product`).

    beside: what its epilogue reads.  result: its number among those that are kept, -1 for one that others read alone.
    n: rows of its matrix.  floats: its parameters among the launch's.  group: the first of those computed with it.
    """

    format: str
    epilogue: Epilogue | None
    matrix: int
    beside: tuple[tuple[str, int], ...]
    result: int
    n: int
    floats: slice
    group: int


class Norm(NamedTuple):
    """`rms_norm` of x.  weight: the operand that has its weights; eps: among the parameters."""

    weight: int
    eps: int


def shares(blocks: int, sizes: Sequence[tuple[int, int]]) -> list[int]:
    """Rows of a block of each section, so that all sections need so many blocks or fewer, if they can.

    sizes: rows of a section, and bytes of one row of all its parts.
    """
    low, high = 0, max(rows_ * nbytes for rows_, nbytes in sizes)
    while high - low > 1:  # the fewest bytes of a block
        middle = (low + high) // 2
        needed = sum(-(-n // max(middle // nbytes, 1)) for n, nbytes in sizes)
        low, high = (low, middle) if needed <= blocks and middle >= max(s for _, s in sizes) else (middle, high)
    return [max(high // nbytes, 1) for _, nbytes in sizes]
