"""c[m,n] = a[m,k] b[k,n] by register tiles, in float32 and float64.

`direct` reads A and B where they are: best while B stays in L2.  `packed` first copies a slab of B into
panels one tile wide and a slab of A into rows of one pitch, because the rows of a large matrix lie so far
apart (often a power of two) that they fall into few cache sets and touch a page each.
"""

from trueno_simd.kernels import tile
from trueno_simd.kernels.operands import F32, F64, reader
from trueno_simd.kernels.tile import LOW, TALL, WIDTH, size_of, strip
from trueno_simd.llvm.calls import address_of, call_finish, pack
from trueno_simd.llvm.jit import inner, outer
from trueno_simd.llvm.streaming import prefetch
from trueno_simd.threads.pool import parallel_for

DEPTH = 256  # steps of k between two visits of C: a panel of B is then 32 KiB and stays in L1
GROUP = 8  # panels of B in one block, which then stay in L2
BLOCK = 16 * TALL  # rows of A in one block, which then stay in L2
COPIED = 64  # rows of A that one chunk copies
PITCH = DEPTH + 16  # elements between two packed rows of A; not a power of two, so that they spread over the sets
NEAR = 1 << 20  # bytes of B up to which it is read in place
CHUNK = 1 << 20  # operations that justify a separate chunk (4 us)


@inner
def ask(c, c_row, rows):
    """Prefetch the tile of C to which sums are added next."""
    for r in range(rows):
        for line in range(0, WIDTH, 64):
            prefetch(c + r * c_row + line)
        prefetch(c + r * c_row + WIDTH - 1)


@outer
def block(like, job, index):
    """One block of C; blocks are counted down the rows first, so that neighbours share B's panels."""
    a, a_row, b, b_step, b_panel, c, c_row, m, n, k, accumulate, rows, columns, finish, more, above = job
    size = size_of(like)
    step = WIDTH // size
    down = (m + rows - 1) // rows
    top, left = index % down * rows, index // down * columns
    bottom, right = min(top + rows, m), min(left + columns, n)
    # What is to be finished is made in parts that are still near by then.
    height, width = (BLOCK, GROUP * step) if finish else (rows, columns)
    for first in range(left, right, width):
        last = min(first + width, right)
        for i in range(top, bottom, height):
            tall = min(height, bottom - i)
            for j in range(first, last, step):
                panel, place = b + j // step * b_panel, c + i * c_row + j * size
                if not accumulate:
                    strip(like, a + i * a_row, a_row, panel, b_step, place, c_row, tall, k, n - j, 0)
                    continue
                for r in range(0, tall, TALL):
                    ask(place + (r + TALL) * c_row, c_row, min(TALL, tall - r - TALL))
                    strip(like, a + (i + r) * a_row, a_row, panel, b_step, place + r * c_row, c_row,
                          min(TALL, tall - r), k, n - j, 1)  # fmt: skip
            if finish:
                call_finish(finish, more, above + i, tall, first, last - first)


@outer
def pack_slab(like, job, index):
    """Copy a group of B's panels, or some rows of A, into the order in which tiles read them."""
    a, a_row, b, b_row, m, n, k, a_packed, b_packed = job
    size = size_of(like)
    step = WIDTH // size
    groups = (n + GROUP * step - 1) // (GROUP * step)
    if index >= groups:
        first = (index - groups) * COPIED
        for i in range(first, min(first + COPIED, m)):
            tile.copy(a_packed + i * PITCH * size, a + i * a_row, k * size)
        return
    first, panel = index * GROUP, k * WIDTH
    full = min(first + GROUP, n // step)
    for p in range(k):
        for j in range(first, full):
            tile.move(like, b_packed + j * panel + p * WIDTH, b + p * b_row + j * WIDTH)
    if full < first + GROUP and n % step:
        for p in range(k):
            place = b_packed + full * panel + p * WIDTH
            tile.clear(place, WIDTH)
            tile.copy(place, b + p * b_row + full * WIDTH, n % step * size)


@outer
def item(like, job, index):
    """One product of a batch, alone."""
    a, b, c, m, n, k, finish, more = job
    size = size_of(like)
    block(like, (a + index * m * k * size, k * size, b + index * k * n * size, n * size, WIDTH,
                 c + index * m * n * size, n * size, m, n, k, 0, m, n, finish, more, index * m), 0)  # fmt: skip


BLOCK_JOB, SLAB_JOB, ITEM_JOB = reader(16), reader(9), reader(8)


@outer
def block32(args, index):
    block(F32, BLOCK_JOB(args), index)
    return 0


@outer
def block64(args, index):
    block(F64, BLOCK_JOB(args), index)
    return 0


@outer
def slab32(args, index):
    pack_slab(F32, SLAB_JOB(args), index)
    return 0


@outer
def slab64(args, index):
    pack_slab(F64, SLAB_JOB(args), index)
    return 0


@outer
def item32(args, index):
    item(F32, ITEM_JOB(args), index)
    return 0


@outer
def item64(args, index):
    item(F64, ITEM_JOB(args), index)
    return 0


@inner
def direct(like, block_piece, a, b, c, m, n, k, finish, more, above):
    size = size_of(like)
    step = WIDTH // size
    wanted = min(max(2 * m * n * k // CHUNK, 1), 32)
    down = min(wanted, (m + TALL - 1) // TALL)
    rows = ((m + down - 1) // down + LOW - 1) // LOW * LOW
    panels = (n + step - 1) // step
    across = min((wanted + down - 1) // down, panels)
    columns = (panels + across - 1) // across * step
    chunks = ((m + rows - 1) // rows) * ((n + columns - 1) // columns)
    args = pack((a, k * size, b, n * size, WIDTH, c, n * size, m, n, k, 0, rows, columns, finish, more, above))
    parallel_for(address_of(block_piece), args, chunks)


@inner
def packed(like, block_piece, slab_piece, a, b, c, m, n, k, scratch, finish, more, above):
    size = size_of(like)
    columns = GROUP * (WIDTH // size)
    groups = (n + columns - 1) // columns
    rows = min(BLOCK, ((m + 1) // 2 + TALL - 1) // TALL * TALL)
    b_packed = (scratch + 63) // 64 * 64
    a_packed = b_packed + groups * GROUP * WIDTH * DEPTH
    for p in range(0, k, DEPTH):
        depth = min(DEPTH, k - p)
        slab = pack((a + p * size, k * size, b + p * n * size, n * size, m, n, depth, a_packed, b_packed))
        parallel_for(address_of(slab_piece), slab, groups + (m + COPIED - 1) // COPIED)
        done = finish if p + depth == k else 0
        args = pack((a_packed, PITCH * size, b_packed, WIDTH, depth * WIDTH, c, n * size, m, n, depth,
                     int(p > 0), rows, columns, done, more, above))  # fmt: skip
        parallel_for(address_of(block_piece), args, (m + rows - 1) // rows * groups)


@outer
def scratch_bytes(like, m, n, k):
    """Bytes that `packed` needs; 0 where `direct` is better: B is near, or A has too few rows to pay for packing."""
    size = size_of(like)
    if k * n * size <= NEAR or m <= 2 * TALL:
        return 0
    columns = GROUP * (WIDTH // size)
    return 64 + (n + columns - 1) // columns * GROUP * WIDTH * DEPTH + m * PITCH * size


@inner
def product(like, block_piece, slab_piece, a, b, c, m, n, k, scratch, finish, more, above):
    if scratch_bytes(like, m, n, k) == 0:
        direct(like, block_piece, a, b, c, m, n, k, finish, more, above)
    else:
        packed(like, block_piece, slab_piece, a, b, c, m, n, k, scratch, finish, more, above)
