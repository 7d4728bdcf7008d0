"""Quantized rows with NumPy: the core's decoder on one tile of rows at a time, and BLAS products of the tile.

A product holds at most one tile of the matrix as floats, so memory use stays that of the blocks.  Decoding takes some
ten passes over the tile, which dominates a product here; the simd plugin decodes in registers.
Each function is `run(*operands, result, **static)`.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from trueno.backend import FORMATS, ROWS, Rates, decode, format_of

Array = np.ndarray[Any, np.dtype[Any]]

TILE = 524288
"""Elements decoded at once: 2 MB of float32.  Smaller tiles decode no faster, and make products too small for BLAS."""


def _tiles(w: Array, format: str, dtype: Any) -> Iterator[tuple[slice, Array]]:  # noqa: A002 - the field's own word
    """Rows of w in blocks, some at a time, as floats of `dtype`: whole groups of them, if they are interleaved."""
    f = format_of(format)
    least = ROWS if f.plain else 1
    step = max(1, TILE // max(1, f.row_elements(w.shape[1])) // least) * least
    for i in range(0, len(w), step):
        rows = slice(i, i + step)
        yield rows, decode(f, w[rows]).astype(dtype, copy=False)


def _seen(x: Array, format: str, activations: str) -> Any:  # noqa: A002
    from trueno.backend import rounded_activations

    return rounded_activations(x, format_of(format), activations)


def dequantize(w: Array, y: Array, *, format: str) -> None:  # noqa: A002
    for rows, tile in _tiles(w, format, y.dtype):
        y[rows] = tile


def _encode(x: Array, format: str, imatrix: Array | None = None) -> Array:  # noqa: A002
    from trueno.backend import encode  # a long module, and few programs quantize

    return encode(FORMATS[format], x.astype(np.float32, copy=False), imatrix)


def quantize_rows(x: Array, w: Array, *, format: str) -> None:  # noqa: A002
    w[...] = _encode(x, format)


def quantize_rows_weighted(x: Array, imatrix: Array, w: Array, *, format: str) -> None:  # noqa: A002
    w[...] = _encode(x, format, imatrix.astype(np.float32, copy=False))


def quant_matvec(w: Array, x: Array, y: Array, *, format: str, activations: str) -> None:  # noqa: A002
    seen = _seen(x, format, activations)
    for rows, tile in _tiles(w, format, x.dtype):
        np.matmul(tile, seen, y[rows])


def quant_matmul(x: Array, w: Array, y: Array, *, format: str, activations: str) -> None:  # noqa: A002
    seen = _seen(x, format, activations)
    for rows, tile in _tiles(w, format, x.dtype):
        y[:, rows] = seen @ tile.T


def quant_matvec_colmajor(w: Array, x: Array, y: Array, *, format: str) -> None:  # noqa: A002
    y[...] = 0
    for rows, tile in _tiles(w, format, x.dtype):
        y += x[rows] @ tile


def quant_matmul_colmajor(x: Array, w: Array, y: Array, *, format: str) -> None:  # noqa: A002
    y[...] = 0
    for rows, tile in _tiles(w, format, x.dtype):
        y += x[:, rows] @ tile


DECODING, SEARCHING = Rates(3e-5, 2e10, 6e7), Rates(1e-4, 5e8, 1e9)
"""Rates of ops on blocks, where decoding takes most of the time, and of quantizing, where the search does."""
_LISTED: tuple[tuple[Callable[..., None], Rates], ...] = (
    (dequantize, DECODING),
    (quantize_rows, SEARCHING),
    (quantize_rows_weighted, SEARCHING),
    (quant_matvec, DECODING),
    (quant_matmul, DECODING),
    (quant_matvec_colmajor, DECODING),
    (quant_matmul_colmajor, DECODING),
)
RUN = {run.__name__: run for run, _ in _LISTED}
RATES = {run.__name__: rates for run, rates in _LISTED}
