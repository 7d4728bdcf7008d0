"""quantize_rows x[m,k] float32 -> w[m,b] bytes, and quantize_rows_weighted, which also takes an importance matrix.

The bytes are those of ggml's own quantizers (its `ggml_quantize_chunk`): the same searches, every sum in the same
order, every operation rounded.  Blocks are shared out to the threads; formats whose weights depend on the whole row
(of 32 elements, with an importance matrix) go by rows.

A NaN or an infinity among the inputs: -1, and nothing has been written.

Floor: 4 k bytes read twice, once to look for such numbers, and b written; the searches are far above it: q4_k makes
29 vector operations an element (with a matrix 52), iq4 formats some 45.  Measured on one Zen 5 core with AVX-512, in
cache, elements a second and times ggml: q4_0 q4_1 q5_0 q5_1 q8_0 3.4 to 5 G (4 to 11 times), mxfp4 2.2 G (10);
q4_k 240 M (14 to 18), 1.6 operations a cycle, q5_k 310 M, q2_k 240 M, q6_k 450 M, q3_k 290 M (3 to 4), iq4 150 M (30 to
170); with a matrix 100 to 460 M (10 to 70).  AVX2 has half of that, SSE2 a third: still 1.6 times ggml and more.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from numba import types
from trueno.backend import FORMATS, Call, Kernel, Rates

from trueno_simd.kernels.operands import reader as job_reader
from trueno_simd.kernels.quant import printed
from trueno_simd.kernels.quant.quantize import blocks, groups, rows, signed  # noqa: F401 - each adds its encoders
from trueno_simd.kernels.quant.quantize.encoders import ENCODERS
from trueno_simd.kernels.table import BLOCKS, KERNELS
from trueno_simd.llvm.jit import exact_outer
from trueno_simd.llvm.vectors import Vector, bits, constant, larger, most, number_reader, reader

floats, as_ints = reader(Vector(types.float32, 16)), bits(Vector(types.int32, 16))
word, zeros = number_reader(types.int32), constant(Vector(types.int32, 16), (0,) * 16)
CHECKED = 1 << 16  # numbers that are looked at in one chunk
JOB = job_reader(2)


@exact_outer
def strange(args, index):
    """1 if a NaN or an infinity is among some of the numbers."""
    x, count = JOB(args)
    start, stop = index * CHECKED, min((index + 1) * CHECKED, count)
    whole = start + (stop - start) // 16 * 16
    most_yet = zeros()
    for i in range(start, whole, 16):
        most_yet = larger(most_yet, as_ints(floats(x + 4 * i)) & 0x7FFFFFFF)
    bad = most(most_yet) >= 0x7F800000
    for i in range(whole, stop):
        bad |= (word(x + 4 * i) & 0x7FFFFFFF) >= 0x7F800000
    return types.int64(bad)


@cache
def encoder(format: str, weighted: bool) -> Any:
    """The piece of a region that encodes some blocks; KeyError for a format without one."""
    if weighted and not FORMATS[format].weights:
        raise KeyError(f"{format}: a format of activations takes no importance matrix")
    return ENCODERS[FORMATS[format].encoder, weighted].make(format, weighted)


TEMPLATE = '''"""quantize_rows: rows of float32 to <format> blocks<with_matrix>."""

from numba import types

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels.operands import overlaps, source, target
from trueno_simd.kernels.quant.quantize.kernel import CHECKED, encoder, strange
from trueno_simd.kernels.quant.regions import share_out
from trueno_simd.kernels.tile import address
from trueno_simd.llvm.calls import address_of, pack
from trueno_simd.threads.pool import parallel_for

encode = encoder("<format>", <weighted>)


@kernel_entry(types.intp(source(types.float32, 2), <matrix_type>target(types.uint8, 2)))
def kernel(x, <matrix_argument>out):
    m, k = x.shape
    if k % <elements> or out.shape[0] != m or out.shape[1] != k // <elements> * <nbytes> or overlaps(out, x):
        return -1
    <matrix_check>count = x.size // <elements>
    if count == 0:
        return 0
    wrong = share_out(address_of(strange), pack((address(x), x.size)), (x.size + CHECKED - 1) // CHECKED)
    if wrong:
        return -1
    share = <share>
    args = pack((address(x), <matrix_address>, address(out), k, count, share))
    share_out(address_of(encode), args, (count + share - 1) // share)
    return 0
'''
MATRIX_CHECK = """if imatrix.size != k or overlaps(out, imatrix):
        return -1
    if parallel_for(address_of(strange), pack((address(imatrix), k)), (k + CHECKED - 1) // CHECKED):
        return -1
    """
QUICK, SLOW = 1 << 15, 1 << 12  # elements of a chunk of encoders that search nothing, and of the others: some 10 us


def _compiled(format: str, weighted: bool) -> Callable[..., int]:
    f = FORMATS[format]
    encoder(format, weighted)  # KeyError before anything is written
    how = ENCODERS[f.encoder, weighted]
    elements = SLOW if how.searches else QUICK
    return printed.compiled(
        "quantize_rows_weighted" if weighted else "quantize_rows",
        TEMPLATE,
        format,
        weighted=weighted,
        with_matrix=", weighted by an importance matrix" if weighted else "",
        matrix_type="source(types.float32, 1), " if weighted else "",
        matrix_argument="imatrix, " if weighted else "",
        matrix_check=MATRIX_CHECK if weighted else "",
        matrix_address="address(imatrix)" if weighted else "0",
        share=f"k // {f.elements} * max(1, {elements} // k)" if how.by_row else str(elements // f.elements),
    )


@KERNELS.add("quantize_rows", rates=Rates(0.5e-6, 4e10, 4e10), dtypes=BLOCKS)
def quantize_rows(device: None, call: Call) -> Kernel:
    """x[m,k] -> out[m,b]; the parameter `format` names the blocks."""
    return _compiled(dict(call.static)["format"], weighted=False)


@KERNELS.add("quantize_rows_weighted", rates=Rates(0.5e-6, 4e10, 4e10), dtypes=BLOCKS)
def quantize_rows_weighted(device: None, call: Call) -> Kernel:
    """x[m,k], imatrix[k] -> out[m,b] of the format; the squares of errors are weighted by imatrix."""
    return _compiled(dict(call.static)["format"], weighted=True)
