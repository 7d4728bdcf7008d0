"""kv_cache_scatter: rows of float32 into slots of a cache, in its own format.

Threads take parts of all rows, not rows: so the last of two rows with one slot counts, and nothing is sorted.

Floor: the bytes of the rows; a copy of the cache where the result is another array.  Measured on two cores of a Zen 5,
rows of 8x128: 8 rows 0.7 us to float16 and 0.6 to float32, 128 rows 4.1 and 5.1, 512 rows 21 and 25 (39 and 48 on one).
"""

from numba import types
from trueno.backend import Call, Kernel, Rates

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels import tile
from trueno_simd.kernels.cells import CODES, narrow_row, row_bytes
from trueno_simd.kernels.operands import adapted, overlaps, reader, source, target
from trueno_simd.kernels.table import BLOCKS, KERNELS
from trueno_simd.kernels.tile import address, get_word
from trueno_simd.llvm.calls import address_of, pack
from trueno_simd.llvm.jit import outer
from trueno_simd.threads.pool import parallel_for

CHUNK = 1 << 17  # bytes of x that justify a separate chunk
SHARES = 8  # chunks at most
LEAST = 256  # numbers of a row at least that a chunk takes: several lines, and whole blocks

JOB = reader(8)


@outer
def columns(args, index):
    """Some columns of all rows: of rows with the same slot the last one counts, whichever thread comes first."""
    x, slots, count, out, form, width, slot_bytes, share = JOB(args)
    first = index * share
    n = min(share, width - first)
    to, start = out + row_bytes(form, first), x + first * 4
    for i in range(count):
        slot = get_word(slots, i)
        if slot >= 0:
            narrow_row(form, start + i * width * 4, to + slot * slot_bytes, n)
    return 0


def _scatter(cache, x, slots, form, out):
    pages, page, heads, row = cache.shape
    if x.shape[0] != slots.size or x.shape[1] != heads or row != row_bytes(form, x.shape[2]):
        return -1
    if out.shape != cache.shape or overlaps(out, x) or overlaps(out, slots):
        return -1
    if overlaps(out, cache) and address(out) != address(cache):
        return -1
    wrong = 0
    for i in range(slots.size):
        wrong |= (slots[i] < -1) | (slots[i] >= pages * page)
    if wrong:
        return -1
    if address(out) != address(cache):
        tile.copy(address(out), address(cache), cache.nbytes)
    width = heads * x.shape[2]
    if slots.size and width:
        wanted = min(x.nbytes // CHUNK, SHARES, width // LEAST)
        share = width if wanted < 2 else ((width + wanted - 1) // wanted + LEAST - 1) // LEAST * LEAST
        args = pack((address(x), address(slots), slots.size, address(out), form, width, heads * row, share))
        parallel_for(address_of(columns), args, (width + share - 1) // share)
    return 0


@KERNELS.add("kv_cache_scatter", rates=Rates(0.5e-6, 5e9, 2e10), dtypes=BLOCKS)
def kv_cache_scatter(device: None, call: Call) -> Kernel:
    """cache[pages,page,h,bytes] x[n,h,d] slots[n] -> out, which may be the cache; a slot out of range: -1."""
    signature = types.intp(source(types.uint8, 4), source(types.float32, 3), source(types.int64, 1), types.int64,
                           target(types.uint8, 4))  # fmt: skip
    compiled = kernel_entry(signature)(_scatter)
    form = CODES[dict(call.static)["format"]]

    return adapted(lambda cache, x, slots, out: (cache, x, slots, form, out), compiled)
