"""The builder's errors."""

from collections.abc import Iterable
from difflib import get_close_matches


class BuildError(ValueError):
    """An invalid kernel: what is wrong, with which value, and what to do instead.

    Raised while the Python function runs, so the traceback ends in the kernel's own line.
    """


class UnknownName(BuildError, AttributeError):
    """A name that neither the builder nor its tables have; the message names similar or intended ones."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """`; did you mean "rsqrt"?` when a known name is near, else nothing."""
    near = get_close_matches(word, list(known), n=1)
    return f'; did you mean "{near[0]}"?' if near else ""
