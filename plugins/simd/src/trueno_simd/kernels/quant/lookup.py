"""quant_embedding_lookup: the rows that indices name, decoded by `dequantize`'s blocks; nothing else of w is read.

Floor: the bytes of those rows read, and 4 d written for each.
"""

from typing import Any

from trueno.backend import FORMATS, Call, Kernel, Rates

from trueno_simd.kernels.operands import adapted
from trueno_simd.kernels.quant import printed
from trueno_simd.kernels.table import BLOCKS, KERNELS

TEMPLATE = '''"""quant_embedding_lookup: rows of <format> blocks to float32."""

from numba import types

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.llvm.jit import exact_outer
from trueno_simd.kernels.gather import shares
from trueno_simd.kernels.operands import overlaps, reader, source, target
from trueno_simd.kernels.quant.dequantize import decoder
from trueno_simd.kernels.tile import address, get_word
from trueno_simd.llvm.calls import address_of, pack
from trueno_simd.threads.pool import parallel_for

JOB = reader(6)
decode = decoder("<format>")


@exact_outer
def rows(args, index):
    w, indices, out, count, blocks, share = JOB(args)
    for i in range(index * share, min((index + 1) * share, count)):
        row = w + get_word(indices, i) * blocks * <nbytes>
        for b in range(blocks):
            decode(row + b * <nbytes>, out + (i * blocks + b) * <elements> * 4)
    return 0


@kernel_entry(types.intp(source(types.uint8, 2), source(types.int64, 1), target(types.float32, 2)))
def kernel(w, indices, out):
    v, b = w.shape
    if b % <nbytes> or out.shape[0] != indices.size or out.shape[1] != b // <nbytes> * <elements>:
        return -1
    if overlaps(out, w) or overlaps(out, indices):
        return -1
    wrong = 0
    for i in range(indices.size):
        wrong |= (indices[i] < 0) | (indices[i] >= v)
    if wrong:
        return -1
    if out.size:
        share, chunks = shares(indices.size, out.nbytes)
        args = pack((address(w), address(indices), address(out), indices.size, b // <nbytes>, share))
        parallel_for(address_of(rows), args, chunks)
    return 0
'''


@KERNELS.add("quant_embedding_lookup", rates=Rates(0.5e-6, 1e11, 8e10), dtypes=BLOCKS)
def quant_embedding_lookup(device: None, call: Call) -> Kernel:
    """w[v,b] bytes, indices[...] -> out[...,d] float32; the parameter `format` names the blocks."""
    name = dict(call.static)["format"]
    compiled = printed.compiled("quant_embedding_lookup", TEMPLATE, FORMATS[name].name)

    def adapt(w: Any, indices: Any, out: Any) -> tuple[Any, ...] | None:
        if indices.ndim != 1:
            if out.shape[:-1] != indices.shape or not (indices.flags.c_contiguous and out.flags.c_contiguous):
                return None
            indices, out = indices.reshape(-1), out.reshape(indices.size, out.shape[-1])
        return w, indices, out

    return adapted(adapt, compiled)
