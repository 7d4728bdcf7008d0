"""Products of float32 activations with a decoded panel, by the register tiles of matmul.

The rows of a large x lie so far apart (often a power of two) that they fall into few cache sets and touch a page each.
So where many rows pass over a panel, x is first copied in slabs of DEPTH columns whose rows are one short pitch apart.
"""

from trueno_simd.kernels import tile
from trueno_simd.kernels.operands import F32, reader
from trueno_simd.kernels.quant.tile.layout import COLUMNS, DEPTH
from trueno_simd.llvm.calls import address_of, pack
from trueno_simd.llvm.jit import inner, outer
from trueno_simd.threads.pool import parallel_for

PITCH = (DEPTH + 16) * 4  # bytes between rows of a slab
COPIED = 64  # rows of x that one chunk copies


@outer
def copy_piece(args, index):
    """Some rows of x, to every slab."""
    x, slabs, m, k = COPY_JOB(args)
    for i in range(index * COPIED, min((index + 1) * COPIED, m)):
        for p in range(0, k, DEPTH):
            tile.copy(slabs + (p // DEPTH * m + i) * PITCH, x + (i * k + p) * 4, min(DEPTH, k - p) * 4)
    return 0


COPY_JOB = reader(4)


@inner
def slab_bytes(m, k):
    """Bytes of the slabs of x[m,k]; 0 where it is better left where it is."""
    return (k + DEPTH - 1) // DEPTH * m * PITCH if m > 2 * tile.TALL else 0


@inner
def rows_in_slabs(x, slabs, m, k):
    """Where x is to be read: its address, bytes between rows, and bytes between columns DEPTH apart."""
    if slab_bytes(m, k) == 0:
        return x, k * 4, DEPTH * 4
    parallel_for(address_of(copy_piece), pack((x, slabs, m, k)), (m + COPIED - 1) // COPIED)
    return slabs, PITCH, m * PITCH


@inner
def multiply(x, x_row, panel, panel_row, to, to_row, height, depth, accumulate):
    """to[height, COLUMNS] (+)= x[height, depth] panel[depth, COLUMNS]."""
    i = 0
    while height - i > tile.MIDDLE:
        tile.tall(F32, x + i * x_row, x_row, 4, panel, panel_row, to + i * to_row, to_row, depth,
                  min(height - i, tile.TALL), COLUMNS, accumulate)  # fmt: skip
        i += tile.TALL
    if height - i > tile.LOW:
        tile.middle(F32, x + i * x_row, x_row, 4, panel, panel_row, to + i * to_row, to_row, depth,
                    height - i, COLUMNS, accumulate)  # fmt: skip
    elif height > i:
        tile.low(F32, x + i * x_row, x_row, 4, panel, panel_row, to + i * to_row, to_row, depth,
                 height - i, COLUMNS, accumulate)  # fmt: skip
