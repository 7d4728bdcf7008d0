"""kv_cache_scatter: rows of float32 into slots of a cache, in its own format.

Floor: the bytes of the rows; a copy of the cache where the result is another array.
"""

from numba import types
from trueno.backend import Call, Kernel, Rates

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels import tile
from trueno_simd.kernels.cells import CODES, narrow_row, row_bytes
from trueno_simd.kernels.operands import adapted, overlaps, source, target
from trueno_simd.kernels.table import BLOCKS, KERNELS
from trueno_simd.kernels.tile import address


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
    d = x.shape[2]
    for i in range(slots.size):
        if slots[i] >= 0:
            for head in range(heads):
                place = address(out) + (slots[i] * heads + head) * row
                narrow_row(form, address(x) + (i * heads + head) * d * 4, place, d)
    return 0


@KERNELS.add("kv_cache_scatter", rates=Rates(0.5e-6, 5e9, 2e10), dtypes=BLOCKS)
def kv_cache_scatter(device: None, call: Call) -> Kernel:
    """cache[pages,page,h,bytes] x[n,h,d] slots[n] -> out, which may be the cache; a slot out of range: -1."""
    signature = types.intp(source(types.uint8, 4), source(types.float32, 3), source(types.int64, 1), types.int64,
                           target(types.uint8, 4))  # fmt: skip
    compiled = kernel_entry(signature)(_scatter)
    form = CODES[dict(call.static)["format"]]

    return adapted(lambda cache, x, slots, out: (cache, x, slots, form, out), compiled)
