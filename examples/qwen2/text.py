"""What one does with a model: draw tokens, chat, and measure how well it predicts a text."""

from collections.abc import Callable, Iterator
from itertools import chain, takewhile
from typing import Any

import numpy as np
import trueno

from examples.qwen2.checkpoint import EngineError
from examples.qwen2.model import Model, Sampling, sample


def continuations(
    model: Model, tokens: Any, n: int, how: Sampling, seed: int, ends: Any = (), count: int = 1, cache: Any = None
) -> Iterator[dict[int, int]]:
    """Up to n times {sequence: next token} of `count` sequences that begin with the same tokens, computed once."""
    ends, room = set(ends), model.config.context - (cache.length if cache else 0) - len(tokens)
    if n > room:
        raise EngineError(f"the context of {model.config.context} tokens has room for {max(room, 0)} new ones, not {n}")
    cache = cache or model.cache(len(tokens) + n, count)
    (logits,) = model.prefill(tokens, cache)
    caches = [cache, *(cache.fork() for _ in range(count - 1))]
    numbers = np.transpose([np.random.default_rng([seed, i]).random(n) for i in range(count)])
    going, first = range(count), [sample(logits, how, number) for number in numbers[0]] if n else []
    for row in chain([first], model.draws(first, caches, how, numbers[1:])) if n else ():  # the others go on beside
        if not (going := {i: int(row[i]) for i in going if row[i] not in ends}):  # sequences that have ended
            return
        yield going


def chat(model: Model, text: Any, how: Sampling, seed: int, n: int, read: Callable[[], str], show: Any) -> None:
    """Turns of a conversation, until `read` raises an error; what earlier turns computed is kept."""
    messages, cache, held = [], model.cache(), []  # `held`: the tokens in the cache
    while True:
        messages.append({"role": "user", "content": read()})
        tokens, stream = text.chat(messages), text.stream()
        alike = takewhile(lambda pair: pair[0] == pair[1], zip(tokens[:-1], held, strict=False))
        cache.length, held = len(list(alike)), list(tokens)
        left = min(n, model.config.context - len(tokens))
        for drawn in continuations(model, tokens[cache.length :], left, how, seed, text.ends, cache=cache):
            held.append(drawn[0])
            show(stream(drawn[0]))
        show("\n")
        messages.append({"role": "assistant", "content": text.tokenizer.decode(held[len(tokens) :])})
        held = held[: cache.length]


def perplexity(model: Model, tokens: list[int], size: int) -> tuple[float, float]:
    """e to the mean −ln p of tokens in the second halves of windows of `size`, as in llama.cpp, and its error."""
    if size < 4 or len(tokens) < size:
        raise EngineError(f"the text has {len(tokens)} tokens; a window takes {size}, and at least 4: see --context")
    losses = []
    for start in range(0, len(tokens) - size + 1, size):
        window = tokens[start : start + size]
        logits = model.forward(window, model.cache(size), size // 2)[:-1]
        losses += [-row[t] for row, t in zip(trueno.log_softmax(logits), window[size // 2 + 1 :], strict=True)]
    value = np.exp(np.mean(losses))
    return value, value * np.std(losses) / np.sqrt(len(losses))
