"""Tokens per second, in llama-bench's table: prompts (pp), and generation (tg) of one or of several sequences."""

from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from examples.qwen2.cache import Cache
from examples.qwen2.model import Model


def bench(model: Model, prompt: int, generate: int, batches: list[int], depth: int = 0, repetitions: int = 5) -> Any:
    """One record per test.  depth: tokens that are in the caches before the clock starts."""
    some, before = partial(np.random.default_rng(0).integers, model.config.vocabulary), Cache(model.config)
    if depth:
        model.prefill(some(size=depth), before)

    def prefill() -> float:
        cache, start = before.fork(), perf_counter()
        model.prefill(some(size=prompt), cache)
        return perf_counter() - start

    def decode(count: int) -> float:
        caches = [before.fork() for _ in range(count)]
        steps, start = some(size=(generate, count, 1)), perf_counter()
        for tokens in steps:
            model.logits(model.forward(list(zip(tokens, caches, strict=True)))).argmax(-1)
        return perf_counter() - start

    tests: list[Any] = [(f"pp{prompt}", prompt, prefill)] if prompt else []
    tests += [(f"tg{generate}" + f" x {n}" * (n > 1), generate * n, partial(decode, n)) for n in batches if generate]
    records = []
    for name, tokens, run in tests:
        run()  # kernels are compiled, and the file is read
        rates = [tokens / run() for _ in range(max(repetitions, 1))]
        records.append({"test": name + f" @ d{depth}" * (depth > 0), "n_depth": depth, "samples_ts": rates,
                        "avg_ts": float(np.mean(rates)), "stddev_ts": float(np.std(rates))})  # fmt: skip
    return records
