"""What language models compute token by token: choosing tokens, caches of keys and values, rows and experts of blocks.

Every contestant computes the same on the same numbers, and its result is checked.  Peers get what they prepare once for
free: PyTorch's keys are gathered, its tables and experts decoded to float32.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import trueno
from trueno.formats import FORMATS
from trueno.ops import TABLE

from benchmarks.compare import Record, threads
from benchmarks.floors import floor
from benchmarks.inputs import values
from benchmarks.peers import torch
from benchmarks.rows import Cell, Plan
from benchmarks.timing import OURS, Thunk, bind, compare

Array = np.ndarray[Any, Any]
NORMAL = ("normal", 0.0, 1.0)
VOCABULARY = 151_936
DRAW = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
NUCLEUS = {"temperature": 0.8, "top_k": 0, "top_p": 0.9, "min_p": 0.0}
HEADS, KV_HEADS, HEAD = 32, 8, 128
SEVERAL = (4096, 3000, 2048, 1500, 1024, 700, 300, 100)
CASES: dict[tuple[str, str], tuple[Any, ...]] = {
    ("topk", f"40 of {VOCABULARY}"): (1, VOCABULARY, 40),
    ("topk", "8 of 128, 512 rows"): (512, 128, 8),
    ("sample", f"{VOCABULARY}, top-k 40, top-p, min-p"): (1, VOCABULARY, DRAW),
    ("sample", f"{VOCABULARY}, top-p 0.9"): (1, VOCABULARY, NUCLEUS),
    ("sample", f"8 rows of {VOCABULARY}, top-k 40"): (8, VOCABULARY, DRAW),
    ("concatenate", "1000×1000 twice, axis 0"): ((1000, 1000), 0),
    ("concatenate", "1000×1000 twice, axis 1"): ((1000, 1000), 1),
    ("attention_decode", "4096 tokens, float32"): ((4096,), "float32"),
    ("attention_decode", "4096 tokens, float16"): ((4096,), "float16"),
    ("attention_decode", "8 sequences, 12 768 tokens, float32"): (SEVERAL, "float32"),
    ("attention_decode", "8 sequences, 12 768 tokens, float16"): (SEVERAL, "float16"),
    ("kv_cache_scatter", "8 tokens, float16"): (8, 8192, "float16"),
    ("kv_cache_scatter", "512 tokens, float16"): (512, 8192, "float16"),
    ("kv_cache_scatter", "512 tokens, float32"): (512, 8192, "float32"),
    ("quant_experts", "1 token, 8 of 32, 768×2048 q4_k"): (1, 32, 8, 768, 2048),
    ("quant_experts", "64 tokens, 8 of 32, 768×2048 q4_k"): (64, 32, 8, 768, 2048),
    ("quant_embedding_lookup", "1 of 8192×2048 q4_k"): (1, 8192, 2048),
    ("quant_embedding_lookup", "512 of 8192×2048 q4_k"): (512, 8192, 2048),
}
SHORT = ("topk", "concatenate", "kv_cache_scatter")


@dataclass
class Work:
    """One cell: what each contestant calls; `results` reads what a call has computed, by default what it returns.

    reads, writes: the least bytes; flops: at least.  close: how large the root mean square of a difference may be, over
    that of ours; 0 if results are equal.
    """

    calls: dict[str, Thunk]
    reads: int
    writes: int
    flops: float = 0.0
    close: float = 0.0
    results: dict[str, Callable[[], Any]] = field(default_factory=dict)

    def disagreeing(self) -> list[str]:
        """The names of the contestants whose results are not ours."""
        wanted = self._result(OURS)
        return [name for name in self.calls if not self._near(self._result(name), wanted)]

    def _result(self, name: str) -> list[Array]:
        returned = self.calls[name]()
        returned = self.results[name]() if name in self.results else returned
        parts = returned if isinstance(returned, (tuple, list)) else (returned,)
        return [np.asarray(part).copy() for part in parts]

    def _near(self, result: Sequence[Array], wanted: Sequence[Array]) -> bool:
        if not self.close:
            return all(np.array_equal(a, b) for a, b in zip(result, wanted, strict=True))
        a, b = (np.concatenate([np.ravel(x) for x in some]).astype(np.float64) for some in (result, wanted))
        return a.shape == b.shape and bool(((a - b) ** 2).sum() <= self.close**2 * (b**2).sum())  # NaN is not near


def cells(plan: Plan) -> Iterator[Cell]:
    for (name, shape), sizes in CASES.items():
        if not plan.quick or name in SHORT:
            yield Cell("language", name, shape, partial(_measured, name, shape, sizes, plan))


def _measured(name: str, shape: str, sizes: tuple[Any, ...], plan: Plan) -> list[Record]:
    work = WORKS[name](*sizes)
    record = Record("language", name, shape, family=TABLE[name].family)
    if names := work.disagreeing():
        record.problem = f"disagrees with ours: {', '.join(names)}"
        if OURS in names:
            return [record]
    comparison = compare({name: call for name, call in work.calls.items() if name not in names}, plan.budget)
    record.seconds, record.ratios, record.peer = comparison.seconds, comparison.ratios, comparison.peer
    record.value = comparison.ratio if comparison.ratios else None
    least = floor(work.reads, work.writes, work.flops, threads())
    record.floor, record.limit = least.seconds, least.limit
    return [record]


def _tensors(*arrays: Array) -> list[Any]:
    return [torch.from_numpy(x) for x in arrays]


# ---- choosing tokens


def topk(rows: int, n: int, k: int) -> Work:
    x = values(NORMAL, (rows, n))
    out = np.empty((rows, k), np.float32), np.empty((rows, k), np.int64)

    def by_numpy() -> tuple[Array, Array]:
        indices = np.argpartition(x, n - k, -1)[:, n - k :]
        largest = np.take_along_axis(x, indices, -1)
        order = np.argsort(-largest, -1)
        return np.take_along_axis(largest, order, -1), np.take_along_axis(indices, order, -1)

    calls = {OURS: bind(trueno.topk, x, k, out=out), "numpy": by_numpy}
    if torch is not None:
        theirs = np.empty_like(out[0]), np.empty_like(out[1])
        calls["torch"] = bind(torch.topk, *_tensors(x), k, out=tuple(_tensors(*theirs)))
    return Work(calls, x.nbytes, rows * k * 12)


def sample(rows: int, n: int, how: dict[str, Any]) -> Work:
    """top_k, then top_p, then min_p, then the temperature, in float64."""
    x, r = 3 * values(NORMAL, (rows, n)), np.random.default_rng(1).random(rows, np.float32)
    k, token = how["top_k"] or n, np.empty(rows, np.int64)

    def by_numpy() -> Array:
        drawn = np.empty(rows, np.int64)
        for i, row in enumerate(x):
            tokens = np.argpartition(row, n - k)[n - k :] if k < n else np.arange(n)
            tokens = tokens[np.argsort(-row[tokens], kind="stable")]
            gaps = (row[tokens] - row[tokens[0]]).astype(np.float64)
            p = np.exp(gaps)
            p /= p.sum()
            kept = (np.cumsum(p) - p < how["top_p"]) & (p >= how["min_p"] * p[0])
            sums = np.cumsum(np.exp(gaps[kept] / how["temperature"]))
            drawn[i] = tokens[kept][np.searchsorted(sums, r[i] * sums[-1], "right")]
        return drawn

    calls = {OURS: bind(trueno.sample, x, r, **how, out=token), "numpy": by_numpy}
    if torch is not None:
        logits, number = _tensors(x, r[:, None])

        def by_torch() -> Any:
            largest, tokens = torch.topk(logits, k)
            gaps = (largest - largest[:, :1]).double()
            p = torch.softmax(gaps, -1)
            kept = (p.cumsum(-1) - p < how["top_p"]) & (p >= how["min_p"] * p[:, :1])
            sums = torch.softmax((gaps / how["temperature"]).masked_fill_(~kept, -torch.inf), -1).cumsum(-1)
            return tokens.gather(-1, torch.searchsorted(sums, number * sums[:, -1:], right=True))[:, 0]

        calls["torch"] = by_torch
    return Work(calls, x.nbytes, token.nbytes)


def concatenate(shape: tuple[int, int], axis: int) -> Work:
    a, b = (values(NORMAL, shape, seed) for seed in range(2))
    out, theirs, tensors = (np.empty_like(np.concatenate((a, b), axis)) for _ in range(3))
    calls = {
        OURS: bind(trueno.concatenate, a, b, axis=axis, out=out),
        "numpy": bind(np.concatenate, (a, b), axis=axis, out=theirs),
    }
    if torch is not None:
        calls["torch"] = bind(torch.cat, _tensors(a, b), axis, out=torch.from_numpy(tensors))
    return Work(calls, out.nbytes, out.nbytes)


# ---- caches


def attention_decode(lengths: Sequence[int], dtype: str) -> Work:
    """One new token of each sequence, on a contiguous cache; PyTorch on each sequence, or on all with a mask."""
    b, most = len(lengths), max(lengths)
    k, v = (values(NORMAL, (b, most, KV_HEADS, HEAD), seed).astype(dtype) for seed in range(2))
    q, table, counts = values(NORMAL, (b, 1, HEADS, HEAD), 2), np.arange(b)[:, None], np.array(lengths)
    out = np.empty_like(q)
    calls: dict[str, Thunk] = {OURS: bind(trueno.attention_decode, q, k, v, table, counts, out=out)}
    if dtype == "float32":
        calls["numpy"] = _by_numpy(lengths, q, k, v)
    if torch is not None:
        kinds = [dtype] if dtype == "float32" else [dtype, "float32"]  # half precision is not fast on every CPU
        for i, (by, kind) in enumerate((by, kind) for by in (_one_by_one, _masked) for kind in kinds):
            if by is not _masked or len(set(lengths)) > 1:
                calls[f"torch {i + 1}" if i else "torch"] = by(lengths, *(x.astype(kind) for x in (q, k, v)))
    tokens, group = sum(lengths), 2 * KV_HEADS * HEAD * k.itemsize
    close = 1e-5 if dtype == "float32" else 5e-3  # PyTorch rounds scores and results to half precision
    return Work(calls, tokens * group + q.nbytes, out.nbytes, 4.0 * tokens * HEADS * HEAD, close)


def _by_numpy(lengths: Sequence[int], q: Array, k: Array, v: Array) -> Thunk:
    views = [(x[0].reshape(KV_HEADS, -1, HEAD), y[:n].transpose(1, 2, 0), z[:n].transpose(1, 0, 2))
             for x, y, z, n in zip(q, k, v, lengths, strict=True)]  # fmt: skip

    def attend() -> Array:
        y = np.empty_like(q)
        for row, (queries, keys, numbers) in zip(y, views, strict=True):
            p = np.matmul(queries * np.float32(HEAD**-0.5), keys)
            np.exp(np.subtract(p, p.max(-1, keepdims=True), out=p), out=p)
            p /= p.sum(-1, keepdims=True)
            np.matmul(p, numbers, out=row.reshape(queries.shape))
        return y

    return attend


def _one_by_one(lengths: Sequence[int], q: Array, k: Array, v: Array) -> Thunk:
    attend = torch.nn.functional.scaled_dot_product_attention
    heads = [
        [torch.from_numpy(x[i : i + 1, :n]).transpose(1, 2) for x in (q, k, v)] for i, n in enumerate(lengths)
    ]  # a query has one token, whatever n is
    return lambda: torch.cat([attend(*each, enable_gqa=True) for each in heads]).transpose(1, 2)


def _masked(lengths: Sequence[int], q: Array, k: Array, v: Array) -> Thunk:
    attend = torch.nn.functional.scaled_dot_product_attention
    heads = [torch.from_numpy(x).transpose(1, 2) for x in (q, k, v)]
    seen = (torch.arange(k.shape[1]) < torch.tensor(lengths)[:, None])[:, None, None]
    return lambda: attend(*heads, attn_mask=seen, enable_gqa=True).transpose(1, 2)


def kv_cache_scatter(n: int, room: int, dtype: str) -> Work:
    """Rows to random slots of a cache of `room` tokens, in place."""
    x = values(NORMAL, (n, KV_HEADS, HEAD))
    slots = np.random.default_rng(1).permutation(room)[:n]
    caches = [np.zeros((room // 16, 16, KV_HEADS, HEAD), dtype) for _ in range(3)]
    flat = caches[1].reshape(-1, KV_HEADS, HEAD)
    calls = {
        OURS: bind(trueno.kv_cache_scatter, caches[0], x, slots, out=caches[0]),
        "numpy": lambda: flat.__setitem__(slots, x),
    }
    if torch is not None:
        cache, rows, index = _tensors(caches[2].reshape(-1, KV_HEADS, HEAD), x, slots)
        calls["torch"] = lambda: cache.index_copy_(0, index, rows.to(cache.dtype))
    results = {name: partial(np.copy, c) for name, c in zip((OURS, "numpy", "torch"), caches, strict=True)}
    return Work(calls, x.nbytes, x.size * caches[0].itemsize, results=results)


# ---- rows and experts of blocks


def _blocks(rows: int, k: int) -> trueno.QuantizedMatrix:
    """A matrix in q4_k: quantized rows, drawn from a few."""
    some = trueno.quantize(values(NORMAL, (256, k)), "q4_k").bytes
    return trueno.QuantizedMatrix(some[np.random.default_rng(0).integers(256, size=rows)], (rows, k), "q4_k")


def quant_experts(tokens: int, experts: int, used: int, outputs: int, k: int) -> Work:
    """Against our products, expert by expert, and against products with weights that are decoded already."""
    w, x, rng = _blocks(experts * outputs, k), values(NORMAL, (tokens, 1, k)), np.random.default_rng(1)
    ids = np.stack([rng.permutation(experts)[:used] for _ in range(tokens)])
    out, theirs = (np.empty((tokens, used, outputs), np.float32) for _ in range(2))
    chosen = [(e, *np.nonzero(ids == e)) for e in np.unique(ids)]
    parts = {e: w[e * outputs : (e + 1) * outputs] for e, _, _ in chosen}
    floats = {e: trueno.dequantize(part) for e, part in parts.items()}

    def each(multiply: Callable[[Any, Any], Any], matrices: dict[Any, Any], rows: Any, y: Any) -> Thunk:
        def products() -> Any:
            for e, token, place in chosen:
                y[token, place] = multiply(rows[token], matrices[e])
            return y

        return products

    flat = x[:, 0]
    product = trueno.quant_matmul if tokens > 1 else lambda rows, matrix: trueno.quant_matvec(matrix, rows[0])
    calls = {
        OURS: bind(trueno.quant_experts, w, x, ids, outputs=outputs, out=out),
        "one by one": each(product, parts, flat, np.empty_like(out)),
        "numpy": each(lambda rows, matrix: rows @ matrix.T, floats, flat, theirs),
    }
    if torch is not None:
        tensors = {e: torch.from_numpy(matrix).t() for e, matrix in floats.items()}
        calls["torch"] = each(torch.mm, tensors, *_tensors(flat, np.empty_like(out)))
    reads = sum(part.nbytes for part in parts.values()) + x.nbytes
    return Work(calls, reads, out.nbytes, close=0.02)  # ours rounds x to 8 bits, as products of blocks do


def quant_embedding_lookup(n: int, rows: int, k: int) -> Work:
    w, i = _blocks(rows, k), np.random.default_rng(1).integers(rows, size=n)
    table, (out, theirs, tensors) = trueno.dequantize(w), (np.empty((n, k), np.float32) for _ in range(3))
    calls = {
        OURS: bind(trueno.quant_embedding_lookup, w, i, out=out),
        "numpy": bind(np.take, table, i, axis=0, out=theirs),
    }
    if find_spec("gguf") is not None:
        import gguf  # takes its time, and few runs ask for these rows alone

        kind = gguf.GGMLQuantizationType(FORMATS["q4_k"].type_id)
        calls["gguf"] = lambda: gguf.quants.dequantize(w.bytes[i], kind)
    if torch is not None:
        calls["torch"] = bind(torch.index_select, *_tensors(table), 0, *_tensors(i), out=torch.from_numpy(tensors))
    return Work(calls, n * w.nbytes // rows, out.nbytes)


WORKS: dict[str, Callable[..., Work]] = {
    work.__name__: work
    for work in (
        topk,
        sample,
        concatenate,
        attention_decode,
        kv_cache_scatter,
        quant_experts,
        quant_embedding_lookup,
    )
}
"""The cells of each op, by its name."""
