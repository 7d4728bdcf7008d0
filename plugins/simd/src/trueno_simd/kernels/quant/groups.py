"""Interleaved rows for kernels of plain ones: a few groups at a time are restored, and those rows are the operand.

Interleaving is for the product with one vector of 8 bits, which has a kernel (`interleaved`), and a few vectors are
multiplied by that kernel one at a time.  Other kernels must give correct results from such a matrix, near the speed of
plain rows if they compute much per byte, as the product with many vectors does; otherwise, one `q.plain()` is
better than restoring rows at every call.  Only a piece is in memory at a time.
"""

from collections.abc import Callable, Iterator

import numpy as np
from trueno.backend import ROWS, Format, Refused, interleave

Run = Callable[..., int]

PIECE = 1 << 21
"""Bytes put back at once, a group at least: more leave the cache; for each piece activations are quantized again."""

FEW = 16
"""Vectors up to which one product each, which reads interleaved rows, is faster than restoring them once."""


def pieces(w: interleave.Bytes, f: Format) -> Iterator[tuple[slice, interleave.Bytes]]:
    """Where rows lie, and the same rows in plain order; those that fill no group at the end, as they are so already."""
    whole = len(w) // ROWS * ROWS
    step = max(PIECE // max(ROWS * w.shape[1], 1), 1) * ROWS
    for i in range(0, whole, step):
        rows = slice(i, min(i + step, whole))
        yield rows, interleave.plain(w[rows], f)
    if whole < len(w) or not whole:
        yield slice(whole, len(w)), w[whole:]


def _known(*arrays: tuple[np.ndarray, type, int]) -> None:
    """Raise `Refused` for operands that a compiled signature would not accept."""
    for x, dtype, ndim in arrays:
        if not isinstance(x, np.ndarray) or x.dtype != dtype or x.ndim != ndim or not x.flags.c_contiguous:
            raise Refused(f"an operand is not contiguous {np.dtype(dtype)} of {ndim} axes")


def _written(out: np.ndarray, ndim: int) -> None:
    _known((out, np.float32, ndim))
    if not out.flags.writeable:
        raise Refused("out is read-only")


def dequantize(f: Format, kernel: Run) -> Run:
    """w[m,b], out[m,k]."""

    def run(w: np.ndarray, out: np.ndarray) -> int:
        _known((w, np.uint8, 2))
        _written(out, 2)
        if w.shape[1] % f.nbytes or out.shape != (len(w), f.row_elements(w.shape[1])) or np.may_share_memory(w, out):
            return -1
        for rows, part in pieces(w, f):
            if kernel(part, out[rows]):
                return -1
        return 0

    return run


def matvec(f: Format, kernel: Run) -> Run:
    """w[n,b], x[k], out[n]."""

    def run(w: np.ndarray, x: np.ndarray, out: np.ndarray) -> int:
        _known((w, np.uint8, 2), (x, np.float32, 1))
        _written(out, 1)
        fits = not w.shape[1] % f.nbytes and len(x) == f.row_elements(w.shape[1]) and len(out) == len(w)
        if not fits or np.may_share_memory(out, w) or np.may_share_memory(out, x):
            return -1
        for rows, part in pieces(w, f):
            if kernel(part, x, out[rows]):
                return -1
        return 0

    return run


def matmul(f: Format, kernel: Run, product: Run | None) -> Run:
    """x[m,k], w[n,b], out[m,n].  product: of interleaved rows with one vector, taken for few; None if there is none."""

    def run(x: np.ndarray, w: np.ndarray, out: np.ndarray) -> int:
        _known((x, np.float32, 2), (w, np.uint8, 2))
        _written(out, 2)
        fits = not w.shape[1] % f.nbytes and x.shape[1] == f.row_elements(w.shape[1])
        if not fits or out.shape != (len(x), len(w)) or np.may_share_memory(out, w) or np.may_share_memory(out, x):
            return -1
        if product is not None and len(x) <= FEW:
            return min((product(w, one, y) for one, y in zip(x, out, strict=True)), default=0)
        for rows, part in pieces(w, f):
            columns = np.empty((len(x), len(part)), np.float32)
            if kernel(x, part, columns):
                return -1
            out[:, rows] = columns
        return 0

    return run
