"""The bound of `sample`: which tokens a correct kernel may draw.

Sums of n exponentials in float64 err by at most (n + 16) u of the whole, in whatever order they are added, the error of
each exponential included.  A filter whose threshold lies that close to a sum, or to an exponential, may keep a token
more or less, and r that close to a sum may draw either of its neighbours.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.discovery.protocol import Accuracy
from trueno.judge.bound import Bound
from trueno.judge.interval import Array
from trueno.ops.op import TABLE
from trueno.ranking import BELOW_ONE, ranked, sizes

U = 2.0**-53


def sample_bound(
    operands: Sequence[Array], parameters: dict[str, Any], dtype: npt.DTypeLike, accuracy: Accuracy
) -> list[Bound]:
    """The bound of `sample`'s result: `allowed` tokens of each row."""
    logits, r = (np.asarray(x).astype(np.float64) for x in operands)
    value = np.asarray(TABLE["sample"].body(logits, r, **parameters))
    lead, n = value.shape, logits.shape[-1]
    rows = np.broadcast_to(logits, (*lead, n)).reshape(-1, n)
    numbers = np.broadcast_to(np.clip(np.nan_to_num(r), 0, BELOW_ONE), lead).reshape(-1)
    allowed = np.zeros((value.size, n), bool)
    for i, (row, number, token) in enumerate(zip(rows, numbers, value.reshape(-1), strict=True)):
        allowed[i, token] = True
        if parameters["temperature"] != 0 and not np.isnan(row).any():
            allowed[i, _drawn(row, number, **parameters)] = True
    wide = value.astype(np.float64)
    return [Bound(wide, np.zeros(lead), np.full(lead, float(n - 1)), np.zeros(lead, bool), allowed)]


def _drawn(row: Array, r: float, *, temperature: float, top_k: int, top_p: float, min_p: float) -> Array:
    """The tokens that r may draw from a row without a NaN."""
    order = ranked(row, top_k or len(row))
    error = (len(row) + 16) * U
    plain = sizes(row, order, 1.0)
    sums = np.cumsum(plain)
    few, most = [len(order)] * 2
    if top_p < 1:
        few, most = (1 + int(np.searchsorted(sums, (top_p + e) * sums[-1])) for e in (-error, error))
    few = max(1, min(few, len(order), int(np.count_nonzero(plain >= min_p * (1 + error)))))
    most = max(1, min(most, len(order), int(np.count_nonzero(plain >= min_p * (1 - error)))))
    sums = np.cumsum(sizes(row, order, temperature)[:most])
    low, high = r * sums[few - 1] - error * sums[-1], r * sums[-1] + error * sums[-1]
    before = np.concatenate([[0.0], sums[:-1]])
    drawn: Array = order[:most][(before <= high) & (sums >= low)]
    return drawn


BOUNDS = {"sample": sample_bound}
