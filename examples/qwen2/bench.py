"""Tokens per second, in llama-bench's table: prompts (pp), and generation (tg) of one or of several sequences."""

from functools import partial
from timeit import timeit
from typing import Any

import numpy as np

from examples.qwen2.model import Model, Sampling


def bench(model: Model, prompt: int, generate: int, batches: list[int], depth: int = 0, repetitions: int = 5) -> Any:
    """One record per test.  depth: tokens that are in the caches before the clock starts."""
    some = partial(np.random.default_rng(0).integers, model.config.vocabulary)
    before = model.cache(depth + max(prompt, generate), 1 + max(batches, default=1))
    if depth:
        model.prefill(some(size=depth), before)

    def prefill() -> None:
        cache = before.fork()
        model.prefill(some(size=prompt), cache)
        cache.release()

    def decode(count: int) -> None:
        caches = [before.fork() for _ in range(count)]
        for _ in model.draws(some(size=count).tolist(), caches, Sampling(), np.zeros((generate, count))):
            pass
        for cache in caches:
            cache.release()

    tests: list[Any] = [(f"pp{prompt}", prompt, prefill)] if prompt else []
    tests += [(f"tg{generate}" + f" x {n}" * (n > 1), generate * n, partial(decode, n)) for n in batches if generate]
    for name, tokens, run in tests:
        run()  # kernels are compiled, and the file is read
        rates = [tokens / timeit(run, number=1) for _ in range(max(repetitions, 1))]
        yield {"test": name + f" @ d{depth}" * (depth > 0), "n_depth": depth, "samples_ts": rates,
               "avg_ts": float(np.mean(rates)), "stddev_ts": float(np.std(rates))}  # fmt: skip
