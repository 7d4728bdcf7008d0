"""What language models compute, on one GPU: products with blocks, attention of prompts, attention of one new token.

Products and decode attention are recorded in a batch for several layers, each with memory of its own, so that nothing
is in the second cache; a figure is the time of one in that chain, and the share of `READ` is of the bytes that it must
read.  PyTorch's attention is `scaled_dot_product_attention` with its fastest kernel.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import trueno
from trueno.discovery import registry
from trueno.formats import FORMATS

from benchmarks.compare import Record
from benchmarks.inputs import values
from benchmarks.rows import Cell, Plan
from benchmarks.rows.cuda_calls import NAME, cell, nmse, seconds
from benchmarks.timing import OURS, Thunk

Array = np.ndarray[Any, Any]
GROUP = "language_cuda"
READ = 4.28e12
"""Bytes a second that an H200 reads."""
READING = f"{READ / 1e12:g} TB/s"
COLD = 250 << 20
"""Bytes that the layers of a chain have in all, at least: five times the second cache."""
NORMAL, DRAWN = ("normal", 0.0, 1.0), 61
"""So many rows of a matrix are quantized, and repeat: no tile begins with the same ones as its neighbour."""
GATE_UP, DOWN, QKV, OUTPUT, EIGHT = "gate and up", "down", "q, k, v", "output", "8 vectors against 1"
Matrices = tuple[tuple[str, int], ...]
PRODUCTS: dict[str, tuple[Matrices, int, float]] = {  # formats and rows of the matrices, k, least share of READ
    GATE_UP: ((("q4_k", 18944), ("q4_k", 18944)), 3584, 0.87),
    DOWN: ((("q4_k", 3584),), 18944, 0.70),
    QKV: ((("q4_k", 3584), ("q4_k", 512), ("q4_k", 512)), 3584, 0.45),
    OUTPUT: ((("q6_k", 152064),), 3584, 0.94),
}
EIGHT_TIMES = 1.08
PROMPT, HEADS, HEAD = "attention of a prompt, bfloat16", 32, 128
PROMPTS = {4096: 0.90, 16384: 0.95}
"""Tokens, and the least share of PyTorch's speed."""
DECODE, QUERIES, KEYS, LENGTH, PAGE = "attention_decode, float16", 28, 4, 4096, 256
SEQUENCES = {1: 0.25, 32: 0.85}
"""Sequences, and the least share of READ."""
CLOSE, ROUNDED = 3e-4, 1e-4
"""NMSE of products that round x to 8 bits, and of attention that rounds weights to bfloat16."""


class Chain(NamedTuple):
    """A recorded chain.  layers: of it.  nbytes: that one must read."""

    replay: Thunk
    layers: int
    nbytes: int
    problem: str


def cells(plan: Plan) -> Iterator[Cell]:
    for name in PRODUCTS:
        if not plan.quick or name == QKV:
            yield cell(GROUP, name, "7b, q6_k" if name == OUTPUT else "7b, q4_k", partial(_product, name, plan))
    if plan.quick:
        return
    yield cell(GROUP, EIGHT, GATE_UP, partial(_eight, plan))
    for tokens in PROMPTS:
        yield cell(GROUP, PROMPT, f"{tokens} tokens", partial(_prompt, tokens, plan))
    for count in SEQUENCES:
        yield cell(GROUP, DECODE, sequences(count), partial(_decode, count, plan))


def sequences(count: int) -> str:
    return f"{count} × {LENGTH} keys"


def _wrong(got: Array, exact: Array, most: float) -> str:
    """NaN is never close."""
    return "" if nmse(got.astype(np.float64), exact) <= most else "its result is wrong"


def _share(chain: Chain, plan: Plan) -> Record:
    """The share of READ that a layer of a chain reaches."""
    took = seconds({OURS: chain.replay}, plan, 3)[OURS] / chain.layers
    floor = chain.nbytes / READ
    return Record(GROUP, "", "", "×", floor / took, READING, [floor / took], {OURS: took},
                  problem=chain.problem, floor=floor, limit="bytes")  # fmt: skip


def _recorded(batch: Any) -> Thunk:
    """The recording of a batch that has been executed twice."""
    if batch._replay._recorded is None:
        raise RuntimeError("nothing was recorded")
    return batch._replay._recorded.replay  # type: ignore[no-any-return]


# ---- products


def _blocks(name: str, rows: int, k: int, seed: int) -> trueno.QuantizedMatrix:
    """A matrix on the GPU: quantized rows, drawn from a few."""
    some = trueno.quantize(values(NORMAL, (DRAWN, k), seed), name).bytes
    return trueno.to(trueno.QuantizedMatrix(np.resize(some, (rows, some.shape[1])), (rows, k), name), NAME)


@contextmanager
def _layers(name: str, vectors: int) -> Iterator[Chain]:
    """The products of several layers, each with matrices and vectors of its own."""
    matrices, k, _ = PRODUCTS[name]
    nbytes = sum(rows * FORMATS[f].row_bytes(k) for f, rows in matrices)
    layers, shape = COLD // nbytes + 2, (vectors, k) if vectors > 1 else (k,)
    with trueno.Batch(NAME) as batch:
        for layer in range(layers):
            x, w = values(NORMAL, shape, 7 + layer), [_blocks(f, rows, k, i) for i, (f, rows) in enumerate(matrices)]
            here, there = batch.upload(x), [batch.upload(one) for one in w]
            y = [batch.quant_matmul(here, one) if vectors > 1 else batch.quant_matvec(one, here) for one in there]
            kept = [batch.keep(one) for one in ([batch.swiglu(*y)] if name == GATE_UP else y)]
        for _ in range(2):
            batch.execute()
        yield Chain(_recorded(batch), layers, nbytes, _checked(name, [batch.read(one) for one in kept], w, x))


def _checked(name: str, got: list[Array], matrices: list[Any], x: Array) -> str:
    """All results of the last layer, against the package gguf's decoding in float64."""
    if find_spec("gguf") is None:
        return "its result was not checked: the package gguf is not installed"
    import gguf

    exact = []
    for w in matrices:
        kind = gguf.GGMLQuantizationType(FORMATS[w.format].type_id)
        rows = gguf.quants.dequantize(trueno.numpy(w).bytes[:DRAWN], kind).astype(np.float64)
        exact.append(np.take(x.astype(np.float64) @ rows.T, np.arange(w.shape[0]) % len(rows), -1))
    if name == GATE_UP:
        gate, up = exact
        exact = [gate / (1 + np.exp(-gate)) * up]
    return next((p for y, wanted in zip(got, exact, strict=True) if (p := _wrong(y, wanted, CLOSE))), "")


def _product(name: str, plan: Plan) -> Record:
    with _layers(name, 1) as chain:
        return _share(chain, plan)


def _eight(plan: Plan) -> Record:
    """The time of eight vectors over that of one."""
    with _layers(GATE_UP, 1) as one, _layers(GATE_UP, 8) as eight:
        took = seconds({"1": one.replay, "8": eight.replay}, plan, 3)
    found = {OURS: took["8"] / eight.layers, "1 vector": took["1"] / one.layers}
    ratio = found[OURS] / found["1 vector"]
    return Record(GROUP, "", "", "×", ratio, "1 vector", [ratio], found, problem=one.problem or eight.problem)


# ---- attention


def _prompt(tokens: int, plan: Plan) -> Record:
    """Causal.  PyTorch rounds the weights of keys to bfloat16, and so does ours here; by default ours keeps them."""
    from ml_dtypes import bfloat16
    from trueno_cuda.kernels.attention.fragments import Parts
    from trueno_cuda.kernels.attention.prefill import launch

    device: Any = registry.load(NAME).device
    host = [values(NORMAL, (tokens, HEADS, HEAD), i).astype(bfloat16) for i in range(3)]
    arrays, outs = list(map(device.to_device, host)), [device.empty(host[0].shape, host[0].dtype) for _ in range(2)]
    calls: dict[str, Thunk] = {
        OURS: launch(device, *arrays, outs[0], causal=True, parts=Parts(1, 1, 1)),
        "weights kept": launch(device, *arrays, outs[1], causal=True),
        **_by_torch(host),
    }
    found = seconds(calls, plan, 3)
    problem = next((p for out in outs if (p := _attended(host, trueno.numpy(out)))), "")
    record = Record(GROUP, "", "", "×", None, "", [], found, problem=problem)
    if "torch" in found:
        record.value, record.peer = found["torch"] / found[OURS], "torch"
        record.ratios = [record.value]
    return record


def _by_torch(host: list[Array]) -> dict[str, Thunk]:
    try:
        import torch
    except ImportError:
        return {}
    q, k, v = (torch.from_numpy(x.view(np.int16)).cuda().view(torch.bfloat16).transpose(0, 1)[None] for x in host)
    attend = torch.nn.functional.scaled_dot_product_attention
    return {"torch": lambda: attend(q, k, v, is_causal=True)}


def _attended(host: list[Array], got: Array) -> str:
    """Some of the last rows of two heads, in float64."""
    for head in (0, HEADS - 1):
        q, k, v = (x[:, head].astype(np.float64) for x in host)
        for row in (len(q) - 1, len(q) // 2):
            scores = k[: row + 1] @ q[row] * HEAD**-0.5
            p = np.exp(scores - scores.max())
            if problem := _wrong(got[row, head], p @ v[: row + 1] / p.sum(), ROUNDED):
                return problem
    return ""


def _decode(count: int, plan: Plan) -> Record:
    """One new token of each sequence, each layer over its own cache."""
    nbytes = 2 * count * LENGTH * KEYS * HEAD * 2
    layers = COLD // nbytes + 2
    q, some = values(NORMAL, (count, 1, QUERIES, HEAD), 2), min(count, 4)
    host = [values(NORMAL, (some, LENGTH, KEYS, HEAD), seed) for seed in range(2)]
    cache = trueno.KVCache(
        layers, KEYS, HEAD, dtype="float16", sequences=count, page=PAGE, capacity=LENGTH, device=NAME
    )
    numbers = [cache.new() for _ in range(count)]
    there = [trueno.to(x, NAME) for x in (x[i] for i in range(some) for x in host)]
    for layer in range(layers):
        for i, number in enumerate(numbers):
            cache.append(layer, *there[i % some * 2 : i % some * 2 + 2], number)
    with trueno.Batch(NAME) as batch:
        query, table, lengths = map(batch.upload, (q, cache.table(numbers), np.full(count, LENGTH)))
        pages = [map(batch.upload, cache.pages(layer)) for layer in range(layers)]
        kept = [batch.keep(batch.attention_decode(query, *own, table, lengths)) for own in pages]
        for _ in range(2):
            batch.execute()
        got = batch.read(kept[-1])[-1, 0].astype(np.float64)
        keys, own = (x[(count - 1) % some].astype(np.float16).astype(np.float64) for x in host)
        keys, own = (np.repeat(x, QUERIES // KEYS, 1).transpose(1, 0, 2) for x in (keys, own))
        scores = np.einsum("hsd,hd->hs", keys, q[-1, 0].astype(np.float64)) * HEAD**-0.5
        p = np.exp(scores - scores.max(-1, keepdims=True))
        exact = np.einsum("hs,hsd->hd", p / p.sum(-1, keepdims=True), own)
        return _share(Chain(_recorded(batch), layers, nbytes, _wrong(got, exact, ROUNDED)), plan)
