"""lz4_decompress packed[m] offsets[n] sizes[n] -> y[n,page] lengths[n]: pages from blocks anywhere in `packed`.

Nothing is read but the slices that offsets and sizes name, and those only where they lie in `packed`; each page is
written by one thread, and never beyond its own bytes.

Floor: the bytes of the blocks read, those of y written.  Measured on one core of an EPYC of family 25 with AVX-512, in
cache, 4 KiB pages, GB/s of y, and of the package lz4 called page by page: JSON 4.9 (3.2), source text 3.9 (2.9), zeros
27 (6.3), pages stored raw 26 (8.3); two cores decode twice as much.
"""

from functools import cache
from typing import Any

import numpy as np
from numba import types
from trueno.backend import Call, Kernel, Rates

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels.gather import shares
from trueno_simd.kernels.lz4.compress import MOST
from trueno_simd.kernels.lz4.decode import decode
from trueno_simd.kernels.operands import overlaps, reader, resolving, source, target
from trueno_simd.kernels.quant.regions import share_out
from trueno_simd.kernels.table import BLOCKS, KERNELS
from trueno_simd.kernels.tile import address, clear, copy, get_int32, get_word, put_word
from trueno_simd.llvm import elsewhere
from trueno_simd.llvm.calls import address_of, pack
from trueno_simd.llvm.jit import inner, outer

JOB = reader(10)


def index_type(indices: np.ndarray[Any, Any]) -> Any:
    """Numba's type of indices that these kernels take; None of others."""
    return {"i4": types.int32, "i8": types.int64}.get(indices.dtype.str[1:]) if indices.dtype.isnative else None


@inner
def number_at(array, index, is_int32):
    """One index of an array whose width is only known at run time."""
    return get_int32(array, index) if is_int32 else get_word(array, index)


@outer
def _one(packed, room, offset, size, row, page):
    """Decode one page; its bytes, or what its length says where the block is wrong."""
    if size == 0:
        return 0
    if size > room or size < -room:
        return -1
    stored = abs(size)
    if offset < 0 or offset > room - stored:
        return -1
    if size > 0:
        return decode(packed + offset, size, row, page)
    if stored > page:
        return -1
    copy(row, packed + offset, stored)
    return stored


@outer
def pages(args, index):
    """Decode a chunk of pages."""
    packed, room, offsets, short_offsets, sizes, short_sizes, out, lengths, shape, share = JOB(args)
    count, page = get_word(shape, 0), get_word(shape, 1)
    for i in range(index * share, min((index + 1) * share, count)):
        row = out + i * page
        length = _one(packed, room, number_at(offsets, i, short_offsets), number_at(sizes, i, short_sizes), row, page)
        put_word(lengths, i, length)
        used = max(length, 0)
        clear(row + used, page - used)
    return 0


def _decompress(packed, offsets, sizes, out, lengths):
    count, page = out.shape
    if offsets.size != count or sizes.size != count or lengths.size != count or page < 1 or page > MOST:
        return -1
    if overlaps(out, packed) or overlaps(out, offsets) or overlaps(out, sizes) or overlaps(out, lengths):
        return -1
    if overlaps(lengths, packed) or overlaps(lengths, offsets) or overlaps(lengths, sizes):
        return -1
    if count == 0:
        return 0
    share, chunks = shares(count, out.nbytes)
    args = pack((address(packed), packed.size, address(offsets), int(offsets.itemsize == 4), address(sizes),
                 int(sizes.itemsize == 4), address(out), address(lengths), pack((count, page)), share))  # fmt: skip
    share_out(address_of(pages), args, chunks)
    return 0


@cache
def _compiled(offsets: Any, sizes: Any) -> Any:
    """The kernel for two types of indices; pages of every size have the same."""
    signature = types.intp(source(types.uint8, 1), source(offsets, 1), source(sizes, 1), target(types.uint8, 2),
                           target(types.int64, 1))  # fmt: skip
    return elsewhere.run(lambda: kernel_entry(signature)(_decompress))


@KERNELS.add("lz4_decompress", rates=Rates(1e-6, 1e11, 8e9), dtypes=BLOCKS)
def lz4_decompress(device: None, call: Call) -> Kernel:
    """packed[m] bytes, offsets[n], sizes[n] int64 or int32 -> y[n,page] bytes, lengths[n] int64; `page` is static."""
    page = dict(call.static)["page"]
    _compiled(types.int64, types.int64)

    def resolve(
        packed: Any, offsets: Any, sizes: Any, out: Any, lengths: Any
    ) -> tuple[Any, tuple[Any, ...], int] | None:
        kinds = index_type(offsets), index_type(sizes)
        if None in kinds or out.shape != (offsets.size, page):
            return None
        return _compiled(*kinds), (packed, offsets, sizes, out, lengths), 0

    return resolving(resolve)
