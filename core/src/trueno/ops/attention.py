"""Ops of transformers: structured, so each body is NumPy code and defines the meaning.

A head is a row of d numbers.  Queries, keys and values are [..., tokens, heads, d], as a product with the weights of a
layer leaves them.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.attending import attended
from trueno.errors import ParameterError
from trueno.ops.op import op
from trueno.rotary import SCALINGS, rotated

Array = npt.NDArray[Any]
STYLES = ("neox", "interleaved")


def _positions(x: Array, positions: Array) -> None:
    """Raise ParameterError naming the first negative position."""
    if positions.size and positions.min() < 0:
        at = tuple(map(int, np.unravel_index(np.argmax(positions < 0), positions.shape)))
        where = f"positions[{', '.join(map(str, at))}]" if at else "positions"
        raise ParameterError(f"rope: {where} is {positions[at]}; a position is 0 or more")


def _rotated_size(x: Any, positions: Any, *, style: str, dims: int, **rest: Any) -> Any:
    size = np.abs(np.where(np.isfinite(x), x, 0)).astype(np.float64)
    return rotated(size, positions, style, dims, -1, **rest)


@op(
    "x[...,h,d] positions[...]:index -> y[...,h,d]",
    structured=True,
    flops="3*rows*h*d",
    chain="4",
    choices={"style": STYLES, "scaling": SCALINGS},
    rules=(
        "0 < theta <= 1e18",
        "0 <= dims <= 1e9",
        "0 < factor <= 1e6",
        "0 <= context <= 1e18",
        "0 < slow <= 1e6",
        "0 <= fast <= 1e6",
        "fast == 0 or fast >= slow",
        "0 <= magnitude <= 1e6",
        "scaling != 'yarn' or theta > 1",
        "factor == 1 or context > 0 or scaling in ('none', 'linear', 'ntk')",
    ),
    extents=("dims <= d", "(dims or d) % 2 == 0"),
    check=_positions,
    magnitude=_rotated_size,
)
def rope(
    x,
    positions,
    *,
    theta: float = 10000.0,
    style: str = "neox",
    dims: int = 0,
    scaling: str = "none",
    factor: float = 1.0,
    context: float = 0.0,
    slow: float = 1.0,
    fast: float = 0.0,
    magnitude: float = 0.0,
):
    """Pair i = (a, b) of a head becomes (a cos α − b sin α, b cos α + a sin α), α = position · θ^(−2i/dims).

    style: "neox" pairs x[i] with x[i + dims/2] (Qwen, and Llama in Hugging Face's order), "interleaved" x[2i] with
    x[2i + 1] (Llama in GGUF files).  dims: how many leading numbers of a head turn, 0 for all; the others are copied.
    scaling: "linear" divides every frequency by `factor`; "ntk" multiplies θ by factor^(dims/(dims−2)); "yarn" and
    "llama3" divide those of pairs that make fewer than `slow` turns within `context` positions (the length that the
    model was trained on), keep those from `fast` turns on (0: 32 for yarn, 4 for llama3), and mix between.
    magnitude: the factor of the result, 0 for the scaling's own, which is 1 + ln(factor)/10 for yarn and 1 otherwise.
    Angles are exact to 2⁻⁴² of a turn up to position 2²⁰, in float32 and float64.
    Shapes: x[..., h, d] and one position per token; leading axes broadcast; dims is even and at most d.
    Edges: bits are copied beyond dims; a negative position is a ParameterError that names it; NaN and Inf as IEEE 754.
    Source: Su and others (2021), arXiv 2104.09864; Peng and others (2023), arXiv 2309.00071.
    """
    _positions(x, positions)
    scaled = {
        "scaling": scaling, "factor": factor, "context": context, "slow": slow, "fast": fast, "magnitude": magnitude,
    }  # fmt: skip
    return rotated(x, positions, style, dims, 1, theta, **scaled)


OF_SCORES = ("scale >= 0", "softcap >= 0", "0 <= window <= 1e18")
GROUPED = "hq % max(hk, 1) == 0"


@op("q[...,t,hq,d] k[...,s,hk,d] v[...,s,hk,e] -> y[...,t,hq,e]", structured=True, flops="2*rows*t*s*hq*(d+e)",
    rules=OF_SCORES, extents=(GROUPED,), choices={"products": ("f32", "bf16")})  # fmt: skip
def attention(
    q, k, v, *, causal: bool = False, scale: float = 0.0, window: int = 0, softcap: float = 0.0, products: str = "f32"
):
    """y[i,h,:] = Σⱼ p[j] · v[j,g,:], p = softmax over the keys j that query i sees of scale · q[i,h] · k[j,g].

    Each hq/hk heads of queries share a head g of keys and values.  Queries are aligned to the end of the keys: query i
    is at position s − t + i.  causal: it sees keys up to its position.  window: and of these only the last `window`, or
    those less than `window` positions away if it is not causal; 0 is no window.  scale: 0 is 1/√d.  softcap: scores x
    become softcap · tanh(x / softcap); 0 is no cap.  products: "bf16" lets a backend round q, k, v and p to bfloat16,
    by 2^-9 of each at most.  No array of t × s scores is ever made.  See also attention_masked, _sinks and _ragged.
    Shapes: leading axes broadcast; hq is a multiple of hk.
    Edges: a query that sees no key gives 0, and so do s = 0 and d = 0; a NaN that a query sees makes its row NaN, and
    NaN or Inf in keys and values that it does not see may do so; scaled queries, scores and sums that overflow have no
    defined result.
    Source: Dao and others (2022), arXiv 2205.14135.
    """
    return attended(q, k, v, causal=causal, scale=scale, window=window, softcap=softcap)


@op("q[...,t,hq,d] k[...,s,hk,d] v[...,s,hk,e] sinks[hq] -> y[...,t,hq,e]", structured=True,
    flops="2*rows*t*s*hq*(d+e)", rules=OF_SCORES, extents=(GROUPED,))  # fmt: skip
def attention_sinks(q, k, v, sinks, *, causal: bool = False, scale: float = 0.0, window: int = 0, softcap: float = 0.0):
    """attention, whose softmax has one term more: p[j] = e^x[j] / (e^sinks[h] + Σᵢ e^x[i]).

    The sink takes a share of the weights and adds no value, so the weights of the keys sum to less than 1.  It is a
    logit: neither `scale` nor `softcap` applies to it, and no window hides it.  −Inf is no sink.
    Shapes: as attention; one sink per head of queries, shared by all leading axes.
    Edges: as attention; a NaN in a sink makes its head NaN; +Inf has no defined result.
    Source: OpenAI (2025), gpt-oss; Xiao and others (2024), arXiv 2309.17453.
    """
    return attended(q, k, v, causal=causal, scale=scale, window=window, softcap=softcap, sinks=sinks)


@op("q[...,t,hq,d] k[...,s,hk,d] v[...,s,hk,e] mask[...,m,r,s] -> y[...,t,hq,e]", structured=True,
    flops="2*rows*t*s*hq*(d+e)", rules=OF_SCORES,
    extents=(GROUPED, "m == 1 or m == hq", "r == 1 or r == t"))  # fmt: skip
def attention_masked(q, k, v, mask, *, causal: bool = False, scale: float = 0.0, window: int = 0, softcap: float = 0.0):
    """attention, with mask[h,i,j] added to the score of query i with key j, after the cap; −Inf hides the key.

    For padding mask[b,1,1,s], for trees of tokens mask[1,t,s], for biases by position, as ALiBi and T5 have them,
    mask[hq,t,s] or mask[hq,1,s].  causal and window hide keys as well.
    Shapes: as attention; leading axes broadcast, m is 1 or hq, and r is 1 or t.
    Edges: as attention; a query whose keys are all hidden gives 0; NaN as in scores; +Inf, and finite numbers beyond
    half of the largest, have no defined result.
    Source: as attention.
    """
    return attended(q, k, v, causal=causal, scale=scale, window=window, softcap=softcap, mask=mask)


def _offsets(q: Array, k: Array, v: Array, offsets_q: Array, offsets_k: Array) -> None:
    """Raise ParameterError naming the first offset that is out of range, or less than the one before it."""
    for name, offsets, of, count in (
        ("offsets_q", offsets_q, "q", q.shape[0]),
        ("offsets_k", offsets_k, "k", k.shape[0]),
    ):
        wrong = (offsets < 0) | (offsets > count)
        if wrong.any():
            i = int(np.argmax(wrong))
            remedy = f"{of} has {count} tokens; give offsets from 0 to {count}"
            raise ParameterError(f"attention_ragged: {name}[{i}] is {offsets[i]}, but {remedy}")
        falls = offsets[1:] < offsets[:-1]
        if falls.any():
            i = int(np.argmax(falls))
            problem = f"{name}[{i + 1}] is {offsets[i + 1]}, but {name}[{i}] is {offsets[i]}"
            raise ParameterError(f"attention_ragged: {problem}; offsets do not decrease: list sequences in their order")


@op(
    "q[t,hq,d] k[s,hk,d] v[s,hk,e] offsets_q[n]:index offsets_k[n]:index -> y[t,hq,e]",
    structured=True,
    flops="2*t*s*hq*(d+e)/n",
    rules=OF_SCORES,
    extents=(GROUPED, "n >= 1"),
    check=_offsets,
)
def attention_ragged(
    q,
    k,
    v,
    offsets_q,
    offsets_k,
    *,
    causal: bool = False,
    scale: float = 0.0,
    window: int = 0,
    softcap: float = 0.0,
):
    """attention of many sequences, which lie one behind the other: sequence i is offsets[i] to offsets[i + 1].

    Its queries are q[offsets_q[i] : offsets_q[i + 1]], its keys and values those from offsets_k[i] on, and each query
    sees keys of its own sequence alone, aligned to their end.  n − 1 sequences have n offsets of each kind.
    Shapes: as attention without leading axes; a sequence may have no query, or no key.
    Edges: as attention; a query before the first offset or from the last one on gives 0; an offset that is out of
    range, or less than the one before it, is a ParameterError that names it.
    Source: as attention.
    """
    _offsets(q, k, v, offsets_q, offsets_k)
    scale, softcap = float(scale), float(softcap)
    y = np.zeros((*q.shape[:2], v.shape[-1]), q.dtype)
    for i in range(len(offsets_q) - 1):
        own, seen = slice(*offsets_q[i : i + 2]), slice(*offsets_k[i : i + 2])
        y[own] = attended(q[own], k[seen], v[seen], causal=causal, scale=scale, window=window, softcap=softcap)
    return y
