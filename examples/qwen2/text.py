"""What one does with a model: draw tokens, chat, and measure how well it predicts a text."""

from collections import namedtuple
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any

import numpy as np
import trueno

from examples.qwen2.checkpoint import EngineError
from examples.qwen2.model import Model

Sampling = namedtuple("Sampling", "temperature top_k top_p min_p", defaults=(0.0, 0, 1.0, 0.0))
"""temperature: 0 takes the most likely token.  top_k, top_p, min_p: which others may be taken; 0, 1, 0 for all."""


def sample(logits: Any, how: Sampling, number: float) -> int:
    """A token, drawn by a number in [0, 1)."""
    if not np.isfinite(logits.max()):
        raise EngineError("the logits are not finite, so the weights are damaged; --guard says where")
    with trueno.use():  # the logits are on the host
        return int(trueno.sample(logits, np.float32(number), **how._asdict()))


def continuations(
    model: Model, tokens: Any, n: int, how: Sampling, seed: int, ends: Any = (), count: int = 1, cache: Any = None
) -> Iterator[dict[int, int]]:
    """Up to n times {sequence: next token} of `count` sequences that begin with the same tokens, computed once."""
    room = model.config.context - (cache.length if cache else 0) - len(tokens)
    if n > room:
        raise EngineError(f"the context of {model.config.context} tokens has room for {max(room, 0)} new ones, not {n}")
    cache = cache or model.cache(len(tokens) + n, count)
    logits = np.repeat(model.prefill(tokens, cache), count, 0)
    caches = [cache, *(cache.fork() for _ in range(count - 1))]
    rngs, going = [np.random.default_rng([seed, i]) for i in range(count)], dict.fromkeys(range(count), 0)
    for step in range(n):
        if step:
            logits = model.decode([*going.values()], [caches[i] for i in going])
        drawn = {i: sample(row, how, rngs[i].random()) for i, row in zip(going, logits, strict=True)}
        if not (going := {i: token for i, token in drawn.items() if token not in ends}):
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
