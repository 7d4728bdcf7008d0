"""Text from outside, made safe for a terminal: the one place that decides which characters a terminal gets.

A name, a version or a message from outside may hold control characters (the C0 and C1 controls, and with them every
escape sequence), characters that reorder or hide text (bidirectional controls, zero-width characters), and ones that
cannot be encoded (lone surrogates).  They are escaped as in Python, `\\x1b`; visible characters and spaces stay.

Everything printed passes here, so that callers need not think of it: the messages of our errors and warnings, events as
lines, the columns of tables, `trueno.cli.report`, which prints all reports, and `dumps` for JSON.
"""

from typing import Any

LINES = "\n\t"
"""The characters that a text of several lines may keep."""
_BREAKS = frozenset("\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029")
"""White space other than the space."""


def escaped(text: str, keep: str = "") -> str:
    """The text with every character escaped that a terminal does not simply show; those in `keep` stay."""
    if text.isprintable():
        return text
    return "".join(c if _shown(c) or c in keep else repr(c)[1:-1] for c in text)


def _shown(c: str) -> bool:
    return c.isprintable() or (c.isspace() and c not in _BREAKS)


def dumps(data: Any, indent: int | None = None) -> str:
    """Readable JSON that is safe for a terminal: visible characters outside of ASCII stay as they are."""
    import json

    text = json.dumps(data, indent=indent, ensure_ascii=False)
    if text.isprintable():
        return text
    # Outside of strings JSON has line ends and ASCII only, and inside them controls below U+0020 are escaped already.
    return "".join(c if _shown(c) or c == "\n" else _spelled(c) for c in text)


def _spelled(c: str) -> str:
    import json

    return json.dumps(c)[1:-1] if c != "\x7f" else "\\u007f"  # which is ASCII


__all__ = ["LINES", "dumps", "escaped"]
