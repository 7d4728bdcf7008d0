"""The operands of a product as it sees them: x quantized to q8_0, q8_1 or q8_k as ggml does, or both in bfloat16."""

from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.errors import ParameterError
from trueno.formats.decode import decode, stored
from trueno.formats.encode_arithmetic import (
    Bools,
    Floats,
    chunks,
    half,
    half_away,
    nearest_int,
    peak,
    reciprocal,
    to_int,
)
from trueno.formats.pack import Bytes, pack
from trueno.formats.table import ACTIVATIONS, CELLS, FORMATS, Format


def encode_activations(f: Format, x: Floats, *, reference: bool = False) -> Bytes:
    """x[..., k] as rows of blocks of q8_0, q8_1 or q8_k: uint8 [..., row_bytes].

    The bytes are those of ggml's CPU backend on x86-64: of 32 elements d = amax / 127 and code = round-half-even
    of x · (127 / amax); of 256, by `quantize_row_q8_K_ref`.  With `reference`, q8_0 and q8_1 are as
    `quantize_row_q8_0_ref` and `quantize_row_q8_1_ref` have them, which round x · (1 / d) half away from zero: the
    rounding of weights in q8_0 (`encode` does the same, and refuses what is not finite).  For q8_k both are the same.

    Where ggml leaves bytes undefined, here they are defined.  A block with a NaN or an Inf in it gets d = NaN (and
    s = NaN) and codes of 0, so that no product with it is a finite number.  A zero block of q8_k has sums of 0.
    """
    if f.encoder not in _ENCODERS or f.plain:
        raise ParameterError(f"encode_activations: {f.name} holds no activations; these do: {', '.join(ACTIVATIONS)}")
    nbytes = f.row_bytes(x.shape[-1])
    if not x.size:
        return np.empty((*x.shape[:-1], nbytes), np.uint8)
    blocks = np.asarray(x, np.float32).reshape(-1, f.elements)
    out = np.empty((len(blocks), f.nbytes), np.uint8)
    with np.errstate(all="ignore"):
        for start, stop in chunks(len(blocks), f.elements):
            part = blocks[start:stop]
            finite: Bools = np.logical_and.reduce(np.isfinite(part), axis=1)
            out[start:stop] = _ENCODERS[f.encoder](f, part, finite, reference)
    return out.reshape(*x.shape[:-1], nbytes)


def rounded_activations(x: Any, f: Format, activations: str) -> Any:
    """x[..., k] as a product with blocks of `f` sees it.

    Unchanged ("f32"), rounded to the 8 bits of its partner ("q8"), or to bfloat16 ("bf16").
    """
    if activations == "f32":
        return x
    if activations == "bf16":
        return _narrow(x)
    partner = FORMATS[f.activations]
    return decode(partner, encode_activations(partner, x.astype(np.float32, copy=False))).astype(x.dtype, copy=False)


def rounded_weights(w: Bytes, f: Format, activations: str) -> Any:
    """The numbers of rows of blocks as a product sees them: decoded, and with "bf16" rounded to bfloat16."""
    return _narrow(decode(f, w)) if activations == "bf16" else decode(f, w)


def _narrow(x: Any) -> Any:
    """x, of its own dtype, with its numbers rounded to bfloat16."""
    bf16 = CELLS["bf16"]
    return decode(bf16, stored(bf16, x)).astype(x.dtype, copy=False)


def _q8(f: Format, x: Floats, finite: Bools, reference: bool) -> Bytes:
    """q8_0, and q8_1, which adds s = d · Σ code."""
    amax = np.abs(x).max(axis=1)
    d = amax / np.float32(127)
    if reference:
        whole = to_int(half_away(x * reciprocal(d)[:, None]))
        codes = whole.astype(np.int8)  # keeps the low byte
    else:
        factor = np.where(amax != 0, np.float32(127) / amax, np.float32(0))
        whole = to_int(np.rint(x * factor[:, None]))
        codes = np.clip(whole, -128, 127).astype(np.int8)  # the machine's packing saturates
    fields: dict[str, npt.NDArray[Any]] = {"d": half(np.where(finite, d, np.float32(np.nan)))}
    if "s" in f.fields:
        added = (codes if reference else whole).sum(axis=1, dtype=np.int32)
        fields["s"] = half(np.where(finite, d * added.astype(np.float32), np.float32(np.nan)))
    return pack(f, np.where(finite[:, None], codes, np.int8(0)), fields)


def _q8_k(f: Format, x: Floats, finite: Bools, reference: bool) -> Bytes:
    signed, largest = peak(np.ascontiguousarray(x.T))
    iscale = np.float32(-127) / signed
    codes = np.minimum(nearest_int(x * iscale[:, None]), 127).astype(np.int8)
    some = finite & (largest > 0)
    codes = np.where(some[:, None], codes, np.int8(0))
    d = np.where(some, np.float32(1) / iscale, np.float32(0))
    d = np.where(finite, d, np.float32(np.nan))
    return pack(f, codes, {"d": d, "bsums": codes.reshape(len(x), -1, 16).sum(axis=2, dtype=np.int16)})


_ENCODERS = {"absmax": _q8, "signed_absmax": _q8_k}
