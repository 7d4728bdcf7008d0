"""A bounded memory of what was made: the least recently used goes first."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class Lru(Generic[V]):
    """At most `most` values by key.  Its user holds a lock."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._held: OrderedDict[Hashable, V] = OrderedDict()

    def get(self, key: Hashable) -> V | None:
        """The value, which now is the youngest."""
        found = self._held.get(key)
        if found is not None:
            self._held.move_to_end(key)
        return found

    def put(self, key: Hashable, value: V) -> V | None:
        """Keep a value; the one that had to go for it."""
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
