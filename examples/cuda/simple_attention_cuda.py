"""Attention as its formula says it: scores, softmax, sum of values.  `python examples/cuda/simple_attention_cuda.py`

    y[i] = Σⱼ p[j] · v[j],   p = softmax over j ≤ i of q[i] · k[j] / √d

A block of threads takes one query.  It keeps scores and weights of all keys in shared memory, so that the kernel is
three short loops, and pays for it: a block needs 8 bytes for each key, every query reads K and V again, and
neighbouring threads read rows of K that are far apart (the emulator says how much of each sector is used).
`flash_attention_cuda.py` has the same result without scores in memory.
"""
# mypy: disable-error-code="valid-type"

from math import e, inf, log2, sqrt

import numpy as np
import trueno
import trueno_cuda
from measure import BACKEND, GPU, check, describe, device, empty, measure, say_where
from trueno_cuda.ptx import f32, kernel, ptr


@kernel(threads="THREADS")
def attention(
    k, query: ptr(f32), keys: ptr(f32), values: ptr(f32), out: ptr(f32), *, TOKENS: int, D: int, THREADS: int = 128
):
    """One head of attention, causal.  Grid: queries.   Floor: 4 D flops for each pair of a query and a key it sees."""
    scores, weights = k.shared(f32, TOKENS), k.shared(f32, TOKENS)
    own = k.ctaid  # the query, which sees itself and the keys before it

    # 1. Scores, of every THREADS-th key.  log2(e) is in the scale, because exp2 is one instruction of the GPU.
    largest = k.var(f32, -inf)
    for key in k.range(k.tid, own + 1, THREADS):
        score = k.var(f32, 0.0)
        for column in range(0, D, 4):
            left, right = query.load(own * D + column, vec=4), keys.load(key * D + column, vec=4)
            for a, b in zip(left, right, strict=True):
                score.fma(a, b)
        score.set(score * (log2(e) / sqrt(D)))
        scores.store(key, score)
        largest.update("max", score)
    top = k.block_max(largest)

    # 2. Weights: e^(score - largest), and their sum.  Each thread reads what it wrote itself.
    total = k.var(f32, 0.0)
    for key in k.range(k.tid, own + 1, THREADS):
        weight = k.exp2(scores.load(key) - top)
        weights.store(key, weight)
        total += weight
    whole = k.block_sum(total)
    k.sync()  # from here on each thread reads the weights of all

    # 3. Values: a thread owns a column, so that neighbours read neighbours.
    for column in k.range(k.tid, D, THREADS):
        result = k.var(f32, 0.0)
        for key in k.range(own + 1):
            result.fma(weights.load(key), values.load(key * D + column))
        out.store(own * D + column, k.div(result, whole))


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """In float64; and what float32 may differ by: rounded scores move weights, rounded weights move the sum."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    n, d = q.shape
    scores = np.where(np.tri(n, dtype=bool), q @ k.T / sqrt(d), -inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    size = np.abs(q) @ np.abs(k).T / sqrt(d)
    unit = 2.0**-24
    bound = weights @ np.abs(v) * (2 * (d + 4) * unit * size.max(-1, keepdims=True) + (n + 8) * unit)
    return weights @ v, bound


def main() -> None:
    say_where()
    tokens, d = (4096, 128) if GPU else (80, 32)
    rng = np.random.default_rng()
    q, k, v = (rng.standard_normal((tokens, d)).astype(np.float32) for _ in range(3))
    there, out = [trueno.to(x, BACKEND) for x in (q, k, v)], empty(tokens, d)

    built = attention.build(arch=device().arch, TOKENS=tokens, D=d)
    describe(built)
    launch = trueno_cuda.prepared(built, tokens, backend=BACKEND)
    pairs = tokens * (tokens + 1) // 2
    measure(lambda: launch(*there, out), flops=4 * d * pairs)
    wanted, bound = reference(q, k, v)
    check(f"{tokens} tokens of {d} numbers", out, wanted, bound)


if __name__ == "__main__":
    main()
