"""The one error of the builder."""

from collections.abc import Iterable
from difflib import get_close_matches


class BuildError(ValueError):
    """A kernel that cannot be written: what is wrong, with which value, and what to do instead.

    Raised while the Python function runs, so the traceback ends in the kernel's own line.
    """


def suggestion(word: str, known: Iterable[str]) -> str:
    """`; did you mean "rsqrt"?` when a known name is near, else nothing."""
    near = get_close_matches(word, list(known), n=1)
    return f'; did you mean "{near[0]}"?' if near else ""
