"""Selection by NumPy: its meaning is the bodies in `trueno.ops.selection`."""

import numpy as np
from trueno.backend import Call, Kernel, Rates

from trueno_scalar.kernels.table import KERNELS, Array, Shapes, checked


def best(x: Array, k: int) -> Array:
    """Positions of the k largest of one row, the largest first; `argpartition` alone would break ties at random."""
    n = len(x)
    rank = np.where(np.isnan(x), -np.inf, -x)  # ascending; NaN and Inf are told apart below
    candidates = np.arange(n)
    if k < n:
        worst = np.partition(rank, k - 1)[k - 1]
        candidates = np.flatnonzero(rank <= worst)
    order = np.lexsort((rank[candidates], ~np.isnan(x[candidates])))
    return candidates[order[:k]]


def _topk(x: Array, values: Array, indices: Array, *, k: int) -> None:
    rows, n = x.reshape(-1, x.shape[-1]), x.shape[-1]
    chosen, picked = values.reshape(-1, k), indices.reshape(-1, k)
    if n <= SORTED:  # all rows at once
        nan = np.isnan(rows)
        picked[...] = np.lexsort((np.where(nan, -np.inf, -rows), ~nan), axis=-1)[:, :k]
    else:
        for r, row in enumerate(rows):
            picked[r] = best(row, k)
    chosen[...] = np.take_along_axis(rows, picked, 1)


SORTED = 512
"""The longest row that is sorted whole."""


@KERNELS.add("topk", rates=Rates(2e-5, 5e8, 2e9))
def topk(device: None, call: Call) -> Kernel:
    def shapes(x: Array, *, k: int) -> Shapes:
        fits = x.ndim and 1 <= k <= x.shape[-1]
        return ((*x.shape[:-1], k),) * 2 if fits else None

    return checked(call, _topk, shapes)
