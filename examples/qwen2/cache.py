"""Keys and values of the tokens that a sequence has seen: one array, which grows as the sequence does."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import trueno

from examples.qwen2.checkpoint import EngineError


class Cache:
    """Keys and values of one sequence on the host: float32 [layers, 2, tokens, heads, d]; less `length` forgets."""

    def __init__(self, config: Any) -> None:
        self.config, self.length = config, 0
        self._held = np.empty((config.layers, 2, 0, config.kv_heads, config.head), np.float32)

    def reserve(self, tokens: int) -> None:
        """Make room for more tokens; EngineError where the model's context has no room for them."""
        need, room, most = self.length + tokens, self._held.shape[2], self.config.context
        if need > most:
            raise EngineError(f"the context is full: {self.length} tokens and {tokens} more do not fit into {most}")
        if need > room:
            layers, pair, _, *head = self._held.shape
            more = np.empty((layers, pair, min(max(need, 2 * room, 256), most) - room, *head), np.float32)
            self._held = np.concatenate([self._held, more], axis=2)

    def extended(self, layer: int, k: Any, v: Any) -> tuple[Any, Any]:
        """The keys and values of a layer with those of new tokens at their end; `length` does not change."""
        (keys, values), end = self._held[layer], self.length + k.shape[0]
        keys[self.length : end], values[self.length : end] = trueno.numpy(k), trueno.numpy(v)
        return keys[:end], values[:end]

    def fork(self) -> "Cache":
        """Another sequence that begins with the same tokens, which are not computed again."""
        other = Cache(self.config)
        other._held, other.length = self._held.copy(), self.length
        return other


def attend(layer: int, q: Any, k: Any, v: Any, spans: Sequence[tuple[Cache, slice]], put: Callable[[Any], Any]) -> Any:
    """Attention of the rows of each sequence, a slice, over its own cache, which gets their keys and values."""
    if len(spans) == 1:
        return trueno.attention(q, *map(put, spans[0][0].extended(layer, k, v)), causal=True)
    q, k, v = trueno.numpy(q), trueno.numpy(k), trueno.numpy(v)
    y = np.empty_like(q)
    for cache, rows in spans:
        operands = q[rows], *cache.extended(layer, k[rows], v[rows])
        y[rows] = trueno.numpy(trueno.attention(*map(put, operands), causal=True))
    return put(y)
