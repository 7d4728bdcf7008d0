"""Ranking the numbers of a row: the arithmetic of the bodies of `topk` and `sample`."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
BELOW_ONE = 1 - 2.0**-53


def ranked(x: Array, k: int) -> Array:
    """Positions of the k largest numbers of each row: NaN first, then descending; equal ones in order of position."""
    nan = np.isnan(x)
    return np.lexsort((-np.where(nan, 0, x), ~nan), axis=-1)[..., :k]


def sizes(row: Array, order: Array, temperature: float) -> Array:
    """The exponentials of these tokens' logits, divided by the largest; of two equal infinities the gap is 0."""
    largest = row[order[0]]
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = np.where(row[order] == largest, 0, (row[order] - largest) / temperature)
    return np.exp(gaps)


def prefix(row: Array, top_k: int, top_p: float, min_p: float) -> Array:
    """The tokens that the filters keep, in descending order of logit."""
    order = ranked(row, top_k or len(row))
    plain = sizes(row, order, 1.0)
    sums = np.cumsum(plain)
    order = order[: int(np.searchsorted(sums, top_p * sums[-1])) + 1] if top_p < 1 else order
    return order[plain[: len(order)] >= min_p]
