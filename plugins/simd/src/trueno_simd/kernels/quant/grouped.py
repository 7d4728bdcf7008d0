"""Products of several experts with some rows of x each, as one: the tiles of `quant.matmul`, packed for each expert.

Rows are read where they are and results go where they belong, by a table of places.  One parallel region quantizes and
packs the tiles of all experts, a second one multiplies them; results are those of `quant_matmul`, bit for bit.

Floor: that of `quant_matmul` for each expert; with few rows of each, decoding it once.  Measured with 64 tokens that
name 8 of 32 experts of 768x2048 in q4_k, on two cores of a Zen 5: 2.2 ms, 720 GFLOP/s, over 3.2 ms expert by expert.
"""

from collections.abc import Callable
from functools import cache

from numba import types

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels.operands import SCRATCH, overlaps, reader, source, target, with_scratch
from trueno_simd.kernels.quant.matmul import add, chunk_bytes, multiply_piece, pieces, quantize_piece, row_bytes
from trueno_simd.kernels.quant.tile.layout import DEPTH, TALL
from trueno_simd.kernels.quant.tile.shares import CHUNK, SHARES, TILES, cut, tiles_of
from trueno_simd.kernels.tile import address, clear, get_word, put_word
from trueno_simd.llvm.calls import acquire_gil, address_of, pack, release_gil
from trueno_simd.llvm.jit import outer, special
from trueno_simd.threads.pool import parallel_for

# What differs between formats: `grouped` gives the functions below that use these a copy of their own.
ELEMENTS = NBYTES = GROUP = X_GROUP = X_TAIL = 1

PACKED = 1 << 15  # numbers of x, to be quantized, that are worth a chunk of their own
PACK, MULTIPLY, WORDS = 2, 12, 25  # of an expert: the ends of its chunks in both regions, then the jobs of both

EXPERTS_JOB = reader(2)


@outer
def expert_of(table, groups, which, index):
    """The expert to which a chunk belongs."""
    low, high = 0, groups - 1
    while low < high:
        middle = (low + high) // 2
        if index < get_word(table + middle * WORDS * 8, which):
            high = middle
        else:
            low = middle + 1
    return low


@outer
def pack_tiles(args, index):
    table, groups = EXPERTS_JOB(args)
    g = expert_of(table, groups, 0, index)
    begin = get_word(table + (g - 1) * WORDS * 8, 0) if g else 0
    return quantize_piece(table + (g * WORDS + PACK) * 8, index - begin)


@outer
def multiply_tiles(args, index):
    table, groups = EXPERTS_JOB(args)
    g = expert_of(table, groups, 1, index)
    begin = get_word(table + (g - 1) * WORDS * 8, 1) if g else 0
    return multiply_piece(table + (g * WORDS + MULTIPLY) * 8, index - begin)


@outer
def put_job(to, job, words):
    for i in range(words):
        put_word(to, i, get_word(job, i))


def _grouped(w, x, order, starts, experts, out, scratch):
    places, n = out.shape
    t, k = x.shape
    groups = experts.size
    if k % ELEMENTS or w.shape[1] != k // ELEMENTS * NBYTES or starts.size != groups + 1 or t == 0 or places % t:
        return -1
    if overlaps(out, w) or overlaps(out, x) or overlaps(out, order):
        return -1
    if k == 0 or n == 0:
        clear(address(out), out.nbytes)
        return 0
    row_tiles = k // GROUP * X_GROUP + k // DEPTH * X_TAIL
    temporary = row_bytes(k)
    table = (address(scratch) + 63) // 64 * 64
    # twice: the first pass finds how much scratch there must be, the second knows where everything is
    area = areas = 0
    for known in range(2):
        at = table + (groups * WORDS * 8 + 63) // 64 * 64
        packers = chunks = 0
        for g in range(groups):
            m = starts[g + 1] - starts[g]
            tall, lower, low = tiles_of(m)
            count = tall + lower
            wanted = (SHARES * m + order.size - 1) // order.size
            share, across, part, parts = cut(count, TILES, n, wanted * CHUNK)
            rows = (tall * TALL + lower * low + 15) // 16 * 16
            pack_count = min(count, max(m * k // PACKED, 1))
            x_share = (count + pack_count - 1) // pack_count
            tiles, flags = at, at + (rows * row_tiles + 63) // 64 * 64
            at = flags + (count * 8 + 63) // 64 * 64
            if known:
                some, entry = address(order) + starts[g] * 8, table + g * WORDS * 8
                job = pack((address(x), tiles, areas + packers * temporary, flags, m, k, x_share, temporary, some,
                            places // t))  # fmt: skip
                put_job(entry + PACK * 8, job, MULTIPLY - PACK)
                job = pack((address(w) + experts[g] * n * w.shape[1], tiles, flags, address(out),
                            areas + chunks * area, m, n, k, share, across, part, area, some))  # fmt: skip
                put_job(entry + MULTIPLY * 8, job, WORDS - MULTIPLY)
            else:
                area = max(area, chunk_bytes(min(part * TALL, rows)))
            packers += (count + x_share - 1) // x_share
            chunks += parts
            if known:
                put_word(entry, 0, packers)
                put_word(entry, 1, chunks)
        areas = at
        need = 64 + at - table + max(area * chunks, temporary * packers)
        if need > scratch.size:
            return need
    state = release_gil()
    job = pack((table, groups))
    parallel_for(address_of(pack_tiles), job, packers)
    parallel_for(address_of(multiply_tiles), job, chunks)
    acquire_gil(state)
    return 0


@cache
def grouped(name: str) -> Callable[..., int]:
    """The kernel (w, x, order, starts, experts, out) of a plain format, activations in 8 bits.

    order[starts[i]:starts[i + 1]] are the places of experts[i]: rows of out, of which each row of x has equally many.
    """
    parts, word = pieces(name)
    namespace = dict(parts)
    add(namespace, word, pack_tiles)
    add(namespace, word, multiply_tiles)
    indices = source(types.int64, 1)
    signature = types.intp(
        source(types.uint8, 2), source(types.float32, 2), indices, indices, indices, target(types.float32, 2), SCRATCH
    )
    return with_scratch(kernel_entry(signature)(special(_grouped, f"quant_experts_{word}", namespace)))
