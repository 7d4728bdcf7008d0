"""Numbers to blocks: `quantize`, and `requantize` for conversions that moving bytes cannot do."""

from typing import Any

import numpy as np

from trueno.dispatch.half import is_half
from trueno.errors import DtypeError, ShapeError
from trueno.floatenv import ieee
from trueno.formats import format_of
from trueno.interop.calls import taken
from trueno.quant.matrix import QuantizedMatrix


def quantize(x: Any, format: str, imatrix: Any = None) -> QuantizedMatrix:  # noqa: A002 - the field's own word
    """The rows of x[m, k] in blocks of `format`, byte for byte what ggml's quantizer writes.

    x: a matrix, or a vector, which becomes one row; float32 (float64 is rounded to it, float16 and bfloat16 are
    widened).  format: a name of `trueno.quant.WEIGHTS`, upper or lower case, or of `trueno.quant.INTERLEAVED`: then
    rows are interleaved afterwards.
    imatrix: the importance of each column, [k], 0 or more, from llama.cpp's imatrix files: errors of important columns
    count more.
    ShapeError where k is not a whole number of blocks: nothing is padded.  ParameterError for NaN or Inf.
    """
    from trueno.dispatch.function import function  # start-up
    from trueno.dispatch.transfer import host, unwrap  # start-up

    f = format_of(format, "quantize", weights=True)
    name = f.plain or f.name
    x = taken("quantize", "x", x)
    x = unwrap(x) if hasattr(x, "reshape") or hasattr(x, "batch") or not hasattr(x, "__len__") else host("quantize", x)
    if hasattr(x, "batch"):
        raise DtypeError("quantize: x is a handle of a batch; use the batch's op: b.quantize_rows(x, format=...)")
    if hasattr(x, "shape") and len(x.shape) == 1:
        x = x.reshape((1, x.shape[0]))
    if not hasattr(x, "shape") or len(x.shape) != 2:
        actual = f"shape {tuple(x.shape)}" if hasattr(x, "shape") else f"type {type(x).__name__}"
        raise ShapeError(f"quantize: x has {actual}; pass a matrix, whose rows are quantized, or one row")
    try:
        f.row_bytes(x.shape[1])
    except ShapeError as error:
        raise ShapeError(f"quantize: x has shape {tuple(x.shape)}: {error}") from None
    x = _single(x)
    if imatrix is None:
        data = function("quantize_rows")(x, format=name)
    else:
        data = function("quantize_rows_weighted")(
            x, _single(unwrap(taken("quantize", "imatrix", imatrix))), format=name
        )
    matrix = QuantizedMatrix(data, (x.shape[0], x.shape[1]), name)
    return matrix.interleaved() if f.plain else matrix


def _single(x: Any) -> Any:
    """Other floats as float32, the dtype in which every quantizer computes."""
    if not isinstance(x, np.ndarray) or not (x.dtype == np.float64 or is_half(x.dtype)):
        return x
    with np.errstate(over="ignore", under="ignore"), ieee():  # an Inf raises an error that names it
        return x.astype(np.float32)


def requantize(q: QuantizedMatrix, format: str, imatrix: Any = None) -> QuantizedMatrix:  # noqa: A002
    """The same numbers in blocks of `format`, rows along blocks: decoded, and quantized again, which loses precision.

    It is the only way to a transpose with its own blocks: `requantize(q.T, q.format)`.
    """
    from trueno.dispatch.function import function  # start-up

    if not isinstance(q, QuantizedMatrix):
        raise DtypeError(f"requantize: q is {type(q).__name__}; pass a QuantizedMatrix, or call trueno.quantize")
    columns = q._columns
    decoded = function("dequantize")(q.T if columns else q)
    if columns:
        host = isinstance(decoded, np.ndarray)
        decoded = np.ascontiguousarray(decoded.T) if host else function("transpose")(decoded)
    return quantize(decoded, format, imatrix)
