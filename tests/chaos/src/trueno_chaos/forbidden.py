"""Must not be imported: a manifest, a setting or a requirement forbids it before any code of the plugin runs."""

from trueno_chaos.marks import mark
from trueno_chaos.sound import Sound

mark("forbidden")


class Backend(Sound):
    """A backend that must not be touched."""


class Array:
    """An array type that must not be touched."""
