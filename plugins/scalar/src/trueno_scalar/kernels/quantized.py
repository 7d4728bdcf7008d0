"""Quantized rows by NumPy: the core's decoder a tile of rows at a time, products by BLAS on the tile.

No product ever holds more than a tile of the matrix as floats, so memory stays that of the blocks.  Decoding takes some
ten passes over the tile, which is what a product costs here; the simd plugin does it in registers.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from trueno.backend import FORMATS, ROWS, Call, Kernel, Rates, decode, format_of
from trueno.errors import ShapeError

from trueno_scalar.kernels.table import KERNELS, Array, Shapes, checked

TILE = 524288
"""Elements decoded at once: 2 MB of float32.  Smaller tiles decode no faster, and make products too small for BLAS."""
DECODING, SEARCHING = Rates(3e-5, 2e10, 6e7), Rates(1e-4, 5e8, 1e9)
"""Of ops on blocks, whose decoding takes most of the time, and of quantizing, where it is the search."""


def _of_blocks(call: Call, run: Callable[..., int | None]) -> Kernel:
    """The kernel of an op on blocks, whose result shapes its signature and format say."""

    def shapes(*operands: Array, **static: Any) -> Shapes:
        try:
            return call.op.result_shapes(tuple(x.shape for x in operands), static)
        except ShapeError:
            return None

    inputs = call.op.signature.inputs
    ranks = () if any(spec.leading for spec in inputs) else tuple(len(spec.dims) for spec in inputs)
    return checked(call, run, shapes, ranks)


def _tiles(w: Array, format: str, dtype: Any, activations: str = "f32") -> Iterator[tuple[slice, Array]]:
    """Rows of w in blocks, some at a time, as a product with such activations sees them, in `dtype`.

    Whole groups of them, where they are interleaved.
    """
    from trueno.backend import rounded_weights

    f = format_of(format)
    least = ROWS if f.plain else 1
    step = max(1, TILE // max(1, f.row_elements(w.shape[1])) // least) * least
    for i in range(0, len(w), step):
        rows = slice(i, i + step)
        yield rows, rounded_weights(w[rows], f, activations).astype(dtype, copy=False)


def _seen(x: Array, format: str, activations: str) -> Any:
    from trueno.backend import rounded_activations

    return rounded_activations(x, format_of(format), activations)


def _dequantize(w: Array, y: Array, *, format: str) -> None:
    for rows, tile in _tiles(w, format, y.dtype):
        y[rows] = tile


@KERNELS.add("dequantize", rates=DECODING)
def dequantize(device: None, call: Call) -> Kernel:
    return _of_blocks(call, _dequantize)


def _encode(x: Array, format: str, imatrix: Array | None = None) -> Array:
    from trueno.backend import encode  # long, and few programs quantize

    return encode(FORMATS[format], x.astype(np.float32, copy=False), imatrix)


def _quantize_rows(x: Array, w: Array, *, format: str) -> None:
    w[...] = _encode(x, format)


@KERNELS.add("quantize_rows", rates=SEARCHING)
def quantize_rows(device: None, call: Call) -> Kernel:
    return _of_blocks(call, _quantize_rows)


def _quantize_rows_weighted(x: Array, imatrix: Array, w: Array, *, format: str) -> None:
    w[...] = _encode(x, format, imatrix.astype(np.float32, copy=False))


@KERNELS.add("quantize_rows_weighted", rates=SEARCHING)
def quantize_rows_weighted(device: None, call: Call) -> Kernel:
    return _of_blocks(call, _quantize_rows_weighted)


def _quant_matvec(w: Array, x: Array, y: Array, *, format: str, activations: str) -> None:
    seen = _seen(x, format, activations)
    for rows, tile in _tiles(w, format, x.dtype, activations):
        np.matmul(tile, seen, y[rows])


@KERNELS.add("quant_matvec", rates=DECODING)
def quant_matvec(device: None, call: Call) -> Kernel:
    return _of_blocks(call, _quant_matvec)


def _quant_matmul(x: Array, w: Array, y: Array, *, format: str, activations: str) -> None:
    seen = _seen(x, format, activations)
    for rows, tile in _tiles(w, format, x.dtype, activations):
        y[:, rows] = seen @ tile.T


@KERNELS.add("quant_matmul", rates=DECODING)
def quant_matmul(device: None, call: Call) -> Kernel:
    return _of_blocks(call, _quant_matmul)


def _quant_embedding_lookup(w: Array, i: Array, y: Array, *, format: str) -> int | None:
    if i.size and (i.min() < 0 or i.max() >= len(w)):
        return -1  # the core names the index
    rows, numbers = i.reshape(-1).astype(np.intp, copy=False), y.reshape(i.size, y.shape[-1])
    f = format_of(format)
    step = max(1, TILE // max(1, y.shape[-1]))
    for at in range(0, i.size, step):
        numbers[at : at + step] = decode(f, np.take(w, rows[at : at + step], axis=0))
    return None


@KERNELS.add("quant_embedding_lookup", rates=DECODING)
def quant_embedding_lookup(device: None, call: Call) -> Kernel:
    return _of_blocks(call, _quant_embedding_lookup)


def _quant_experts(
    w: Array, x: Array, ids: Array, y: Array, *, outputs: int, format: str, activations: str
) -> int | None:
    if x.shape[:-1] != ids.shape or (ids.size and (ids.min() < 0 or ids.max() >= len(w) // outputs)):
        return -1  # the core broadcasts, and names the index
    seen, which, out = _seen(x, format, activations).reshape(-1, x.shape[-1]), ids.reshape(-1), y.reshape(-1, outputs)
    for e in np.unique(which):
        some = np.flatnonzero(which == e)
        for rows, tile in _tiles(w[e * outputs : (e + 1) * outputs], format, x.dtype, activations):
            out[some, rows] = seen[some] @ tile.T
    return None


@KERNELS.add("quant_experts", rates=DECODING)
def quant_experts(device: None, call: Call) -> Kernel:
    return _of_blocks(call, _quant_experts)


def _quant_matvec_colmajor(w: Array, x: Array, y: Array, *, format: str) -> None:
    y[...] = 0
    for rows, tile in _tiles(w, format, x.dtype):
        y += x[rows] @ tile


@KERNELS.add("quant_matvec_colmajor", rates=DECODING)
def quant_matvec_colmajor(device: None, call: Call) -> Kernel:
    return _of_blocks(call, _quant_matvec_colmajor)


def _quant_matmul_colmajor(x: Array, w: Array, y: Array, *, format: str) -> None:
    y[...] = 0
    for rows, tile in _tiles(w, format, x.dtype):
        y += x[:, rows] @ tile


@KERNELS.add("quant_matmul_colmajor", rates=DECODING)
def quant_matmul_colmajor(device: None, call: Call) -> Kernel:
    return _of_blocks(call, _quant_matmul_colmajor)
