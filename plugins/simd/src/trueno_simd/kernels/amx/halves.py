"""matmul of bfloat16 and float16 operands, computed in float32 and rounded once.

bfloat16 goes to AMX's tiles, if there are any and they suit the product: on two cores of Emerald Rapids they make 1.6
to 1.9 TFLOP/s of 1024 and 2048 squared, as PyTorch does.  All else is widened, multiplied in float32, and rounded.
"""

from functools import cache
from typing import Any

import numpy as np
from numba import types
from trueno.backend import Kernel

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels.amx.attempts import LEAST_K, MOST_K
from trueno_simd.kernels.amx.pack import STRIP_STEP16
from trueno_simd.kernels.amx.product import multiply, over, places, slab_of
from trueno_simd.kernels.operands import SCRATCH, source, target, with_scratch
from trueno_simd.kernels.tile import address
from trueno_simd.llvm.amx import Tiles
from trueno_simd.llvm.calls import acquire_gil, address_of, release_gil
from trueno_simd.llvm.jit import special

NAMES = ("float16", "bfloat16")
LEAST = 64**3  # m n k from which on packing pays; at 256 squared tiles are already four times as fast as float32
SHAPE = (1024, 1024, 128, 512)  # as `product.multiply` takes it; the best of 54 on two cores of Emerald Rapids
LEFT = -3  # the operands are fine, and not multiplied

pack_piece = block_piece = None  # `tiled` gives the function below a copy that has them


def _multiply(a, b, out, scratch):
    """bfloat16's bits, of agreeing sizes: 0, LEFT, or the bytes of scratch that it needs."""
    (m, k), n = a.shape, b.shape[1]
    if m * n * k < LEAST or k < LEAST_K or k > MOST_K:
        return LEFT
    need = places(2, STRIP_STEP16, m, n, slab_of(SHAPE[0], k), 0)[4]
    if need > scratch.size:
        return need
    state = release_gil()
    done = multiply(2, STRIP_STEP16, address_of(pack_piece), address_of(block_piece), address(a), address(b),
                    address(out), m, n, k, address(scratch), SHAPE, 0, 0, 0)  # fmt: skip
    acquire_gil(state)
    return 0 if done else LEFT


@cache
def tiled(tiles: Tiles) -> Kernel:
    """The function above over one form of the tiles, as `kernel(a, b, out)`."""
    pieces = dict(zip(("pack_piece", "block_piece"), over(tiles, 16), strict=True))
    signature = types.intp(source(types.uint16, 2), source(types.uint16, 2), target(types.uint16, 2), SCRATCH)
    return with_scratch(kernel_entry(signature)(special(_multiply, f"multiply16_{tiles.name}", pieces)))


def product(dtype: np.dtype[Any], single: Kernel, tiles: Tiles | None) -> Kernel:
    """The kernel of operands of `dtype`; single: float32's."""
    on_tiles = tiled(tiles) if tiles is not None and dtype.name == "bfloat16" else None

    def kernel(a: Any, b: Any, out: Any) -> int | None:
        fit = a.ndim == b.ndim == 2 and a.shape[1] == b.shape[0] and out.shape == (a.shape[0], b.shape[1])
        if not fit or not a.dtype == b.dtype == out.dtype == dtype:
            return -1
        if not out.flags.writeable or np.may_share_memory(out, a) or np.may_share_memory(out, b):
            return -1
        if on_tiles is not None and all(x.flags.c_contiguous for x in (a, b, out)):
            status = on_tiles(*(x.view(np.uint16) for x in (a, b, out)))
            if status != LEFT:
                return status
        sums = np.empty(out.shape, np.float32)
        status = single(a.astype(np.float32, order="C"), b.astype(np.float32, order="C"), sums)
        if not status:
            with np.errstate(all="ignore"):
                np.copyto(out, sums)
        return status

    return kernel
