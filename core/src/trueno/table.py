"""Tables that create missing entries."""

from collections.abc import Callable
from typing import Any


class Table(dict[Any, Any]):
    """A table that creates its entries on first access; a level of the plans, for example, is such a table."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[Any], Any]) -> None:
        super().__init__()
        self.make = make

    def __missing__(self, key: Any) -> Any:
        value = self[key] = self.make(key)
        return value
