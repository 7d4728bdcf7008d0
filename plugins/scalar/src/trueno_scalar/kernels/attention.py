"""Ops of transformers by NumPy: their meaning is the body in `trueno.ops.attention`."""

from typing import Any

import numpy as np
from trueno.backend import Call, Kernel, Rates, cosines, rotation

from trueno_scalar.kernels.table import KERNELS, Array, Shapes, checked

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


@KERNELS.add("rope", rates=Rates(4e-5, 2e9, 1e10))
def rope(device: None, call: Call) -> Kernel:
    def shapes(x: Array, positions: Array, *, style: str, dims: int, scaling: str) -> Shapes:
        fits = x.ndim >= 2 and x.shape[:-2] == positions.shape
        return (x.shape,) if fits and dims <= x.shape[-1] and (dims or x.shape[-1]) % 2 == 0 else None

    return checked(call, _rope, shapes)
