"""Results that print themselves in a REPL and in a notebook as `print` shows them."""

from html import escape
from typing import Any

from trueno.text import columns


class Shown:
    """The `__str__` of a class as its `repr`, and in notebooks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


class Backends(Shown, dict[str, Any]):
    """The installed backends by name, best first; printed as a table, which probes none of them."""

    __slots__ = ()

    def __str__(self) -> str:
        rows = [("backend", "kind", "status")]
        for name, entry in self.items():
            status = repr(entry).removeprefix(f"<{name}: ").removesuffix(">")
            rows.append((name, entry.kind, status))
        return "\n".join(columns(rows))
