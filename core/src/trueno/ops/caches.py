"""Ops on caches of keys and values: structured, so each body is NumPy code and defines the meaning.

A cache is [pages, page, heads, d]: pages of `page` tokens each.  A sequence lies on the pages that its row of `table`
lists, in their order; `lengths` counts its tokens.  A contiguous cache [sequences, capacity, heads, d] is one whose
page is the capacity, with the table arange(sequences)[:, None].  Caches hold float32, float16, bfloat16, or q8_0
blocks along d; ops see their bytes, and `format` says what these mean.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.attending import attended
from trueno.errors import ParameterError
from trueno.formats import decode, format_of
from trueno.formats.decode import stored
from trueno.formats.table import CACHES
from trueno.ops.attention import GROUPED, OF_SCORES
from trueno.ops.op import op

Array = npt.NDArray[Any]
FORMAT = {"format": CACHES}


def _on_pages(
    q: Array, k: Array, v: Array, table: Array, lengths: Array, *_: Array, op: str = "attention_decode"
) -> None:
    """Raise ParameterError for a length beyond the table, and for a page that holds tokens but does not exist."""
    pages, page = k.shape[:2]
    blocks = table.shape[1]
    wrong = (lengths < 0) | (lengths > blocks * page)
    if wrong.any():
        i = int(np.argmax(wrong))
        room = f"its row of table has {blocks} pages of {page} tokens, which hold 0 to {blocks * page}"
        raise ParameterError(f"{op}: lengths[{i}] is {lengths[i]}; {room}; list more pages")
    used = np.arange(blocks) * page < lengths[:, None]
    wrong = used & ((table < 0) | (table >= pages))
    if wrong.any():
        i, j = (int(n) for n in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
        remedy = f"k has pages 0 to {pages - 1}" if pages else "k has no pages"
        raise ParameterError(f"{op}: table[{i}, {j}] is {table[i, j]}, but {remedy}; name one of them")


def _on_pages_too(*operands: Array) -> None:
    _on_pages(*operands, op="attention_decode_sinks")


def _decoded(
    q: Array, k: Array, v: Array, table: Array, lengths: Array, format: str, sinks: Array | None = None, **rest: Any
) -> Array:
    f, page = format_of(format, cache=True), k.shape[1]
    rest = {name: x if name == "window" else float(x) for name, x in rest.items()}
    y = np.zeros((*q.shape[:3], f.row_elements(v.shape[-1])), q.dtype)
    for i, length in enumerate(lengths):
        tokens = np.arange(length)
        place = (table[i, tokens // page], tokens % page) if length else (tokens, tokens)
        keys, values = (decode(f, x[place]).astype(q.dtype) for x in (k, v))
        y[i] = attended(q[i], keys, values, causal=True, sinks=sinks, **rest)
    return y


@op(
    "q[b,t,hq,d] k[pages,page,hk,d]:cache v[pages,page,hk,e]:cache table[b,blocks]:index lengths[b]:index "
    "-> y[b,t,hq,e]",
    structured=True,
    flops="2*b*t*blocks*page*hq*(d+e)",
    choices=FORMAT,
    rules=OF_SCORES,
    extents=(GROUPED,),
    check=_on_pages,
)
def attention_decode(
    q,
    k,
    v,
    table,
    lengths,
    *,
    scale: float = 0.0,
    window: int = 0,
    softcap: float = 0.0,
    format: str = "",
):
    """attention(q[i], k of sequence i, v of sequence i, causal=True): the last t tokens of each sequence.

    Token p of sequence i is on page table[i, p // page] at p mod page; lengths[i] counts its tokens, those of q
    included: query j is at position lengths[i] − t + j, and sees the keys up to it.  scale, window, softcap: as in
    attention.  What table lists beyond lengths[i] is not read, and may be any number.
    Shapes: k and v are arrays of float32, float16 or bfloat16, or uint8 with `format`; hq is a multiple of hk.
    Edges: as attention; a query before the first token gives 0; a length beyond the table, and a page out of range that
    holds tokens, are a ParameterError that names it.
    Source: Kwon and others (2023), arXiv 2309.06180.
    """
    _on_pages(q, k, v, table, lengths)
    return _decoded(q, k, v, table, lengths, format, scale=scale, window=window, softcap=softcap)


@op(
    "q[b,t,hq,d] k[pages,page,hk,d]:cache v[pages,page,hk,e]:cache table[b,blocks]:index lengths[b]:index sinks[hq] "
    "-> y[b,t,hq,e]",
    structured=True,
    flops="2*b*t*blocks*page*hq*(d+e)",
    choices=FORMAT,
    rules=OF_SCORES,
    extents=(GROUPED,),
    check=_on_pages_too,
)
def attention_decode_sinks(
    q,
    k,
    v,
    table,
    lengths,
    sinks,
    *,
    scale: float = 0.0,
    window: int = 0,
    softcap: float = 0.0,
    format: str = "",
):
    """attention_decode, whose softmax has the term e^sinks[h] more, as that of attention_sinks.

    Shapes: as attention_decode; one sink per head of queries.
    Edges: as attention_decode and attention_sinks.
    Source: as attention_decode and attention_sinks.
    """
    _on_pages_too(q, k, v, table, lengths, sinks)
    return _decoded(q, k, v, table, lengths, format, sinks, scale=scale, window=window, softcap=softcap)


def _slots(cache: Array, x: Array, slots: Array) -> None:
    """Raise ParameterError naming the first slot that does not exist."""
    count = cache.shape[0] * cache.shape[1]
    wrong = (slots < -1) | (slots >= count)
    if wrong.any():
        i = int(np.argmax(wrong))
        there = f"the cache has slots 0 to {count - 1}" if count else "the cache has no slots"
        raise ParameterError(f"kv_cache_scatter: slots[{i}] is {slots[i]}, but {there}; -1 leaves a row out")


def encode_cache(x: Array, format: str) -> Array:
    """x[..., k] in the bytes of a cache; a q8_0 block with a NaN or an Inf has the scale NaN."""
    f = format_of(format, cache=True)
    if f.cells:
        return stored(f, x)
    from trueno.formats.encoders import encode  # long, and few programs quantize

    blocks = x.reshape(-1, f.elements)
    broken: Array = ~np.all(np.isfinite(blocks), -1)
    rows = encode(f, np.where(broken[:, None], 0, blocks).astype(np.float32, copy=False))
    spec = f.fields[f.d]
    rows[broken, spec.offset : spec.offset + spec.nbytes] = np.array([np.nan], spec.dtype).view(np.uint8)
    return rows.reshape(*x.shape[:-1], f.row_bytes(x.shape[-1]))


@op(
    "cache[pages,page,h,d]:cache x[n,h,d] slots[n]:index -> y[pages,page,h,d]:cache",
    structured=True,
    flops="n*h*d",
    choices=FORMAT,
    check=_slots,
    updates=True,
)
def kv_cache_scatter(cache, x, slots, *, format: str = ""):
    """y is the cache with x[i] in slot slots[i]: page slots[i] // page, token slots[i] mod page.

    out=cache writes into the cache itself, and touches nothing but those rows; without it y is a copy, as bytes
    (y.view(dtype) reads them).  In a batch it always writes into the uploaded cache.  Rows are rounded to nearest even,
    and to q8_0 as ggml quantizes.  Slot −1 leaves its row out; of rows with the same slot the last one counts.
    Shapes: the cache is an array of float32, float16 or bfloat16, or uint8 with `format`; n rows of x in float32.
    Edges: a number beyond float16 becomes Inf there; in q8_0 a NaN or an Inf makes its 32 numbers NaN; a slot out of
    range is a ParameterError that names it, and then nothing is written.
    """
    _slots(cache, x, slots)
    y = cache.copy()
    kept = slots >= 0
    y.reshape(y.shape[0] * y.shape[1], *y.shape[2:])[slots[kept]] = encode_cache(x[kept], format)
    return y
