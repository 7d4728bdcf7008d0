"""The library of an object: PyTorch, pandas, one that exchanges arrays by DLPack, or none.

A class that a backend's manifest names as its own array type belongs to that backend, and to no library.  NumPy's
arrays, numbers, lists, and Trueno's own holders need no conversion.
"""

import sys
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

import numpy as np

from trueno.discovery import registry
from trueno.discovery.entry import Entry
from trueno.interop import exchange, frames, tensors

OURS: Final = (np.ndarray, np.generic, int, float, complex, str, bytes, list, tuple)
"""Classes that need no conversion, and no other one inherits from."""


class Library(Protocol):
    """How arrays of a library become operands; each module here is one."""

    NOUN: str
    """An array of the library, for messages."""
    MIXES: bool
    """Whether NumPy arrays may stand beside its arrays in one call."""

    def take(self, what: str, name: str, x: Any) -> Any:
        """`x` as an array that kernels accept, in the same memory: NumPy's, or that of the backend of its device.

        what: the op, and name: the operand, for messages.  DtypeError or DeviceError.
        """

    def host(self, what: str, name: str, x: Any) -> np.ndarray[Any, Any]:
        """`x` as a NumPy array in the same memory; DeviceError if the host cannot access it."""

    def target(self, what: str, name: str, x: Any) -> Any:
        """`out` as an array in the same memory; OutError if that is not possible."""

    def wrong(self, what: str, name: str, x: Any) -> Exception | None:
        """The error for an operand of numbers whose dtype no op accepts, in the library's own terms, or None."""

    def context(self, x: Any) -> AbstractContextManager[Any]:
        """The context of a call on arrays like `x`."""

    def give(self, result: Any, like: Any) -> Any:
        """A result, NumPy's or a device's, as an array of the library of `like`, in the same memory."""

    def convert(self, name: str, other: str) -> str:
        """The remedy for the operand `other`, a NumPy array beside `name`."""


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
    return exchange if exchange.exchanges(kind) else None
