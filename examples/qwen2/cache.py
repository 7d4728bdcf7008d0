"""Sequences on the pages of a `trueno.KVCache`, which keeps the keys and values of the tokens that they have seen."""

from typing import Any

import trueno

from examples.qwen2.checkpoint import EngineError


class Cache:
    """One sequence, of at most `context` tokens.  Those of one batch are forks of one another: they share `pages`."""

    def __init__(self, pages: trueno.KVCache, number: int, context: int) -> None:
        self.pages, self.number, self.context = pages, number, context

    @property
    def length(self) -> int:
        """Tokens in every layer; a smaller number forgets the last ones."""
        return self.pages.length(self.number)

    @length.setter
    def length(self, tokens: int) -> None:
        self.pages.truncate(self.number, tokens)

    def check(self, tokens: int) -> None:
        """EngineError where the model's context has no room for more tokens."""
        if (length := self.length) + tokens > self.context:
            raise EngineError(f"the context is full: {length} tokens and {tokens} more do not fit into {self.context}")

    def attend(self, layer: int, q: Any, k: Any, v: Any) -> Any:
        """Attention of new tokens over the whole sequence, which gets their keys and values."""
        self.pages.append(layer, k, v, self.number)
        return self.pages.attend(layer, q, self.number)

    def fork(self) -> "Cache":
        """Another sequence that begins with the same tokens, which are neither computed nor stored again."""
        return Cache(self.pages, self.pages.fork(self.number), self.context)

    def release(self) -> None:
        """Give the memory back; the sequence is not used again."""
        self.pages.release(self.number)
