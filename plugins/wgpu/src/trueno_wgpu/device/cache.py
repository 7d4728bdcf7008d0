"""A bounded cache: the least recently used value is dropped first."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class Lru(Generic[V]):
    """At most `most` values by key.  The caller holds a lock."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._held: OrderedDict[Hashable, V] = OrderedDict()

    def get(self, key: Hashable) -> V | None:
        """The value, which becomes the most recently used."""
        value = self._held.get(key)
        if value is not None:
            self._held.move_to_end(key)
        return value

    def put(self, key: Hashable, value: V) -> V | None:
        """Store a value; returns the one that was dropped for it."""
        self._held[key] = value
        if len(self._held) <= self.most:
            return None
        return self._held.popitem(last=False)[1]

    def drop(self, key: Hashable) -> V | None:
        """Forget a key."""
        return self._held.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        self._held.clear()

    def __len__(self) -> int:
        return len(self._held)
