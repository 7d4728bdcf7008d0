"""Ops of transformers by NumPy: their meaning is the body in `trueno.ops.attention`."""

from typing import Any

import numpy as np
from trueno.backend import Call, Kernel, Rates, cosines, rotation
from trueno.errors import ShapeError

from trueno_scalar.kernels.table import KERNELS, Array, Shapes, checked

SCORES = 1 << 17
"""Scores that are held at once: they stay in L2 between the two products."""
TILE = 1 << 16
"""Numbers of x rotated at once: they and the four products stay in L2."""


def _rope(x: Array, positions: Array, *rest: Any, style: str, dims: int, scaling: str) -> int | None:
    theta, factor, context, slow, fast, magnitude, y = rest
    pairs = (dims or x.shape[-1]) // 2
    if positions.size and positions.min() < 0:
        return -1  # the core names the position
    table = rotation(pairs, theta, scaling, factor, context, slow, fast, magnitude)
    tokens, heads = positions.reshape(-1), x.shape[-2:]
    x, y = x.reshape(-1, *heads), y.reshape(-1, *heads)
    step = max(1, TILE // max(1, heads[0] * heads[1]))
    first, second = (0, pairs), (pairs, 2 * pairs)
    for i in range(0, len(tokens), step):
        cos, sin = (t[:, None].astype(x.dtype) for t in cosines(tokens[i : i + step], *table))
        some, out = x[i : i + step], y[i : i + step]
        if style == "neox":
            a, b, c, d = (z[..., slice(*half)] for z in (some, out) for half in (first, second))
        else:
            a, b, c, d = (z[..., j : 2 * pairs : 2] for z in (some, out) for j in (0, 1))
        np.multiply(a, cos, c)
        c -= b * sin
        np.multiply(b, cos, d)
        d += a * sin
        out[..., 2 * pairs :] = some[..., 2 * pairs :]
    return None


@KERNELS.add("rope", rates=Rates(3e-5, 8e8, 1e10))
def rope(device: None, call: Call) -> Kernel:
    def shapes(x: Array, positions: Array, *, style: str, dims: int, scaling: str) -> Shapes:
        fits = x.ndim >= 2 and x.shape[:-2] == positions.shape
        return (x.shape,) if fits and dims <= x.shape[-1] and (dims or x.shape[-1]) % 2 == 0 else None

    return checked(call, _rope, shapes)


def _attend(
    q: Array, k: Array, v: Array, mask: Array | None, sinks: Array | None, scale: float, softcap: float, y: Array, *,
    causal: bool, window: int,
) -> None:  # fmt: skip
    """Some queries of all heads that share a head of keys, and the keys that any of them sees, at a time."""
    (t, _, d), (s, hk, e), group = q.shape[-3:], v.shape[-3:], q.shape[-2] // k.shape[-2]
    factor = q.dtype.type(scale or d**-0.5)
    step = max(1, SCORES // (group * s))
    q, k, v, y = (x.reshape(-1, *x.shape[-3:]) for x in (q, k, v, y))
    if mask is not None:
        mask = mask.reshape(-1, *mask.shape[-3:])
    for b in range(len(q)):
        for head in range(hk):
            heads = slice(head * group, head * group + group)
            for i in range(0, t, step):
                some = q[b, i : i + step, heads]
                p = s - t + np.arange(i, i + len(some))
                first = max(0, p[0] - window + 1) if window else 0
                end = min(s, p[-1] + 1 if causal else p[-1] + window if window else s)
                if end <= first:
                    y[b, i : i + step, heads] = 0
                    continue
                scores = (some * factor).reshape(-1, d) @ k[b, first:end, head].T
                if softcap:
                    scores /= softcap
                    np.tanh(scores, scores)
                    scores *= softcap
                scores = scores.reshape(len(some), group, -1)
                hidden = _hidden(p, np.arange(first, end), causal, window)
                if mask is not None:
                    rows = slice(i, i + step) if mask.shape[2] > 1 else slice(None)
                    part = mask[b, heads if mask.shape[1] > 1 else slice(None), rows, first:end].swapaxes(0, 1)
                    scores += part
                    hidden = (part == -np.inf) if hidden is None else hidden | (part == -np.inf)
                if hidden is not None:
                    np.copyto(scores, -np.inf, where=hidden)
                most = scores.max(-1, keepdims=True)
                if sinks is not None:
                    np.maximum(most, sinks[heads, None], out=most)
                if hidden is not None:
                    np.copyto(most, 0, where=hidden.all(-1, keepdims=True))
                scores -= most
                np.exp(scores, scores)
                total = scores.sum(-1, keepdims=True)
                if sinks is not None:
                    total += np.exp(sinks[heads, None] - most)
                if hidden is not None:
                    np.copyto(total, 1, where=hidden.all(-1, keepdims=True))
                mixed = (scores.reshape(-1, end - first) @ v[b, first:end, head]).reshape(len(some), group, e)
                np.divide(mixed, total, y[b, i : i + step, heads])


def _hidden(p: Array, j: Array, causal: bool, window: int) -> Array | None:
    """The keys that a query does not see, [queries, 1, keys]; None if they see all."""
    if not causal and not window:
        return None
    distance = p[:, None, None] - j
    hidden = np.abs(distance) >= window if window else np.zeros(distance.shape, bool)
    return hidden | (distance < 0) if causal else hidden


def _attention(q: Array, k: Array, v: Array, *rest: Any, products: str, **static: Any) -> None:
    _attend(q, k, v, None, None, *rest, **static)  # which needs no permission to round


def _masked(q: Array, k: Array, v: Array, mask: Array, *rest: Any, **static: Any) -> None:
    _attend(q, k, v, mask, None, *rest, **static)


def _with_sinks(q: Array, k: Array, v: Array, sinks: Array, *rest: Any, **static: Any) -> None:
    _attend(q, k, v, None, sinks, *rest, **static)


RUNS = {"attention": _attention, "attention_masked": _masked, "attention_sinks": _with_sinks}


@KERNELS.add(*RUNS, rates=Rates(3e-5, 1.2e10, 1e10))
def attention(device: None, call: Call) -> Kernel:
    name = call.op.name

    def shapes(q: Array, k: Array, v: Array, *more: Array, **static: Any) -> Shapes:
        if q.ndim < 3 or not q.ndim == k.ndim == v.ndim or not q.shape[:-3] == k.shape[:-3] == v.shape[:-3]:
            return None
        (t, hq, d), (s, hk, _) = q.shape[-3:], k.shape[-3:]
        fits = v.shape[-3:-1] == (s, hk) and k.shape[-1] == d and q.size and v.size and hq % hk == 0
        if name == "attention_sinks":
            fits = fits and more[0].shape == (hq,)
        if name == "attention_masked":
            lead, (m, r, width) = more[0].shape[:-3], more[0].shape[-3:] if more[0].ndim >= 3 else (0, 0, 0)
            fits = fits and lead == q.shape[:-3] and m in (1, hq) and r in (1, t) and width == s
        return ((*q.shape[:-1], v.shape[-1]),) if fits else None

    return checked(call, RUNS[name], shapes)


def _ragged(
    q: Array, k: Array, v: Array, offsets_q: Array, offsets_k: Array, scale: float, softcap: float, y: Array,
    **static: Any,
) -> int | None:  # fmt: skip
    for offsets, count in ((offsets_q, len(q)), (offsets_k, len(k))):
        if (offsets < 0).any() or (offsets > count).any() or (offsets[1:] < offsets[:-1]).any():
            return -1  # the core names the offset
    scale, softcap = float(scale), float(softcap)
    y[...] = 0
    for i in range(len(offsets_q) - 1):
        own, seen = slice(*offsets_q[i : i + 2]), slice(*offsets_k[i : i + 2])
        if q[own].size and k[seen].size:
            _attend(q[own], k[seen], v[seen], None, None, scale, softcap, y[own], **static)
    return None


@KERNELS.add("attention_ragged", rates=Rates(3e-5, 1.2e10, 1e10))
def attention_ragged(device: None, call: Call) -> Kernel:
    def shapes(*operands: Array, **static: Any) -> Shapes:
        try:
            return call.op.result_shapes(tuple(x.shape for x in operands), static)
        except ShapeError:
            return None

    return checked(call, _ragged, shapes, (3, 3, 3, 1, 1))
