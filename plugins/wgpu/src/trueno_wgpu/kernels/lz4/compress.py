"""lz4_compress: a workgroup makes a page's block.

Bytes: the page is read once, and from caches again for each comparison; its block is written over zeros, which makes
two writes of it.  Operations: about 150 on integers per invocation for a window of 32 positions, and as many for
a sequence; a page that does not compress costs a window per 32 bytes.
"""

import struct
from typing import Any

from trueno.backend import Call, Kernel

from trueno_wgpu.device.gpu import Gpu
from trueno_wgpu.device.grid import fold
from trueno_wgpu.kernels.lz4.sequences import shader
from trueno_wgpu.kernels.lz4.words import MOST, RATES, SHARED, rows
from trueno_wgpu.kernels.memory import bands, clashes
from trueno_wgpu.kernels.table import KERNELS

SHORT_BITS, BITS, MORE_BITS = 10, 11, 12
"""Of the number of a table's entries.  With SHORT_BITS blocks of 4 KiB of mixed data are 1.006 of those of the package
lz4 long, and four times as many workgroups run at once as with MORE_BITS, where workgroup memory is the limit."""
ROOM = 24 << 10
"""Bytes of workgroup memory for MORE_BITS."""


def bits(page: int, level: int, room: int) -> int:
    """Those of the table for a page, on a device with `room` bytes of workgroup memory; level 2 has two in one."""
    if page <= SHARED:
        return SHORT_BITS + (level > 1)
    return MORE_BITS if room >= ROOM else BITS


@KERNELS.add("lz4_compress", rates=RATES)
def lz4_compress(gpu: Gpu, call: Call) -> Kernel:
    """x[n,p] -> blocks[n,p] sizes[n].  A guarded kernel has nothing to report: a block is bytes."""
    level, limits = dict(call.static)["level"], gpu.limits

    def kernel(x: Any, blocks: Any, sizes: Any) -> int:
        if len(x.shape) != 2 or blocks.shape != x.shape or sizes.shape != x.shape[:1] or not 1 <= x.shape[1] <= MOST:
            return -1
        if clashes(blocks, x, sizes) or clashes(sizes, x):
            return -1
        n, page = x.shape
        if not n:
            return 0
        how = shader(level, bits(page, level, limits.workgroup))
        for first, count in bands("lz4_compress", "x", n, (page, 8), limits):
            buffers = [rows(x, first, count, page), rows(blocks, first, count, page), rows(sizes, first, count, 8)]
            # llvmpipe's limit is not reached: an invocation makes three trips per sequence, of four bytes at least, and
            # one per window; 65 536 bytes are the largest page.
            gpu.run(how, buffers, struct.pack("<3I", count, page, page // 32 + 2), fold(count, limits.groups))
        return 0

    return kernel
