"""lz4_compress x[n,p] bytes -> blocks[n,p] sizes[n]: each row an LZ4 block, or as it is where a block is no smaller.

A chunk of the region is a run of pages with a table of its own, which holds what `encode` has seen of one page.

Floor: the bytes of x read, those of blocks written; the search is far above it.  Measured on one core of an EPYC of
family 25 with AVX-512, in cache, 4 KiB pages, GB/s of x, and of the package lz4 called page by page: JSON 1.17 (1.06),
source text 0.57 (0.51), zeros 18 (4.6), random bytes 5.1 (2.7), with blocks of the same sizes.  The blocks of level 2
are as small as those of the package's high compression at level 3.
"""

from functools import cache

from numba import types
from trueno.backend import Call, Kernel, Rates

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels.gather import shares
from trueno_simd.kernels.lz4 import encode, lazy
from trueno_simd.kernels.operands import SCRATCH, overlaps, reader, source, target, with_scratch
from trueno_simd.kernels.quant.regions import share_out
from trueno_simd.kernels.table import BLOCKS, KERNELS
from trueno_simd.kernels.tile import address, clear, copy, put_word
from trueno_simd.llvm.calls import address_of, pack
from trueno_simd.llvm.jit import inner, outer

MOST = 1 << 16
"""Bytes of the largest page: positions have 16 bits."""
JOB = reader(8)


@inner
def _pages(encoder, args, index):
    x, page, blocks, sizes, count, share, tables, room = JOB(args)
    for i in range(index * share, min((index + 1) * share, count)):
        row, block = x + i * page, blocks + i * page
        size = encoder(row, page, block, tables + index * room)
        if size == 0:
            copy(block, row, page)
            put_word(sizes, i, -page)
        else:
            clear(block + size, page - size)
            put_word(sizes, i, size)
    return 0


@outer
def pages(args, index):
    """Compress a chunk of pages, level 1."""
    return _pages(encode.encode, args, index)


@outer
def lazy_pages(args, index):
    """Compress a chunk of pages, level 2."""
    return _pages(lazy.encode_lazily, args, index)


@inner
def _all_pages(piece, room, x, blocks, sizes, scratch):
    count, page = x.shape
    if blocks.shape[0] != count or blocks.shape[1] != page or sizes.size != count or page < 1 or page > MOST:
        return -1
    if overlaps(blocks, x) or overlaps(sizes, x) or overlaps(sizes, blocks):
        return -1
    if count == 0:
        return 0
    share, chunks = shares(count, x.nbytes)
    need = chunks * room
    if scratch.size < need:
        return need
    args = pack((address(x), page, address(blocks), address(sizes), count, share, address(scratch), room))
    share_out(address_of(piece), args, chunks)
    return 0


def _compress1(x, blocks, sizes, scratch):
    return _all_pages(pages, encode.ROOM, x, blocks, sizes, scratch)


def _compress2(x, blocks, sizes, scratch):
    return _all_pages(lazy_pages, lazy.ROOM, x, blocks, sizes, scratch)


@cache
def _compiled(level: int) -> Kernel:
    signature = types.intp(source(types.uint8, 2), target(types.uint8, 2), target(types.int64, 1), SCRATCH)
    return with_scratch(kernel_entry(signature)(_compress1 if level == 1 else _compress2))


@KERNELS.add("lz4_compress", rates=Rates(1e-6, 1e11, 2e9), dtypes=BLOCKS)
def lz4_compress(device: None, call: Call) -> Kernel:
    """x[n,p] bytes -> blocks[n,p] bytes, sizes[n] int64; the parameter `level` names the search."""
    return _compiled(dict(call.static)["level"])
