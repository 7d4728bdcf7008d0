"""Ops on quantized matrices: structured, so each body is NumPy code and defines the meaning (`trueno.formats`).

`w[n,k]:blocks` are n rows of k elements, held as uint8 [n, bytes per row]; `format` names the blocks.  A body decodes
all of w, as the reference; no kernel does so.  Products accept activations="q8" (x is first quantized as in ggml to
the partner of the format: integer products, up to four times the speed, an error of 0.5 to 0.7 % of a typical term),
"f32" (x unchanged) or "bf16" (x and the decoded w rounded to bfloat16, by 2^-8 of each number at most, and sums in
float32: tensor cores, for many rows).  Ops that read rows accept interleaved formats (`trueno.formats.interleave`).
"""

from math import inf
from typing import Any

import numpy as np

from trueno.errors import ParameterError
from trueno.formats import ACTIVATIONS, FORMATS, INTERLEAVED, WEIGHTS, decode, format_of
from trueno.ops.op import op

MATRICES = ("q4_k", *(name for name in WEIGHTS if name != "q4_k"))
"""The formats of matrices, the most common first."""
KNOWN = (*MATRICES, *(name for name in ACTIVATIONS if name not in MATRICES))
MOST = 1e17
"""Squares of larger numbers overflow in ggml's searches, which then write zeros: such numbers are refused."""
LEAST = 1e-30
"""If all weights are smaller, sums of weighted squares vanish, and ggml writes only zeros in most formats."""
LAID = {"format": tuple(sorted(INTERLEAVED, key=lambda name: MATRICES.index(INTERLEAVED[name].plain)))}
"""Further formats of matrices, for ops that read them along rows."""
PRODUCT = {"format": MATRICES, "activations": ("q8", "f32", "bf16")}


def _encode(x: Any, format: str, imatrix: Any = None) -> Any:
    from trueno.formats.encoders import encode  # the searches are long modules, and few programs quantize

    return encode(FORMATS[format], np.asarray(x, np.float32), imatrix)


def _seen(w: Any, x: Any, format: str, activations: str) -> tuple[Any, Any]:
    from trueno.formats.activations import rounded_activations, rounded_weights  # start-up

    f = format_of(format)
    return rounded_weights(w, f, activations).astype(x.dtype, copy=False), rounded_activations(x, f, activations)


def _sizes(x: Any) -> Any:
    return np.abs(np.where(np.isfinite(x), x, 0)).astype(np.float64)


def _finite(x: Any) -> None:
    """Raise ParameterError naming the first number that is NaN, Inf or too large."""
    good = np.abs(x) <= np.float32(MOST)  # and no NaN; float16 has no MOST
    if not good.all():
        i, j = np.unravel_index(int(np.argmin(good)), good.shape)
        wanted = f"blocks hold finite numbers up to {MOST:g}; replace it, or divide x and multiply the product"
        raise ParameterError(f"quantize: x[{i}, {j}] is {x[i, j]}; {wanted}")


def _weighted(x: Any, imatrix: Any) -> None:
    """Raise ParameterError naming the first invalid number, or an invalid, too large or too small weight."""
    _finite(x)
    good = np.isfinite(imatrix) & (imatrix >= 0)
    if not good.all():
        j = int(np.argmin(good))
        raise ParameterError(f"quantize: imatrix[{j}] is {imatrix[j]}; the importance of a column is finite, 0 or more")
    if not imatrix.size:
        return
    largest, j = np.abs(x).max(initial=1), int(np.argmax(imatrix))
    if imatrix[j] > (MOST / largest) ** 2:
        why = f"times the square of {largest:g}, which is in x, it overflows"
        raise ParameterError(f"quantize: imatrix[{j}] is {imatrix[j]:g}; {why}; divide all of imatrix by a number")
    if imatrix[j] < LEAST:
        which = f"imatrix is at most {imatrix[j]:g}" if imatrix[j] else "imatrix is 0"
        remedy = f"give some column {LEAST:g} or more, or omit imatrix"
        raise ParameterError(f"quantize: {which} in every column, so all of x would become zeros; {remedy}")


@op("x[m,k] -> w[m,k]:blocks", structured=True, flops="500*m*k", choices={"format": MATRICES}, check=_finite)
def quantize_rows(x, *, format: str):
    """w[i,:] = the blocks of x[i,:] in `format`, byte for byte as ggml's reference quantizer writes them.

    trueno.quantize gives the same as a QuantizedMatrix.
    Shapes: one matrix; k is a multiple of the format's block (32, or 256 for the K formats).
    Edges: computed in float32; NaN, Inf or a number beyond 1e17 in x is a ParameterError that names it; a scale beyond
    the range of float16 (from |x| = 5e5 in q4_0, 8e6 in q8_0, 6e7 in q4_k) becomes Inf, and one below it 0, and then
    so do all numbers of the block (up to |x| = 2e-7 in q4_0, 4e-6 in q8_0, 1e-4 in q6_k).
    Source: ggml-quants.c, quantize_row_*_ref.
    """
    return _encode(x, format)


@op("x[m,k] imatrix[k] -> w[m,k]:blocks", structured=True, flops="1000*m*k", choices={"format": MATRICES},
    domain=(0, inf), check=_weighted)  # fmt: skip
def quantize_rows_weighted(x, imatrix, *, format: str):
    """w[i,:] = the blocks of x[i,:] in `format`, errors weighted by `imatrix`: the importance of each column.

    trueno.quantize(x, format, imatrix) gives the same as a QuantizedMatrix.
    Shapes: one matrix, one weight per column, 0 or more.
    Edges: as quantize_rows; a negative, NaN or Inf weight is a ParameterError, and so is an imatrix without any weight
    (all below 1e-30), and a weight that overflows times the square of the largest x (beyond 1e34).  If some columns
    have no weight, the bytes are still ggml's: if a group has none, q4_0, q5_0, q3_k, q6_k, iq4_nl and iq4_xs write
    zeros, and if a whole block has none, q2_k, q4_k and q5_k do.
    Source: ggml-quants.c, quantize_* with quant_weights.
    """
    return _encode(x, format, np.asarray(imatrix, np.float32))


@op("w[m,k]:blocks -> y[m,k]", structured=True, flops="2*m*k", choices={"format": KNOWN}, also=LAID)
def dequantize(w, *, format: str = ""):
    """y[i,:] = the numbers that the blocks of w[i,:] encode, bit for bit as ggml's.

    Shapes: a QuantizedMatrix, or its bytes [m, bytes of a row] with `format`; y is float32.
    Edges: scales that are NaN or Inf give the results of IEEE 754.
    Source: ggml-quants.c, dequantize_row_*.
    """
    return decode(format_of(format), w)


def _matvec_size(w: Any, x: Any, *, format: str, activations: str) -> Any:
    w, x = map(_sizes, _seen(w, x, format, activations))
    return w @ x


@op("w[n,k]:blocks x[k] -> y[n]", structured=True, flops="2*n*k", chain="k", choices=PRODUCT, also=LAID,
    magnitude=_matvec_size)  # fmt: skip
def quant_matvec(w, x, *, format: str = "", activations: str = "q8"):
    """y[i] = Σₖ w[i,k] · x[k], w read from its blocks.

    activations: "q8" quantizes x to 8 bits first, as ggml does; "f32" takes it as it is; "bf16" rounds x and w.
    Shapes: a QuantizedMatrix (or bytes with `format`) and one vector; blocks run along k.
    Edges: a NaN, an Inf, or a scale past its float16 in x makes every y NaN or Inf with "q8"; a scale of w that is NaN
    or Inf makes its y not finite.  With "q8" and a format of 32 elements per block, 32 elements of x share a float16
    scale, as in ggml: they lose digits if all are below 8e-3, and count as 0 if all are below 3.7e-6.  Only mxfp4 can
    hold a weight past float32 under a finite scale; such a weight is Inf, or its exact product is taken.
    """
    w, x = _seen(w, x, format, activations)
    return w @ x


def _matmul_size(x: Any, w: Any, *, format: str, activations: str) -> Any:
    w, x = map(_sizes, _seen(w, x, format, activations))
    return x @ w.T


@op("x[m,k] w[n,k]:blocks -> y[m,n]", structured=True, flops="2*m*n*k", chain="k", choices=PRODUCT, also=LAID,
    magnitude=_matmul_size)  # fmt: skip
def quant_matmul(x, w, *, format: str = "", activations: str = "q8"):
    """y[i,j] = Σₖ x[i,k] · w[j,k], w read from its blocks: x · wᵀ, as in a linear layer.

    activations: "q8" quantizes x to 8 bits first, as ggml does; "f32" takes it as it is; "bf16" rounds x and w.
    Shapes: one matrix of m rows, a QuantizedMatrix (or bytes with `format`) of n rows; blocks run along k.
    Edges: as quant_matvec, row by row of x.  A row of x alone may give other last digits than among others (within
    float32's rounding of the sum): m decides which kernel or tile multiplies, and so the order of the sum.
    """
    w, x = _seen(w, x, format, activations)
    return x @ w.T


def _left_size(w: Any, x: Any, *, format: str) -> Any:
    return _sizes(x) @ _sizes(decode(format_of(format), w))


@op("w[k,n]:blocks x[k] -> y[n]", structured=True, flops="2*n*k", chain="k", choices={"format": MATRICES},
    magnitude=_left_size, columnwise=True)  # fmt: skip
def quant_matvec_colmajor(w, x, *, format: str = ""):
    """y[j] = Σₖ w[k,j] · x[k], w read from its blocks, which run along the columns of the matrix that wᵀ is.

    The same bytes mean another matrix here than in quant_matvec: q.T of a QuantizedMatrix is multiplied by this op.
    Shapes: w is k rows of blocks of n elements, q.T of shape [n, k] (or bytes with `format`); x in float32.
    Edges: as quant_matvec with activations="f32".
    """
    return x @ decode(format_of(format), w).astype(x.dtype)


def _columns_size(x: Any, w: Any, *, format: str) -> Any:
    return _sizes(x) @ _sizes(decode(format_of(format), w))


@op("x[m,k] w[k,n]:blocks -> y[m,n]", structured=True, flops="2*m*n*k", chain="k", choices={"format": MATRICES},
    magnitude=_columns_size, columnwise=True)  # fmt: skip
def quant_matmul_colmajor(x, w, *, format: str = ""):
    """y[i,j] = Σₖ x[i,k] · w[k,j], w read from its blocks, which run along j.

    The counterpart of quant_matmul for q.T: x · q of a QuantizedMatrix q with k rows.
    Shapes: one matrix, and k rows of blocks of n elements (q.T of shape [n, k], or bytes with `format`).
    Edges: as quant_matvec with activations="f32".
    """
    return x @ decode(format_of(format), w).astype(x.dtype)
