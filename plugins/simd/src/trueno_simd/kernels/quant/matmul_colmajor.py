"""quant_matmul_colmajor: y[m,n] = x[m,k] W, W[k,n] quantized in blocks along n; activations in float32.

A scale belongs to neighbours along n, so no sum over k can be one of integers.  Some rows of a few blocks are decoded
to float32, which stay in the L2 cache while all rows of x pass over them through the register tiles of matmul.

Floor: 2 m n k operations at the multiply-add units' peak (258 GFLOP/s a core where this was measured, Zen 5 with
AVX-512); for few rows of x, decoding.  One thread reaches 160 of them with q4_k, where matmul has 180.
"""

from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from typing import Any

from numba import types
from trueno.backend import FORMATS, Call, Kernel, Rates

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels import tile
from trueno_simd.kernels.operands import SCRATCH, reader, source, target, with_scratch
from trueno_simd.kernels.quant.dequantize import decoder
from trueno_simd.kernels.quant.regions import settled
from trueno_simd.kernels.quant.tile.floats import multiply, rows_in_slabs, slab_bytes
from trueno_simd.kernels.quant.tile.layout import COLUMNS, DEPTH, ROW
from trueno_simd.kernels.quant.tile.shares import CHUNK, FLOAT_ROWS, SHARES, put
from trueno_simd.kernels.table import BLOCKS, KERNELS
from trueno_simd.kernels.tile import address
from trueno_simd.llvm.calls import acquire_gil, address_of, pack, release_gil
from trueno_simd.llvm.jit import outer, special
from trueno_simd.threads.pool import parallel_for

# What differs between formats: `_kernel` gives the functions below that use these a copy of their own.
ELEMENTS = NBYTES = 1
decode: Any = None

ACROSS = 256  # columns decoded at a time: one block, or eight
PITCH = (ACROSS + 16) * 4  # bytes between decoded rows; no power of two, so that they spread over the cache's sets
FEW = 32  # rows decoded at a time where few rows of x pass over them: they stay in L1; else DEPTH


@outer
def piece(args, index):
    """Some columns of y, for some rows of x."""
    w, x, x_row, x_slab, out, area, m, n, k, across, rows, step, area_bytes = JOB(args)
    first, left = index // across * rows, index % across * ACROSS
    height, width = min(rows, m - first), min(ACROSS, n - left)
    panel, w_row = area + index * area_bytes, n // ELEMENTS * NBYTES
    sums = panel + step * PITCH
    for p in range(0, k, step):
        depth = min(step, k - p)
        for i in range(depth):
            for b in range(width // ELEMENTS):
                decode(w + (p + i) * w_row + (left // ELEMENTS + b) * NBYTES, panel + i * PITCH + b * ELEMENTS * 4)
        at = x + first * x_row + p // DEPTH * x_slab + p % DEPTH * 4
        for j in range(0, width, COLUMNS):  # blocks are whole numbers of tiles wide
            multiply(at, x_row, panel + j * 4, PITCH, sums + j * 4 * height, ROW, height, depth, p)
    for j in range(0, width, COLUMNS):
        put(out, sums + j * 4 * height, first, height, left + j, n, 0)
    return 0


JOB = reader(13)


def _multiply(x, w, out, scratch):
    m, k = x.shape
    n = out.shape[1]
    status = settled(w, k, n, ELEMENTS, NBYTES, x, out) if out.shape[0] == m else -1
    if status:
        return min(status, 0)
    across = (n + ACROSS - 1) // ACROSS
    wanted = min(max(2 * m * n * k // CHUNK, 1), SHARES)
    down = max(
        (m + FLOAT_ROWS - 1) // FLOAT_ROWS, min((wanted + across - 1) // across, (m + tile.TALL - 1) // tile.TALL)
    )
    rows = (m + down - 1) // down
    down = (m + rows - 1) // rows
    step = DEPTH if rows > tile.TALL else FEW
    area = step * PITCH + rows * ACROSS * 4
    slabs = slab_bytes(m, k)
    need = 64 + slabs + area * across * down
    if need > scratch.size:
        return need
    start = (address(scratch) + 63) // 64 * 64
    state = release_gil()
    at, x_row, x_slab = rows_in_slabs(address(x), start, m, k)
    job = pack((address(w), at, x_row, x_slab, address(out), start + slabs, m, n, k, across, rows, step, area))
    parallel_for(address_of(piece), job, across * down)
    acquire_gil(state)
    return 0


@cache
def _kernel(name: str) -> Callable[..., int]:
    f = FORMATS[name]
    word = f"quant_matmul_colmajor_{name}_{blake2b(repr(f).encode(), digest_size=8).hexdigest()}"
    namespace: dict[str, Any] = {"ELEMENTS": f.elements, "NBYTES": f.nbytes, "decode": decoder(name)}
    namespace["piece"] = outer(special(piece, f"piece_{word}", namespace))
    weights = types.Array(types.uint8, 2, "C", readonly=True)
    signature = types.intp(source(types.float32, 2), weights, target(types.float32, 2), SCRATCH)
    return with_scratch(kernel_entry(signature)(special(_multiply, word, namespace)))


@KERNELS.add("quant_matmul_colmajor", rates=Rates(2e-6, 6e10, 4e10), dtypes=BLOCKS)
def quant_matmul_colmajor(device: None, call: Call) -> Kernel:
    """x[m,k] float32, w[k,bytes] of the format -> out[m,n]."""
    return _kernel(dict(call.static)["format"])
