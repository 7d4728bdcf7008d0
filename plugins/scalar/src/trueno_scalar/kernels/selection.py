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


def _drawn(row: Array, number: float, temperature: float, top_k: int, top_p: float, min_p: float) -> int:
    order = best(row, min(top_k or len(row), len(row)))
    first = int(order[0])
    if not temperature or np.isnan(row[first]):
        return first
    ranked = row[order].astype(np.float64)
    gaps = np.where(ranked == ranked[0], 0, ranked - ranked[0])
    if top_p < 1 or min_p > 0:
        sizes = np.exp(gaps)
        sums = np.cumsum(sizes)
        kept = len(order) if top_p >= 1 else min(int(np.searchsorted(sums, top_p * sums[-1])) + 1, len(order))
        gaps = gaps[: max(1, int(np.count_nonzero(sizes[:kept] >= min_p)))]
    sums = np.cumsum(np.exp(gaps / temperature))
    number = min(max(number, 0.0), 1 - 2.0**-53) if number == number else 0.0
    return int(order[np.searchsorted(sums, number * sums[-1], side="right")])


def _sample(
    logits: Array, r: Array, temperature: float, top_p: float, min_p: float, token: Array, *, top_k: int
) -> None:
    rows, chosen = logits.reshape(-1, logits.shape[-1]), token.reshape(-1)
    for i, (row, number) in enumerate(zip(rows, r.reshape(-1).tolist(), strict=True)):
        chosen[i] = _drawn(row, number, temperature, top_k, top_p, min_p)


@KERNELS.add("sample", rates=Rates(4e-5, 4e7, 1e9))
def sample(device: None, call: Call) -> Kernel:
    def shapes(logits: Array, r: Array, *, top_k: int) -> Shapes:
        return (r.shape,) if logits.ndim and logits.shape[-1] and logits.shape[:-1] == r.shape else None

    return checked(call, _sample, shapes)
