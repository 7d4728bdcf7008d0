"""Times, sizes, tables and records, formatted for people and for JSON."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from trueno.escape import escaped

HASH = 16
"""Digits of the hash that distinguishes batch ops made of the same parts."""


def duration(seconds: float | None) -> str:
    """A time for people, in three digits and a unit: `12.3 µs`; `–` for none."""
    if seconds is None:
        return "–"
    for factor, unit in ((1e9, "ns"), (1e6, "µs"), (1e3, "ms")):
        if abs(seconds) * factor < 999.5:
            return f"{seconds * factor:.3g} {unit}"
    return f"{number(round(seconds))} s" if 999.5 <= abs(seconds) < math.inf else f"{seconds:.3g} s"


def number(n: int) -> str:
    """A count for people: `1 000 000`, with narrow spaces that do not break."""
    return f"{n:,}".replace(",", "\u202f")


def counted(n: int, what: str) -> str:
    """A number of things for people: `1 page`, `2 pages`."""
    return f"{n} {what}{'' if n == 1 else 's'}"


def size(count: int) -> str:
    """A number of bytes for people: `4.1 MB`."""
    for scale, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= scale:
            return f"{count / scale:,.1f} {unit}".replace(",", "\u202f")
    return f"{count} B"


def op_name(name: str) -> str:
    """An op's name for people: `relu_scale` for an op that a batch fused, without the hash at its end."""
    parts, _, last = name.rpartition("_")
    return parts if len(last) == HASH and not set(last) - set("0123456789abcdef") else name


def columns(rows: Iterable[tuple[str, ...]], right: tuple[int, ...] = ()) -> list[str]:
    """Lines of a table; `right`: the columns that are aligned to the right."""
    rows = [tuple(map(escaped, row)) for row in rows]
    if not rows:
        return []
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            f"{c:>{w}}" if i in right else f"{c:<{w}}" for i, (c, w) in enumerate(zip(r, widths, strict=True))
        ).rstrip()
        for r in rows
    ]


def plain(value: Any) -> Any:
    """A value that JSON can hold: other types become text, and so do NaN and the infinities."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in value]
    return str(value)
