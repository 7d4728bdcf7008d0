"""What one does with a model: draw tokens, chat, and measure how well it predicts a text."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
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


def completions(
    model: Model, prompts: Any, n: int, how: Sampling, seed: int, ends: Any = (), rows: int = 8
) -> Iterator[tuple[int, list[int]]]:
    """(prompt's place, up to n next tokens) of many lists of tokens, as each is complete; `rows` of them at a time.

    A sequence that has ended leaves its row to the next prompt between two replays of one recorded step.
    """
    prompts = list(prompts)
    ends, waiting, most = set(ends), deque(enumerate(prompts)), max(map(len, prompts), default=0) + n
    if most > model.config.context:
        raise EngineError(f"a prompt and {n} new tokens take {most}, and the context has {model.config.context}")
    empty, numbers = model.cache(most, rows + 1), {}
    taken: list[Any] = [None] * rows  # what a row computes: a prompt's place, its cache, and its tokens
    while waiting or any(taken):
        for row in range(rows):
            while waiting and taken[row] is None:
                place, prompt = waiting.popleft()
                numbers[place], cache = np.random.default_rng([seed, place]).random(max(n, 1)), empty.fork()
                (logits,) = model.prefill(prompt, cache)
                taken[row] = place, cache, [sample(logits, how, numbers[place][0])]
                if n <= 1 or taken[row][2][0] in ends:
                    yield place, _ended(taken, row, n, ends)
        busy = [row for row in range(rows) if taken[row]]
        if not busy:
            return
        last, caches = [t[2][-1] if t else 0 for t in taken], [t[1] if t else None for t in taken]
        steps = min(n - len(taken[row][2]) for row in busy)
        drawn = np.zeros((steps, rows))
        for row in busy:
            place, _, tokens = taken[row]
            drawn[:, row] = numbers[place][len(tokens) : len(tokens) + steps]
        with closing(model.draws(last, caches, how, drawn)) as rounds:
            for new in rounds:
                for row in busy:
                    taken[row][2].append(int(new[row]))
                if any(taken[row][2][-1] in ends for row in busy):
                    break
        for row in busy:
            if len(taken[row][2]) >= n or taken[row][2][-1] in ends:
                yield taken[row][0], _ended(taken, row, n, ends)


def _ended(taken: list[Any], row: int, n: int, ends: set[int]) -> list[int]:
    """The tokens of a row that has ended, without the one that ended it; the row is free then."""
    _, cache, tokens = taken[row]
    cache.release()
    taken[row] = None
    return tokens[:-1] if tokens[-1] in ends else tokens[:n]


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
