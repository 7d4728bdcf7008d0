"""Tables that fill themselves."""

from collections.abc import Callable
from typing import Any


class Table(dict[Any, Any]):
    """A table that creates its entries on first access; one level of the plans is one."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[Any], Any]) -> None:
        super().__init__()
        self.make = make

    def __missing__(self, key: Any) -> Any:
        value = self[key] = self.make(key)
        return value
