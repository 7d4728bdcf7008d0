"""Selection: structured ops that rank the numbers of a row, so each body is NumPy code and defines the meaning."""

import numpy as np

from trueno.ops.op import op
from trueno.ranking import BELOW_ONE, prefix, ranked, sizes


@op("x[...,n] -> values[...,k] indices[...,k]:index", structured=True, flops="rows*n", rules="1 <= k <= 1e18",
    extents=("k <= n",))  # fmt: skip
def topk(x, k: int = 1):
    """The k largest elements of each row, the largest first, and their positions, int64.

    Shapes: k values and k positions a row.
    Edges: equal elements in order of position, and +0 equals −0; NaN is larger than every number, so the first is that
    of argmax; bits are copied; k > n is a ShapeError.
    """
    indices = ranked(x, k)
    return np.take_along_axis(x, indices, -1), indices


@op("logits[...,n] r[...] -> token[...]:index", structured=True, flops="4*rows*n",
    rules=("0 <= temperature <= 1e18", "temperature == 0 or temperature >= 1e-300", "0 <= top_k <= 1e18",
           "0 <= top_p <= 1", "0 <= min_p <= 1"),
    extents=("n >= 1",))  # fmt: skip
def sample(logits, r, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0):
    """A token drawn by the random number r of [0, 1): a function of its operands, int64.

    Filters keep a part of the tokens, in descending order of logit (equal ones in order of position), one after the
    other: the first top_k (0: all); of these, with p = softmax(logits), the fewest whose p add up to top_p; of these,
    with p at least min_p times the largest.  Then p = softmax(logits / temperature) over what is left, and the token is
    the first in that order at which the sum of p exceeds r.  A temperature of 0 gives argmax.  Sums are in float64.
    Shapes: one number r for each row of logits; leading axes broadcast.
    Edges: r below 0 or NaN counts as 0, r from 1 on as the largest below 1; the first NaN of a row is its token; tokens
    of the largest logit have equal p if that is infinite; at least one token is kept; an empty row is a ShapeError.
    Source: llama.cpp's default chain of samplers (llama-sampler.cpp), with r in place of its generator.
    """
    lead = np.broadcast_shapes(logits.shape[:-1], r.shape)
    rows = np.broadcast_to(logits, (*lead, logits.shape[-1])).reshape(-1, logits.shape[-1]).astype(np.float64)
    numbers = np.broadcast_to(np.clip(np.nan_to_num(r.astype(np.float64)), 0, BELOW_ONE), lead).reshape(-1)
    tokens = np.empty(len(rows), np.int64)
    for i, (row, number) in enumerate(zip(rows, numbers, strict=True)):
        tokens[i] = np.argmax(row)
        if temperature == 0 or np.isnan(row[tokens[i]]):
            continue
        order = prefix(row, top_k, top_p, min_p)
        sums = np.cumsum(sizes(row, order, temperature))
        tokens[i] = order[np.searchsorted(sums, number * sums[-1], side="right")]
    return tokens.reshape(lead)
