"""The library of an object: PyTorch, pandas, one of a plugin, one that exchanges arrays by DLPack, or none.

A class that a backend's manifest names as its own array type belongs to that backend, and to no library.  NumPy's
arrays, numbers, lists, and Trueno's own holders need no conversion.
"""

import sys
from typing import Final

import numpy as np

from trueno.discovery import registry
from trueno.discovery.entry import Entry
from trueno.interop import exchange, frames, plugins, tensors
from trueno.interop.library import Library

OURS: Final = (np.ndarray, np.generic, int, float, complex, str, bytes, list, tuple)
"""Classes that need no conversion, and no other one inherits from."""


_known: dict[type, Library | None] = {}
_entries: dict[str, Entry] = {}  # the backends from which `_known` was made


def library(kind: type) -> Library | None:
    """The library of a class; None for NumPy's, Trueno's own and those that only NumPy can convert."""
    global _known, _entries
    installed = registry.entries()
    if installed is not _entries:
        _known, _entries = {}, installed
    known = _known
    try:
        return known[kind]
    except KeyError:
        known[kind] = found = _found(kind)
        return found


def _found(kind: type) -> Library | None:
    own = any(hasattr(kind, name) for name in ("_wrap_result", "_blocks"))
    if own or issubclass(kind, OURS) or registry.owner(kind) is not None:
        return None
    for module, names, candidate in (("torch", ("Tensor",), tensors), ("pandas", ("Series", "DataFrame"), frames)):
        loaded = sys.modules.get(module)
        if loaded is not None and issubclass(kind, tuple(getattr(loaded, name, type) for name in names)):
            return candidate
    added = plugins.added(kind)
    if added is not None:
        return added
    return exchange if exchange.exchanges(kind) else None
