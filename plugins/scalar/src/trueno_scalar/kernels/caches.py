"""Ops on caches of keys and values by NumPy: some tokens of a sequence are decoded at a time, and join its softmax."""

from typing import Any

import numpy as np
from trueno.backend import Call, Kernel, Rates, decode, encode_cache, format_of
from trueno.errors import ShapeError

from trueno_scalar.kernels.table import KERNELS, Array, Shapes, checked

TOKENS = 1 << 18
"""Numbers of keys that are decoded at once."""


def _of_caches(call: Call, run: Any) -> Kernel:
    def shapes(*operands: Array, **static: Any) -> Shapes:
        try:
            return call.op.result_shapes(tuple(x.shape for x in operands), static)
        except ShapeError:
            return None

    return checked(call, run, shapes, tuple(len(spec.dims) for spec in call.op.signature.inputs))


def _decode(
    q: Array, k: Array, v: Array, table: Array, lengths: Array, *more: Any, window: int, format: str
) -> int | None:
    """more: the sinks, if there are any; scale, softcap and the result."""
    *sinks, scale, softcap, y = more
    f, (pages, page, hk, _), blocks = format_of(format, cache=True), k.shape, table.shape[1]
    used = np.arange(blocks) * page < lengths[:, None]
    if ((lengths < 0) | (lengths > blocks * page)).any() or (used & ((table < 0) | (table >= pages))).any():
        return -1  # the core names the first
    b, t, hq, d = q.shape
    factor, softcap = q.dtype.type(scale or max(d, 1) ** -0.5), float(softcap)
    step = max(1, TOKENS // (hk * d))
    for i in range(b):
        s = int(lengths[i])
        rows = (q[i] * factor).reshape(t, hk, hq // hk, d).transpose(1, 0, 2, 3).reshape(hk, -1, d)
        position = np.repeat(s - t + np.arange(t), hq // hk)
        most = np.full((*rows.shape[:2], 1), -np.inf, q.dtype)
        if sinks:
            most[...] = np.tile(sinks[0].reshape(hk, 1, -1), (1, t, 1)).reshape(most.shape)
        total, mixed = (
            np.where(most == -np.inf, 0, np.ones_like(most)),
            np.zeros((*rows.shape[:2], y.shape[-1]), q.dtype),
        )
        for start in range(max(0, s - t - window + 1) if window else 0, s, step):
            tokens = np.arange(start, min(start + step, s))
            place = table[i, tokens // page], tokens % page
            keys, values = (decode(f, x[place]).swapaxes(0, 1) for x in (k, v))
            scores = rows @ keys.swapaxes(1, 2)
            if softcap:
                scores = softcap * np.tanh(scores / softcap)
            distance = position[:, None] - tokens
            scores[:, (distance < 0) | (distance >= window if window else False)] = -np.inf
            top = np.maximum(most, scores.max(-1, keepdims=True))
            held = np.where(top == -np.inf, 0, top)
            less, scores = np.exp(most - held), np.exp(scores - held)
            total, mixed, most = total * less + scores.sum(-1, keepdims=True), mixed * less + scores @ values, top
        mixed /= np.where(total == 0, 1, total)
        mixed[:, position < 0] = 0  # no key is seen, also where a sink is NaN
        y[i] = mixed.reshape(hk, t, hq // hk, -1).transpose(1, 0, 2, 3).reshape(t, hq, -1)
    return None


@KERNELS.add("attention_decode", "attention_decode_sinks", rates=Rates(1e-4, 1e9, 1e9))
def attention_decode(device: None, call: Call) -> Kernel:
    return _of_caches(call, _decode)


def _scatter(cache: Array, x: Array, slots: Array, y: Array, *, format: str) -> int | None:
    count = cache.shape[0] * cache.shape[1]
    if ((slots < -1) | (slots >= count)).any():
        return -1
    if y is not cache and y.__array_interface__["data"] != cache.__array_interface__["data"]:
        y[...] = cache
    kept = slots >= 0
    y.reshape(count, *y.shape[2:])[slots[kept]] = encode_cache(x[kept], format)
    return None


@KERNELS.add("kv_cache_scatter", rates=Rates(3e-5, 1e8, 1e9))
def kv_cache_scatter(device: None, call: Call) -> Kernel:
    return _of_caches(call, _scatter)
