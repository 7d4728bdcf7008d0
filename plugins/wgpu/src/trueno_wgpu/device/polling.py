"""Which thread polls a device while a map is pending: wgpu's own, or the thread that waits for it.

wgpu wakes a thread for each map, and lets it poll until the map is there.  A thread that waits for what it asked for
polls itself, and two that do so pass Python's lock to and fro; so its maps wake no thread.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import local
from typing import Any


class _Here(local):
    """Whether this thread polls for itself."""

    alone = False


class _Token:
    """What wgpu takes for the sign that its thread may rest."""

    def set_done(self) -> None:
        """As wgpu's token has it."""

    def is_done(self) -> bool:
        """As wgpu's token has it."""
        return True


class Poller:
    """Takes the place of a device's poll thread, `thread`."""

    def __init__(self, thread: Any) -> None:
        self._thread, self._here = thread, _Here()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Maps that this thread asks for inside are its own to wait for."""
        before, self._here.alone = self._here.alone, True
        try:
            yield
        finally:
            self._here.alone = before

    def get_token(self) -> Any:
        """wgpu asks for one with each map."""
        return _Token() if self._here.alone else self._thread.get_token()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._thread, name)
