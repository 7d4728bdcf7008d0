"""The judge of products with blocks whose x is itself a result, and so a range of numbers.

A number of x near the middle between two codes may become either of them, and a block's scale has a range as well.  The
numbers that x may be rounded to are a box; how far its ends are from what is meant, times |w|, is added to the bound.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from trueno.formats.activations import rounded_activations, rounded_weights
from trueno.formats.table import FORMATS, Format
from trueno.judge.bound import Bound
from trueno.judge.interval import Array
from trueno.ops.op import Op

ROUNDINGS = 2.0**-21
"""Of x times the inverse of a scale: four of float32."""


def loosened(inner: Bound, op: Op, operands: Sequence[Array], static: dict[str, Any], place: int, x: Bound) -> Bound:
    """The bound of a product of a float matrix, or vector, `x` with blocks, of which `inner` is that at its value.

    place: of x among the operands.
    """
    f, activations = FORMATS[static["format"]], static["activations"]
    w = np.abs(rounded_weights(operands[1 - place], f, activations).astype(np.float64))
    with np.errstate(all="ignore"):
        far = _far(f, activations, x)
        unsure = ~np.all(np.isfinite(far), axis=-1, keepdims=True)
        slack = 1.01 * (np.where(np.isfinite(far), far, 0) @ w.T)
        slack = np.where(unsure, inf, slack)
        return replace(inner, low=inner.low - slack, high=inner.high + slack, nan=inner.nan | np.isinf(slack))


def _far(f: Format, activations: str, x: Bound) -> Array:
    """How far a number that x may be rounded to is from that of its value, at most: [..., k]."""
    seen = rounded_activations(np.asarray(x.value, np.float32), f, activations).astype(np.float64)
    if activations == "q8":
        low, high = _coded(FORMATS[f.activations], x)
    else:
        low, high = (rounded_activations(np.asarray(a, np.float32), f, activations) for a in (x.low, x.high))
    return np.where(x.nan, inf, np.maximum(high - seen, seen - low))


def _coded(partner: Format, x: Bound) -> tuple[Array, Array]:
    """The ends of what x may be in 8 bits."""
    shape = np.shape(x.value)
    low, high = (np.asarray(a, np.float64).reshape(-1, partner.elements) for a in (x.low, x.high))
    least = np.where((low < 0) & (high > 0), 0, np.minimum(abs(low), abs(high))).max(axis=1, keepdims=True)
    most = np.maximum(abs(low), abs(high)).max(axis=1, keepdims=True)
    scales = [a / 127 for a in (least, most)]
    if partner.fields["d"].nbytes == 2:
        scales = [a.astype(np.float32).astype(np.float16).astype(np.float64) for a in scales]
    codes = []
    for ends, toward in ((low, -1), (high, 1)):
        exact = np.stack([ends * 127 / a for a in (least, most)])
        end = np.max(toward * exact + abs(exact) * ROUNDINGS, axis=0)
        codes.append(toward * np.rint(np.minimum(end, 127)))
    corners = np.stack([c * d for c in codes for d in scales])
    # A block that may be all zeros, or nearly, has any codes.
    corners = np.where((least == 0) & (most > 0), np.stack([-2 * most, 2 * most] * 2), corners)
    corners = np.where(most == 0, 0.0, corners)
    return corners.min(axis=0).reshape(shape), corners.max(axis=0).reshape(shape)
