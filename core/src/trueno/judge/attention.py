"""The bound of attention: an error of a score is a relative error of its weight.

A score sums d products, so it errs by at most (d + 16) u · scale · Σ|q| |k|, the exponential's own error and that of
its argument included.  Both a weight and the sum of weights then err by a factor of e^ε, and the sums of products by
(s + 16) u.  However large ε is, a result stays within the least and the largest value that its query sees.  A mask and
a sink are terms of the score, and a sink is a key whose value is 0.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.attending import attended
from trueno.discovery.protocol import Accuracy
from trueno.formats import decode, format_of
from trueno.judge.bound import EXACT, Bound
from trueno.judge.interval import Array, Judge, exact

BFLOAT16 = 2.0**-9 * (1 + 2.0**-8)
"""What rounding to bfloat16 changes of a number, and of the product that follows."""


def attention_bound(
    operands: Sequence[Array], parameters: dict[str, Any], dtype: npt.DTypeLike, accuracy: Accuracy, extra: str = ""
) -> list[Bound]:
    """The bound of attention's result; the whole matrix of scores is in memory here.

    extra: what the fourth operand is, "mask" or "sinks".
    """
    arithmetic = Judge(np.dtype(dtype), EXACT)
    u, largest = arithmetic.u, arithmetic.largest
    parameters = dict(parameters)
    rounded = 2 * BFLOAT16 if parameters.pop("products", "f32") == "bf16" else 0.0  # both factors of each product
    with np.errstate(invalid="ignore"):
        wide: list[Array] = [np.asarray(x).astype(arithmetic.wide) for x in operands]
    mask, sinks = wide[3] if extra == "mask" else None, wide[3] if extra == "sinks" else None
    lead = np.broadcast_shapes(*(x.shape[:-3] for x in wide[:3]), () if mask is None else mask.shape[:-3])
    q, k, v = (np.broadcast_to(x, (*lead, *x.shape[-3:])) for x in wide[:3])

    def body(*x: Array) -> Array:
        return attended(*x, **parameters, mask=mask, sinks=sinks)

    with np.errstate(all="ignore"):
        value = body(q, k, v)
        if not (q.size and k.size and v.size):
            return [Bound(value, value, value, np.isnan(value))]
        t, hq, d = q.shape[-3:]
        s, hk, e = v.shape[-3:]
        group = hq // hk
        sizes = np.abs(np.where(np.isfinite(q), q, 0)), np.abs(np.where(np.isfinite(k), k, 0))
        by_head = np.moveaxis(sizes[0], -2, -3), np.repeat(np.moveaxis(sizes[1], -2, -3), group, -3)
        scale = parameters["scale"] or d**-0.5
        scores = scale * (by_head[0] @ np.swapaxes(by_head[1], -1, -2))  # [..., hq, t, s]
        seen = np.broadcast_to(_seen(t, s, parameters["causal"], parameters["window"]), scores.shape)
        if mask is not None:
            seen = seen & (mask != -inf)
            scores = scores + np.abs(np.where(np.isfinite(mask), mask, 0))
        most = np.moveaxis(np.where(seen, scores, 0).max(-1), -2, -1)[..., None]  # [..., t, hq, 1]
        error = ((d + 16) * u + rounded) * most
        if parameters["softcap"]:
            error = error + 64 * u * np.minimum(most, parameters["softcap"])
        if sinks is not None:
            sink = np.abs(np.where(np.isfinite(sinks), sinks, 0))[:, None]
            most, error = np.maximum(most, sink), error + 16 * u * sink
        number = np.abs(np.where(np.isfinite(v), v, 0))
        weighted = body(np.where(np.isfinite(q), q, 0), np.where(np.isfinite(k), k, 0), number)
        tiny = arithmetic.smallest_normal * (1 if accuracy.subnormals else s)
        least = (s + 4) * arithmetic.smallest + tiny * s * number.max() + (0 if accuracy.subnormals else 2 * s * tiny)
        relative = np.expm1(2 * error) + (s + 16) * u + rounded
        slack = np.where(np.isfinite(relative), relative * weighted, inf) + least
        low, high = _hull(v, seen, group)
        if sinks is not None:
            low, high = np.minimum(low, 0), np.maximum(high, 0)
        room = ((s + 16) * u + rounded) * np.maximum(np.abs(low), np.abs(high)) + least
        low, high = np.maximum(value - slack, low - room), np.minimum(value + slack, high + room)
    nothing = np.moveaxis(~np.any(seen, axis=-1), -2, -1)[..., None]
    low, high = np.where(nothing, 0, low), np.where(nothing, 0, high)
    # What overflows, or meets an Inf or a NaN that a query may or may not see, is not judged.
    of_keys = np.isfinite(k).all((-3, -1)) & np.isfinite(v).all((-3, -1)) & (s * number.max((-3, -1)) < largest / 4)
    of_queries = ~np.isinf(q).any(-1) & (np.maximum(most[..., 0], scale * sizes[0].max(-1)) * 4 < largest)
    if mask is not None:
        of_queries &= np.moveaxis(~np.any(np.broadcast_to(mask == inf, scores.shape) & seen, axis=-1), -2, -1)
    if sinks is not None:
        of_queries &= sinks != inf
    fine = (of_queries & np.repeat(of_keys, group, -1)[..., None, :])[..., None] & np.ones(e, bool)
    certain = exact(value)
    low, high = (np.where(np.isnan(value), c, x) for c, x in ((certain.low, low), (certain.high, high)))
    return [Bound(value, np.where(fine, low, -inf), np.where(fine, high, inf), np.isnan(value) | ~fine)]


def _seen(t: int, s: int, causal: bool, window: int) -> Array:
    """Which keys a query sees, [t, s]."""
    distance = s - t + np.arange(t)[:, None] - np.arange(s)
    near = np.abs(distance) < window if window else np.ones((t, s), bool)
    return near & (distance >= 0) if causal else near


def _hull(v: Array, seen: Array, group: int) -> tuple[Array, Array]:
    """The least and the largest value that each query sees, [..., t, hq, e]."""
    by_head, ends = np.repeat(np.moveaxis(v, -2, -3), group, -3), []
    for reduce, empty in ((np.min, inf), (np.max, -inf)):
        rows = [reduce(by_head, axis=-2, initial=empty, where=seen[..., i, :, None]) for i in range(seen.shape[-2])]
        ends.append(np.stack(rows, -3))
    return ends[0], ends[1]


def decode_bound(
    operands: Sequence[Array], parameters: dict[str, Any], dtype: npt.DTypeLike, accuracy: Accuracy
) -> list[Bound]:
    """The bound of `attention_decode`'s result: that of each sequence's attention over its decoded cache.

    A sixth operand is its sinks.
    """
    q, k, v, table, lengths, *sinks = operands
    settings = {name: parameters[name] for name in ("scale", "window", "softcap")} | {"causal": True}
    blocks, page = format_of(parameters["format"], cache=True), k.shape[1]
    bounds = []
    for i, length in enumerate(lengths):
        tokens = np.arange(length)
        place = (table[i, tokens // page], tokens % page) if length else (tokens, tokens)
        keys, values = (decode(blocks, x[place]) for x in (k, v))
        bounds += attention_bound((q[i], keys, values, *sinks), settings, dtype, accuracy, "sinks" if sinks else "")
    if not bounds:
        value = np.zeros((*q.shape[:3], blocks.row_elements(v.shape[-1])), q.dtype)
        return [Bound(value, value, value, np.isnan(value))]
    return [Bound(*(np.stack([getattr(b, field) for b in bounds]) for field in ("value", "low", "high", "nan")))]


def ragged_bound(
    operands: Sequence[Array], parameters: dict[str, Any], dtype: npt.DTypeLike, accuracy: Accuracy
) -> list[Bound]:
    """The bound of `attention_ragged`'s result: that of each sequence; exactly 0 for queries of none."""
    q, k, v, offsets_q, offsets_k = operands
    zeros = np.zeros((*q.shape[:2], v.shape[-1]), Judge(np.dtype(dtype), EXACT).wide)
    whole = {field: zeros.copy() for field in ("value", "low", "high")} | {"nan": np.zeros(zeros.shape, bool)}
    for i in range(len(offsets_q) - 1):
        own, seen = slice(*offsets_q[i : i + 2]), slice(*offsets_k[i : i + 2])
        (part,) = attention_bound((q[own], k[seen], v[seen]), parameters, dtype, accuracy)
        for field, x in whole.items():
            x[own] = getattr(part, field)
    return [Bound(**whole)]


BOUNDS: dict[str, Callable[..., list[Bound]]] = {
    "attention": attention_bound,
    "attention_sinks": partial(attention_bound, extra="sinks"),
    "attention_masked": partial(attention_bound, extra="mask"),
    "attention_ragged": ragged_bound,
    "attention_decode": decode_bound,
    "attention_decode_sinks": decode_bound,
}
