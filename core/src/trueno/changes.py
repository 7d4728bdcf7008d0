"""Notifies caches of decisions that their inputs have changed: a device was lost, a hook was added or removed.

Settings notify their listeners themselves: `settings.on_reload`.
"""

from collections.abc import Callable

_listeners: list[Callable[[], None]] = []


def on_change(listener: Callable[[], None]) -> None:
    """Call `listener` whenever an earlier decision may no longer hold."""
    _listeners.append(listener)


def changed() -> None:
    """Notify all listeners."""
    for listener in _listeners:
        listener()
