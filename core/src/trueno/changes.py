"""Tells those who keep decisions that what they depend on has changed: a device was lost, a hook came or went.

Settings tell by themselves: `settings.on_reload`.
"""

from collections.abc import Callable

_listeners: list[Callable[[], None]] = []


def on_change(listener: Callable[[], None]) -> None:
    """Call `listener` whenever a decision that was made before may be another now."""
    _listeners.append(listener)


def changed() -> None:
    """Tell all who listen."""
    for listener in _listeners:
        listener()
