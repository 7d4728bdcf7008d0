"""How products with quantized matrices are cut into tiles, panels and chunks, and what all formats do alike."""

from trueno_simd.kernels import tile
from trueno_simd.kernels.operands import F32
from trueno_simd.kernels.quant.tile.decode import touch
from trueno_simd.kernels.quant.tile.layout import COLUMNS, ROW, TALL, UNIT
from trueno_simd.llvm.jit import outer

SHARES = 32  # chunks at most
CHUNK = 1 << 21  # operations that are worth a chunk of their own (a few us)
PACKED = 1 << 13  # numbers of x, to be quantized, that are
TILES = 86  # tiles at most that pass over one panel: their sums stay in L2
FLOAT_ROWS = 384  # rows of float32 at most that pass over one: their slab stays in L2
AHEAD = 1 << 18  # bytes of W at most that are brought near at once: into L2, beside the rest


@outer
def tiles_of(m):
    """How m rows are cut: so many tiles of three units, then so many shorter ones, and the rows of those."""
    units = (m + UNIT - 1) // UNIT
    tall, rest = units // 3, units % 3
    if rest == 0:
        return tall, 0, 2 * UNIT
    if rest == 2:
        return tall, 1, 2 * UNIT
    if tall == 0:
        return 0, 1, UNIT
    return tall - 1, 2, 2 * UNIT


@outer
def tile_at(t, tall, low):
    """The first row of tile t, and how many it has."""
    if t < tall:
        return t * TALL, TALL
    return tall * TALL + (t - tall) * low, low


@outer
def row_addresses(table, w, pitch, first, n):
    """The addresses of COLUMNS rows of W; those beyond the last are the last."""
    for i in range(COLUMNS):
        tile.put_word(table, i, w + min(first + i, n - 1) * pitch)


@outer
def read_ahead(table, valid, shift, nbytes):
    """Bring a part of each row near, in sequence: CPUs prefetch that fourfold faster than pieces of many rows."""
    for i in range(valid):
        row = tile.get_word(table, i) + shift
        for line in range(row, row + nbytes, 64):
            touch(line)


@outer
def put(out, sums, first, height, column, n, places):
    """A panel's sums to `height` rows of y: from `first` on, or those that a table names, if it is not 0."""
    for i in range(height):
        row = tile.get_word(places, first + i) if places else first + i
        to = out + (row * n + column) * 4
        if column + COLUMNS <= n:
            tile.move(F32, to, sums + i * ROW)
        else:
            tile.copy(to, sums + i * ROW, (n - column) * 4)


@outer
def cut(m_parts, most, n, work):
    """Chunks of whole panels by parts of x: columns of a chunk, chunks across, parts of x in a chunk, chunks."""
    panels = (n + COLUMNS - 1) // COLUMNS
    wanted = min(max(work // CHUNK, 1), SHARES)
    down = (m_parts + most - 1) // most
    if panels * down < wanted:
        down = min(m_parts, (wanted + panels - 1) // panels)
    part = (m_parts + down - 1) // down
    down = (m_parts + part - 1) // part
    across = min(panels, max(wanted // down, 1))
    share = (panels + across - 1) // across
    across = (panels + share - 1) // share
    return share * COLUMNS, across, part, across * down
