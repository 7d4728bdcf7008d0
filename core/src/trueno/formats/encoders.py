"""Float32 to blocks in NumPy, byte for byte as ggml: the reference of every encoder.

The algorithm of each family of formats has a file: `encode_rounding` (one scale, codes rounded once), `encode_minmax`
(scale and min by search), `encode_signed` (signed scale by search), `encode_codebook` (codes are indices into
a table).  This module checks the input, and cuts large input into pieces.
"""

from collections.abc import Callable

import numpy as np

from trueno.errors import ParameterError, ShapeError
from trueno.formats.activations import encode_activations
from trueno.formats.encode_arithmetic import Floats, Importance, chunks
from trueno.formats.encode_codebook import iq4, mxfp4
from trueno.formats.encode_minmax import affine_weighted, grouped
from trueno.formats.encode_rounding import affine, symmetric
from trueno.formats.encode_signed import q3_k, q6_k, symmetric_weighted
from trueno.formats.pack import Bytes
from trueno.formats.table import WEIGHTS, Format

Encoder = Callable[[Format, Floats, Importance | None], Bytes]


def _two(plain: Callable[[Format, Floats], Bytes], weighted: Callable[[Format, Floats, Importance], Bytes]) -> Encoder:
    """A pair of encoders: without and with an importance matrix."""
    return lambda f, x, importance: plain(f, x) if importance is None else weighted(f, x, importance)


ENCODERS: dict[str, Encoder] = {
    "symmetric": _two(symmetric, symmetric_weighted),
    "affine": _two(affine, affine_weighted),
    "scale_and_min": grouped,
    "descent": q3_k,
    "signed_scale": q6_k,
    "codebook": iq4,
    "grouped_codebook": iq4,
    "absmax": lambda f, x, importance: encode_activations(f, x, reference=True),  # a matrix changes nothing
    "shared_exponent": lambda f, x, importance: mxfp4(f, x),  # nor here
}
"""The encoders of blocks [n, elements] of weights, by the name that the table says of a format."""


def encode(f: Format, x: Floats, imatrix: Floats | None = None) -> Bytes:
    """x[..., k] as rows of blocks of a format of weights: uint8 [..., row_bytes].

    Byte-identical with ggml_quantize_chunk (what llama-quantize writes), without an importance matrix and with one:
    imatrix[k] ≥ 0 weighs the error of each column; q8_0 and mxfp4 ignore it.

    A scale that overflows in float16 is written as Inf, or as NaN if the search ends in one; one that is too small is
    written as 0.  As in ggml, if all weights of a group are zero, its codes are lost in q4_0, q5_0, q3_k, q6_k, iq4_nl
    and iq4_xs; if all weights of a whole block are, in q2_k, q4_k and q5_k; and blocks whose squares overflow (|x|
    beyond 10¹⁸) are lost in q3_k, q6_k and iq4_xs.

    ShapeError if k is not a multiple of a block or imatrix is not [k]; ParameterError for formats that hold no weights,
    for NaN and Inf in x or imatrix, and for negative weights, where ggml asserts or writes meaningless blocks.
    """
    if f.plain:
        raise ParameterError(f"encode: {f.name} is {f.plain} with rows interleaved; encode to that first")
    if not f.weights:
        raise ParameterError(f"encode: {f.name} holds no weights; these do: {', '.join(WEIGHTS)}")
    k = x.shape[-1]
    nbytes = f.row_bytes(k)
    with np.errstate(all="ignore"):
        rows = np.ascontiguousarray(x, np.float32).reshape(-1, k) if x.size else np.empty((0, k), np.float32)
    weights = None if imatrix is None else _checked(f, imatrix, k)
    blocks = rows.reshape(-1, f.elements)
    out = np.empty((len(blocks), f.nbytes), np.uint8)
    per_row = k // f.elements
    with np.errstate(all="ignore"):
        row_mean = None if weights is None else _mean_squares(rows)
        for start, stop in chunks(len(blocks), f.elements):
            part = blocks[start:stop]
            if not np.isfinite(part).all():
                _refuse(f, rows.reshape(x.shape))
            importance = None
            if weights is not None and row_mean is not None:
                at = np.arange(start, stop)
                importance = Importance(weights.reshape(per_row, -1)[at % per_row], row_mean[at // per_row])
            out[start:stop] = ENCODERS[f.encoder](f, part, importance)
    return out.reshape(*x.shape[:-1], nbytes)


def _checked(f: Format, imatrix: Floats, k: int) -> Floats:
    with np.errstate(all="ignore"):
        weights = np.ascontiguousarray(imatrix, np.float32)
    if weights.shape != (k,):
        raise ShapeError(f"encode to {f.name}: imatrix has shape {weights.shape}, but a row of x has {k} elements")
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise ParameterError(
            f"encode to {f.name}: imatrix[{wrong[0]}] is {weights[wrong[0]]}; "
            "weights of the error are finite and not negative"
        )
    return weights


def _refuse(f: Format, x: Floats) -> None:
    first = np.argwhere(~np.isfinite(x))[0]
    at = ", ".join(str(i) for i in first)
    raise ParameterError(
        f"encode to {f.name}: x[{at}] is {x[tuple(first)]}; a block holds finite numbers only: "
        "replace them first, for example with numpy.nan_to_num"
    )


def _mean_squares(rows: Floats) -> Floats:
    """The mean of x² of each row, summed from the first element to the last."""
    width = 1024
    totals = np.zeros((len(rows), 1), np.float32)
    for start, stop in chunks(len(rows), width):
        for column in range(0, rows.shape[1], width):
            part = rows[start:stop, column : column + width]
            sums = np.add.accumulate(np.concatenate([totals[start:stop], part * part], axis=1), axis=1)
            totals[start:stop] = sums[:, -1:]
    return totals[:, 0] / np.float32(rows.shape[1])
