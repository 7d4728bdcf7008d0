"""Attention without an array of scores, by one call.  `python examples/cuda/flash_attention_cuda.py`

`trueno.attention` on a GPU is a flash kernel: a block of threads takes some queries and passes over the keys in slices.
It keeps for each query the largest score so far, the sum of weights, and the weighted sum of values; where a larger
score appears, both sums are scaled once.  Scores exist only in registers, so memory grows with the tokens, not with
their square.

The program has 4 times as many heads of queries as of keys, as in Qwen and Llama, and calls attention again with a
window, with which a token sees its latest neighbours alone.  `simple_attention_cuda.py` is what this kernel replaces.
"""

from math import sqrt

import numpy as np
import trueno
from measure import BACKEND, GPU, check, measure, say_where

UNIT = 2.0**-11
"""Half a unit in the last place of float16, in which weights and results are rounded.  Sums are float32."""


def visible(tokens: int, window: int) -> np.ndarray:
    """Which keys each query sees: its own and those before it, with a window the latest of these."""
    distance = np.arange(tokens)[:, None] - np.arange(tokens)
    return (distance >= 0) & (distance < (window or tokens))


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, window: int) -> tuple[np.ndarray, np.ndarray]:
    """In float64, a head at a time; and what rounding of inputs, scores, weights and results may add up to."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    tokens, heads, d = q.shape
    seen, result, bound = visible(tokens, window), np.empty_like(q), np.empty_like(q)
    for head in range(heads):
        shared = head * k.shape[1] // heads  # the head of keys and values that this one uses
        keys, values = k[:, shared], v[:, shared]
        scores = np.where(seen, q[:, head] @ keys.T / sqrt(d), -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        size = (np.abs(q[:, head]) @ np.abs(keys).T / sqrt(d)).max(-1, keepdims=True)
        result[:, head] = weights @ values
        bound[:, head] = weights @ np.abs(values) * (4 * UNIT + 2.0**-23 * (tokens + (d + 4) * size))
    return result, bound


def main() -> None:
    say_where()
    tokens, heads, kv_heads, d = (4096, 32, 8, 128) if GPU else (96, 4, 1, 32)
    rng = np.random.default_rng()
    q, k, v = (rng.standard_normal((tokens, h, d)).astype(np.float16) for h in (heads, kv_heads, kv_heads))
    there = [trueno.to(x, BACKEND) for x in (q, k, v)]
    print(f"{tokens} tokens, {heads} heads on {kv_heads}, {d} numbers each, float16")
    print(f"  all scores would be {tokens * tokens * heads * q.itemsize:,} bytes; q, k, v and the result are "
          f"{(2 * q.size + 2 * k.size) * q.itemsize:,}")  # fmt: skip

    some = slice(heads // 2)  # of the heads, in float64: half of them say enough, and take the host half as long
    for window in (0, tokens // 4):
        pairs = heads * int(visible(tokens, window).sum())
        print(f"causal, {f'with a window of {window}' if window else 'every earlier token'}:")
        y = measure(lambda window=window: trueno.attention(*there, causal=True, window=window), flops=4 * d * pairs)
        wanted, bound = reference(q[:, some], k[:, : kv_heads // 2 or 1], v[:, : kv_heads // 2 or 1], window)
        check("against float64", trueno.numpy(y)[:, some], wanted, bound)


if __name__ == "__main__":
    main()
