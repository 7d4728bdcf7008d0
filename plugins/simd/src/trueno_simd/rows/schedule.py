"""When work is split, and into what: sizes measured on a CPU, never on the number of threads.

A chunk's size follows from the row's length alone, so that a sum is joined in the same order whatever the
machine: results are bitwise equal for any number of threads.
"""

from trueno_simd.llvm.jit import inner, outer

PIECE = 49_152  # elements of a piece: long enough to hide its hand-over, short enough to balance
PIECES = 256  # pieces of one row at most, which bounds the room for partial results
SHORT_ROW = 32  # elements of a row up to which rows are taken TILE at a time
TILE = 64  # rows of a tile
FAR = 1 << 30  # past every position in a block


@inner
def spans(n, block):  # type: ignore[no-untyped-def]
    """Number of pieces of a row of n, and the elements of each: a multiple of `block`."""
    wanted = min(max(n // PIECE, 2), PIECES)
    step = (n + wanted - 1) // wanted
    step = (step + block - 1) // block * block
    return (n + step - 1) // step, step


@inner
def row_spans(rows, n):  # type: ignore[no-untyped-def]
    """Number of pieces of `rows` rows of n, and the rows of each."""
    wanted = min(max(rows * n // PIECE, 2), 4 * PIECES)
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
