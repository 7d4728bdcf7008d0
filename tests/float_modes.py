"""A thread's floating-point modes, for tests that change them; `tests.hostile.environments` reads and sets them."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.hostile import environments

LINUX = environments.available()
needs_modes = pytest.mark.skipif(not LINUX, reason="where the C library keeps the modes is known for Linux alone")

_BITS = {"up": "up", "down": "down", "zero": "zero", "flush": "both" if environments.X86 else "flush", "nearest": ""}
MODES = ("up", "down", "zero", "flush")


def rounding() -> int:
    """The bits in force in this thread."""
    return environments.control()


def set_mode(mode: str) -> None:
    """Set one of MODES in this thread, or "nearest": the default again."""
    environments.change(_BITS[mode])


@contextmanager
def in_mode(mode: str) -> Iterator[None]:
    """Inside, this thread rounds or flushes so."""
    set_mode(mode)
    try:
        yield
    finally:
        set_mode("nearest")
