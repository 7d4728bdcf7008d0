"""Block formats: the table, and NumPy's reference decoder and encoders.  The rest of the core depends on it."""

from typing import TYPE_CHECKING, Any

from trueno.firstuse import importing
from trueno.formats.decode import decode
from trueno.formats.table import ACTIVATIONS, FORMATS, INTERLEAVED, WEIGHTS, Format, format_of

if TYPE_CHECKING:
    from trueno.formats.activations import encode_activations as encode_activations
    from trueno.formats.encoders import encode as encode

__all__ = [
    "ACTIVATIONS",
    "FORMATS",
    "INTERLEAVED",
    "WEIGHTS",
    "Format",
    "decode",
    "encode",
    "encode_activations",
    "format_of",
]


if not TYPE_CHECKING:  # a type checker knows the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        """Import the encoders at first use: every op needs the table, and few programs quantize."""
        from importlib import import_module

        homes = {"encode": "trueno.formats.encoders", "encode_activations": "trueno.formats.activations"}
        if name not in homes:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        with importing:
            return getattr(import_module(homes[name]), name)
