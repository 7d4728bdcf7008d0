"""quant_matvec y[n] = W[n,k] x[k], W in blocks, in the file's order, or with its rows interleaved.

With "q8" activations x is first quantized as ggml's CPU code does it, once, to the format's partner (half a microsecond
for 4096), and the products are of whole numbers (`vector`: `dots`, `interleaved`).  With "f32" nothing of x is lost,
and values are decoded in registers (`floats`): three times as much work.  Rows go to the threads in a few even shares.

Floor: the matrix's bytes, once, at the bandwidth of its memory: on the Zen 5 core where this was measured 113 GB/s
from L3, 41 from memory.  4096x4096, AVX-512 with VNNI, one thread, us (two threads when both cores were free),
and ggml's best, rearranged weights where it has them, in the same run:

            from L3                     interleaved     ggml         from memory     ggml
    q4_k    154 (97)    61 GB/s         122 (72)        283 (172)    262             346
    q6_k    199         69              174             351          452             497
    q8_0    280 (147)   64              195 (96)        510 (266)    512             630
    q4_0    167         56              92              361          267             386
    q5_k    229 (119)   50              165 (81)        543 (258)    316             530
    iq4_xs  200         45              116             519          236             506

From L3 it is the instructions that limit: some 40 a block of 256 and row for q4_k, 25 when rows are interleaved.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from trueno.backend import FORMATS, INTERLEAVED, Call, Kernel, Rates

from trueno_simd.kernels.operands import resolved
from trueno_simd.kernels.quant import groups, printed
from trueno_simd.kernels.table import BLOCKS, KERNELS, not_rounded

SHARES = 8  # chunks of rows at most: few, for each begins with cold caches, and enough to balance
FIRST, KEPT = 1 << 14, 1 << 20  # bytes of scratch that a kernel has at first, and keeps

QUANTIZED = '''"""quant_matvec: rows of <format> blocks times activations in <partner>."""

from numba import types

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.llvm.jit import outer
from trueno_simd.kernels.operands import SCRATCH, reader, source, target
from trueno_simd.kernels.quant.activations import quantized
from trueno_simd.kernels.quant.vector.dots import ROWS, quantized_rows
from trueno_simd.kernels.quant.matvec import SHARES
from trueno_simd.kernels.quant.printed import CHUNK
from trueno_simd.kernels.quant.regions import settled, share_out
from trueno_simd.kernels.tile import address
from trueno_simd.llvm.calls import address_of, pack

JOB = reader(9)
quantize = quantized("<partner>")
product = quantized_rows("<format>")


@outer
def rows(args, index):
    w, w_row, codes, d, sums, k, y, n, share = JOB(args)
    stop = min((index + 1) * share, n)
    for i in range(index * share, stop, ROWS):
        product(w + i * w_row, w_row, codes, d, sums, k, y + 4 * i, min(stop - i, ROWS))
    return 0


@kernel_entry(types.intp(source(types.uint8, 2), source(types.float32, 1), target(types.float32, 1), SCRATCH))
def kernel(w, x, out, scratch):
    status = settled(w, out.size, x.size, <elements>, <nbytes>, x, out)
    if status:
        return min(status, 0)
    n, w_row = w.shape
    k = x.size
    need = 64 + k + k // 8 + k // <block> * 4
    if scratch.size < need:
        return need
    codes = (address(scratch) + 63) // 64 * 64
    sums = codes + k
    d = sums + k // 8
    quantize(address(x), k, codes, d, sums)
    wanted = min(max(w.nbytes // CHUNK, 1), SHARES)
    share = ((n + wanted - 1) // wanted + ROWS - 1) // ROWS * ROWS
    args = pack((address(w), w_row, codes, d, sums, k, address(out), n, share))
    share_out(address_of(rows), args, (n + share - 1) // share)
    return 0
'''


GROUPED = '''"""quant_matvec: interleaved rows of <format> blocks times activations in <partner>."""

from numba import types

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.llvm.jit import outer
from trueno_simd.kernels.operands import SCRATCH, reader, source, target
from trueno_simd.kernels.quant.activations import quantized
from trueno_simd.kernels.quant.vector.dots import ROWS, quantized_rows
from trueno_simd.kernels.quant.matvec import SHARES
from trueno_simd.kernels.quant.vector.interleaved import ROWS as GROUP, interleaved_rows
from trueno_simd.kernels.quant.printed import CHUNK
from trueno_simd.kernels.quant.regions import settled, share_out
from trueno_simd.kernels.tile import address
from trueno_simd.llvm.calls import address_of, pack

JOB = reader(9)
quantize = quantized("<partner>")
group, product = interleaved_rows("<format>"), quantized_rows("<format>")


@outer
def rows(args, index):
    w, w_row, codes, d, sums, k, y, n, share = JOB(args)
    stop = min((index + 1) * share, n)
    whole = min(stop, n // GROUP * GROUP)
    for i in range(index * share, whole, GROUP):
        group(w + i * w_row, codes, d, sums, k, y + 4 * i)
    for i in range(max(whole, index * share), stop, ROWS):
        product(w + i * w_row, w_row, codes, d, sums, k, y + 4 * i, min(stop - i, ROWS))
    return 0


''' + QUANTIZED[QUANTIZED.index("@kernel_entry") :].replace("ROWS", "GROUP")

FLOAT = '''"""quant_matvec: rows of <format> blocks times activations in float32."""

from numba import types

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.llvm.jit import outer
from trueno_simd.kernels.operands import reader, source, target
from trueno_simd.kernels.quant.vector.floats import ROWS, float_rows
from trueno_simd.kernels.quant.matvec import SHARES
from trueno_simd.kernels.quant.printed import CHUNK
from trueno_simd.kernels.quant.regions import settled, share_out
from trueno_simd.kernels.tile import address
from trueno_simd.llvm.calls import address_of, pack

JOB = reader(7)
product = float_rows("<format>")


@outer
def rows(args, index):
    w, w_row, x, k, y, n, share = JOB(args)
    stop = min((index + 1) * share, n)
    for i in range(index * share, stop, ROWS):
        product(w + i * w_row, w_row, x, k, y + 4 * i, min(stop - i, ROWS))
    return 0


@kernel_entry(types.intp(source(types.uint8, 2), source(types.float32, 1), target(types.float32, 1)))
def kernel(w, x, out):
    status = settled(w, out.size, x.size, <elements>, <nbytes>, x, out)
    if status:
        return min(status, 0)
    n, w_row = w.shape
    k = x.size
    wanted = min(max(w.nbytes // CHUNK, 1), SHARES)
    share = ((n + wanted - 1) // wanted + ROWS - 1) // ROWS * ROWS
    args = pack((address(w), w_row, address(x), k, address(out), n, share))
    share_out(address_of(rows), args, (n + share - 1) // share)
    return 0
'''


def with_kept_scratch(compiled: Any) -> Callable[..., int]:
    """Call `compiled(*operands, out, scratch)`, which answers how many bytes it needs if they are too few.

    What was once needed is kept, so that the usual call is one, and allocates nothing.  A call takes the scratch away
    while it runs: starting threads runs Python, and so perhaps a signal's handler, which may multiply too.
    """
    kept: list[np.ndarray] = []

    def kernel(*args: Any) -> int:
        try:
            scratch = kept.pop()
        except IndexError:
            scratch = np.empty(FIRST, np.uint8)
        status: int = compiled(*args, scratch)
        while status > 0:
            larger = np.empty(status, np.uint8)
            if status <= KEPT:
                scratch = larger
            status = compiled(*args, larger)
        kept.append(scratch)
        return status

    kernel.resolve = partial(resolved, compiled)  # type: ignore[attr-defined]
    return kernel


@KERNELS.add("quant_matvec", rates=Rates(1e-6, 1.2e11, 4e10), dtypes=BLOCKS, refusal=not_rounded)
def quant_matvec(device: None, call: Call) -> Kernel:
    """w[n,b] bytes of the format, x[k] float32 -> out[n] float32.

    Of interleaved rows only the product with quantized activations has a kernel of its own.
    """
    static = dict(call.static)
    name, floats = static["format"], static.get("activations", "q8") == "f32"
    f = INTERLEAVED.get(name) or FORMATS[name]
    if floats:
        product = printed.compiled("quant_matvec_f32", FLOAT, f.plain or f.name)
        return groups.matvec(f, product) if f.plain else product
    partner = FORMATS[f.activations]
    op, template = ("quant_matvec_interleaved", GROUPED) if f.plain else ("quant_matvec", QUANTIZED)
    compiled = printed.compiled(op, template, f.plain or f.name, partner=partner.name, block=partner.elements)
    return with_kept_scratch(compiled)
