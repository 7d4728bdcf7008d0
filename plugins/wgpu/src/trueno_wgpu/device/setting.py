"""Settings of the manifest.  The device layer needs no NumPy; without it there is no core, and nothing is set."""

from typing import Any


def setting(name: str, default: Any) -> Any:
    """A setting of the manifest; `default`, the environment's, if the core has not read the manifest."""
    try:
        from trueno.backend import settings
    except ImportError:  # without NumPy
        return default
    return settings.get(name) if name in settings.declared() else default
