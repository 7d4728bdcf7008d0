"""lz4_compress: a workgroup makes a page's block.

Bytes: the page is read once (a long one for each comparison, from caches), and its block is written over zeros, which
makes two writes of it.  Operations: about 150 on integers per invocation for a window of 32 positions, and as many for
a sequence; a page that does not compress costs a window per 32 bytes.
"""

import struct
from typing import Any

from trueno.backend import Call, Kernel

from trueno_wgpu.device.gpu import Gpu
from trueno_wgpu.device.grid import fold
from trueno_wgpu.kernels.lz4.sequences import shader
from trueno_wgpu.kernels.lz4.words import MOST, SHARED, rows
from trueno_wgpu.kernels.memory import bands, clashes
from trueno_wgpu.kernels.table import KERNELS, RATES


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
        how = shader(level, page <= SHARED, limits.workgroup)
        for first, count in bands("lz4_compress", "x", n, (page, 8), limits):
            buffers = [rows(x, first, count, page), rows(blocks, first, count, page), rows(sizes, first, count, 8)]
            # A turn passes at least four bytes.  llvmpipe's limit is not reached: an invocation makes four trips per
            # turn, with those of the loops in it, and 65 536 bytes are the largest page.
            gpu.run(how, buffers, struct.pack("<3I", count, page, page // 4 + 2), fold(count, limits.groups))
        return 0

    return kernel
