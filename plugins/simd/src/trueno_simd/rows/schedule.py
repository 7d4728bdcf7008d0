"""How a call is split, into pieces of about `piece` elements (`trueno_simd.rows.work`) or more.

A piece's size follows from the op and the row's length alone, so that a sum is joined in the same order whatever the
machine: results are bitwise equal for any number of threads.
"""

from numpy import int32

from trueno_simd.llvm.jit import inner, outer
from trueno_simd.rows.short_rows import ROWS

FEW, LONG = 8, 24_576  # pieces that are enough, and elements of a piece that are
PIECES = 256  # pieces of one row at most, which bounds the room for partial results
TILE = ROWS
FAR = int32(1 << 30)  # past every position in a block; 32 bits, as a float32 has


@inner
def _pieces(elements, piece, most):  # type: ignore[no-untyped-def]
    """One, two, or a multiple of four, so that two and four threads have equal shares."""
    wanted = elements // max(piece, min(elements // FEW, LONG))
    return min(wanted // 4 * 4, most) if wanted > 3 else 2 if wanted else 1


@inner
def spans(n, piece, run):  # type: ignore[no-untyped-def]
    """Number of pieces of a row of n, and the elements of each: a multiple of `run`."""
    wanted = _pieces(n, piece, PIECES)
    step = (n + wanted - 1) // wanted
    step = (step + run - 1) // run * run
    return (n + step - 1) // step, step


@inner
def row_spans(rows, n, piece):  # type: ignore[no-untyped-def]
    """Number of pieces of `rows` rows of n, and the rows of each."""
    wanted = _pieces(rows * n, piece, 4 * PIECES)
    step = (rows + wanted - 1) // wanted
    return (rows + step - 1) // step, step


@outer
def finiteness(values, count):  # type: ignore[no-untyped-def]
    """Status bits of a result: 1 it holds a NaN, 2 it holds an Inf.  Only called once something is wrong."""
    nan = inf = False
    for i in range(count):
        v = values[i]
        if v != v:
            nan = True
        elif v - v != v - v:
            inf = True
    return (1 if nan else 0) | (2 if inf else 0)
