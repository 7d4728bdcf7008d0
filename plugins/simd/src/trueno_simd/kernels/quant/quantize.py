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

import numpy as np
from numba import types
from trueno.backend import FORMATS

from trueno_simd.jit import exact_outer
from trueno_simd.kernels.operands import reader as job_reader
from trueno_simd.kernels.quant import printed, quantize_blocks
from trueno_simd.kernels.quant.quantize_groups import affine_encoder
from trueno_simd.kernels.quant.quantize_rows import row_encoder
from trueno_simd.kernels.quant.quantize_signed import symmetric_encoder, table_encoder
from trueno_simd.vectors import Vector, bits, constant, larger, most, number_reader, reader

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


def _by_table(format: str, weighted: bool) -> Any:
    return table_encoder(format, weighted) if FORMATS[format].group else row_encoder(format, weighted)


ENCODERS: dict[str, Callable[[str, bool], Any]] = {
    "scale_and_min": affine_encoder, "descent": symmetric_encoder, "signed_scale": symmetric_encoder,
    "codebook": _by_table,
}  # fmt: skip
"""Of the formats that search, by `Format.encoder`."""
OF_ROWS = ("symmetric", "affine")
"""Encoders whose weights, with an importance matrix, depend on the whole row; without one they search nothing."""


@cache
def encoder(format: str, weighted: bool) -> Any:
    """The piece of a region that encodes some blocks; KeyError for a format without one."""
    f = FORMATS[format]
    if weighted and not f.weights:
        raise KeyError(f"{format}: a format of activations takes no importance matrix")
    if weighted and f.encoder in OF_ROWS:
        return row_encoder(format, weighted)
    if f.encoder in ENCODERS:
        return ENCODERS[f.encoder](format, weighted)
    return quantize_blocks.encoder(format)  # q8_0 and mxfp4 look at no matrix, as in ggml


TEMPLATE = '''"""quantize_rows: rows of float32 to <format> blocks<with_matrix>."""

from numba import types

from trueno_simd.jit import entry
from trueno_simd.kernels.operands import overlaps, source, target
from trueno_simd.kernels.quant.quantize import CHECKED, encoder, strange
from trueno_simd.kernels.quant.regions import share_out
from trueno_simd.kernels.tile import address
from trueno_simd.threads import address_of, pack, parallel_for

encode = encoder("<format>", <weighted>)


@entry(types.intp(source(types.float32, 2), <matrix_type>target(types.uint8, 2)))
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


def _made(format: str, weighted: bool) -> Callable[..., int]:
    f = FORMATS[format]
    encoder(format, weighted)  # KeyError before anything is written
    by_row = weighted and f.encoder in OF_ROWS
    elements = SLOW if by_row or f.encoder in ENCODERS else QUICK
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
        share=f"k // {f.elements} * max(1, {elements} // k)" if by_row else str(elements // f.elements),
    )


def quantize_rows(dtype: np.dtype, static: dict[str, Any]) -> Callable[..., int]:
    """x[m,k] -> out[m,b], static["format"] blocks."""
    return _made(static["format"], weighted=False)


def quantize_rows_weighted(dtype: np.dtype, static: dict[str, Any]) -> Callable[..., int]:
    """x[m,k], imatrix[k] -> out[m,b], static["format"] blocks; the squares of errors are weighted by imatrix."""
    return _made(static["format"], weighted=True)
