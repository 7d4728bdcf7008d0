"""Attention in NumPy: the arithmetic of the attention ops' bodies.

A head is a row of d numbers.  Queries, keys and values are [..., tokens, heads, d].
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

BLOCK = 1 << 20
"""Scores that are held at once."""


def attended(
    q: Array, k: Array, v: Array, *, causal: bool, scale: float, window: int, softcap: float,
    mask: Array | None = None, sinks: Array | None = None,
) -> Array:  # fmt: skip
    """Attention, with a mask that is added to scores and a logit per head that joins the denominator, if given."""
    t, s = q.shape[-3], k.shape[-3]
    others = () if mask is None else (mask.shape[:-3],)
    lead = np.broadcast_shapes(q.shape[:-3], k.shape[:-3], v.shape[:-3], *others)
    y = np.zeros((*lead, *q.shape[-3:-1], v.shape[-1]), q.dtype)
    if not (y.size and k.size and v.size):
        return y
    factor = q.dtype.type(scale or q.shape[-1] ** -0.5)
    by_head = [np.moveaxis(np.broadcast_to(x, (*lead, *x.shape[-3:])), -2, -3) for x in (q, k, v)]
    heads, group = k.shape[-2], q.shape[-2] // k.shape[-2]
    queries = by_head[0].reshape(*lead, heads, group, t, q.shape[-1])
    keys, values = by_head[1][..., None, :, :], by_head[2][..., None, :, :]
    if mask is not None:
        added = np.broadcast_to(mask, (*mask.shape[:-3], heads * group, t, s))
        added = added.reshape(*mask.shape[:-3], heads, group, t, s)
    out = np.moveaxis(y, -2, -3)
    step = max(1, BLOCK // max(1, s * out.size // (t * v.shape[-1])))
    for i in range(0, t, step):
        p = s - t + np.arange(i, min(i + step, t))
        first = max(0, p[0] - window + 1) if window else 0
        end = min(s, p[-1] + 1 if causal else p[-1] + window if window else s)
        if end <= first:
            continue
        j = np.arange(first, end)
        scores = (queries[..., i : i + step, :] * factor) @ np.swapaxes(keys[..., first:end, :], -1, -2)
        if softcap:
            scores = softcap * np.tanh(scores / softcap)
        seen = np.ones((len(p), len(j)), bool)
        if causal:
            seen &= j <= p[:, None]
        if window:
            seen &= np.abs(j - p[:, None]) < window
        if mask is not None:
            part = added[..., i : i + step, first:end]
            scores, seen = scores + part, seen & (part != -np.inf)
        scores = np.where(seen, scores, -np.inf)
        some, top = seen.any(-1, keepdims=True), scores.max(-1, keepdims=True)
        if sinks is not None:
            sink = sinks.reshape(heads, group, 1, 1)
            top = np.maximum(top, sink)
        weights = np.exp(scores - np.where(some, top, 0))
        total = weights.sum(-1, keepdims=True)
        if sinks is not None:
            total = total + np.exp(np.where(some, sink, 0) - np.where(some, top, 0))
        mixed = (weights @ values[..., first:end, :]) / np.where(some, total, 1)
        mixed = np.where(some, mixed, 0)
        out[..., i : i + step, :] = mixed.reshape(*lead, heads * group, *mixed.shape[-2:])
    return y
