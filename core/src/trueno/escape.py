"""What comes from outside, made fit for a terminal: the one place that decides which characters it gets to see.

A name, a version or a message of anybody's may hold what a terminal obeys (the C0 and C1 controls, and with them every
escape sequence), what reorders or hides text (bidirectional controls, characters without a width), and what cannot be
encoded (lone surrogates).  They are spelled as in Python, `\\x1b`; all that is visible, and every space, stays.

Here is where they come by, so that no caller needs to think of it: the messages of our errors and warnings, events as
lines, the columns of tables, `trueno.cli.report`, which prints all reports, and `dumps` for JSON.
"""

from typing import Any

LINES = "\n\t"
"""What may stay in a text of several lines."""
_BREAKS = frozenset("\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029")
"""White space that is more than a space."""


def escaped(text: str, keep: str = "") -> str:
    """The text with every character spelled that a terminal does not simply show; those in `keep` stay."""
    if text.isprintable():
        return text
    return "".join(c if _shown(c) or c in keep else repr(c)[1:-1] for c in text)


def _shown(c: str) -> bool:
    return c.isprintable() or (c.isspace() and c not in _BREAKS)


def dumps(data: Any, indent: int | None = None) -> str:
    """JSON that stays readable, and that a terminal can be shown: outside of ASCII, what is visible stays as it is."""
    import json

    text = json.dumps(data, indent=indent, ensure_ascii=False)
    if text.isprintable():
        return text
    # Outside of strings JSON has line ends and ASCII only, and inside them controls below U+0020 are spelled already.
    return "".join(c if _shown(c) or c == "\n" else _spelled(c) for c in text)


def _spelled(c: str) -> str:
    import json

    return json.dumps(c)[1:-1] if c != "\x7f" else "\\u007f"  # which is ASCII


__all__ = ["LINES", "dumps", "escaped"]
