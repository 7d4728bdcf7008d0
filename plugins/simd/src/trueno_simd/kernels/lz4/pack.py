"""lz4_pack blocks[n,p] sizes[n] -> packed[n*p] offsets[n]: the used bytes of all blocks one after another, then zeros.

The sums of the sizes are one pass of one thread, a nanosecond for each page; all threads copy, and clear what is
behind the last block.

Floor: the used bytes read, n p bytes written.
"""

from functools import cache
from typing import Any

from numba import types
from trueno.backend import Call, Kernel, Rates

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels.gather import shares
from trueno_simd.kernels.lz4.decompress import index_type, number_at
from trueno_simd.kernels.operands import overlaps, reader, resolving, source, target
from trueno_simd.kernels.quant.regions import share_out
from trueno_simd.kernels.table import BLOCKS, KERNELS
from trueno_simd.kernels.tile import address, clear, copy, get_word
from trueno_simd.llvm import elsewhere
from trueno_simd.llvm.calls import address_of, pack
from trueno_simd.llvm.jit import outer

JOB = reader(10)


@outer
def move_blocks(args, index):
    """Copy a chunk of blocks, and clear as large a part of what is behind the last one.

    Sizes and offsets are limited once more: another thread may have changed them since they were checked.
    """
    blocks, page, sizes, short_sizes, packed, offsets, count, share, total, chunks = JOB(args)
    room = count * page
    for i in range(index * share, min((index + 1) * share, count)):
        offset = min(max(get_word(offsets, i), 0), room)
        used = min(max(number_at(sizes, i, short_sizes), -page), page)
        copy(packed + offset, blocks + i * page, min(abs(used), room - offset))
    unused = room - total
    first, end = index * unused // chunks, (index + 1) * unused // chunks
    clear(packed + total + first, end - first)
    return 0


def _pack(blocks, sizes, packed, offsets):
    count, page = blocks.shape
    if sizes.size != count or offsets.size != count or packed.size != count * page:
        return -1
    if overlaps(packed, blocks) or overlaps(packed, sizes) or overlaps(packed, offsets):
        return -1
    if overlaps(offsets, blocks) or overlaps(offsets, sizes):
        return -1
    wrong = 0
    for i in range(count):
        wrong |= (sizes[i] < -page) | (sizes[i] > page)
    if wrong:
        return -1
    total = 0
    for i in range(count):
        offsets[i] = total
        total += min(abs(types.int64(sizes[i])), page)
    if packed.size:
        share, chunks = shares(count, packed.nbytes)
        args = pack((address(blocks), page, address(sizes), int(sizes.itemsize == 4), address(packed),
                     address(offsets), count, share, total, chunks))  # fmt: skip
        share_out(address_of(move_blocks), args, chunks)
    return 0


@cache
def _compiled(sizes: Any) -> Any:
    """The kernel for a type of sizes."""
    signature = types.intp(source(types.uint8, 2), source(sizes, 1), target(types.uint8, 1), target(types.int64, 1))
    return elsewhere.run(lambda: kernel_entry(signature)(_pack))


@KERNELS.add("lz4_pack", rates=Rates(1e-6, 1e11, 8e10), dtypes=BLOCKS)
def lz4_pack(device: None, call: Call) -> Kernel:
    """blocks[n,p] bytes, sizes[n] int64 or int32 -> packed[n*p] bytes, offsets[n] int64.

    A size beyond p: -1 with nothing written, and the core raises.
    """
    _compiled(types.int64)

    def resolve(blocks: Any, sizes: Any, packed: Any, offsets: Any) -> tuple[Any, tuple[Any, ...], int] | None:
        kind = index_type(sizes)
        return None if kind is None else (_compiled(kind), (blocks, sizes, packed, offsets), 0)

    return resolving(resolve)
