"""Memory of a device: which backend computes on it, and its array of that memory.

The exchange is DLPack's in both directions, so no byte is copied, and the consumer's stream waits for the producer's.
"""

import sys
from importlib import import_module
from typing import Any

import numpy as np

from trueno.discovery import registry
from trueno.discovery.entry import Entry
from trueno.errors import DeviceError, TruenoError

_libraries: dict[tuple[int, int], tuple[Entry, Any]] = {}
"""By DLPack device: the backend that computes there, and the library of its arrays."""


def namespace(what: str, name: str, x: Any, place: tuple[int, int]) -> Any:
    """The library whose arrays the backend takes on whose device `x` is; its `from_dlpack` shares the memory.

    place: the DLPack device of `x`.  DeviceError if no backend computes there.
    """
    known = _libraries.get(place)
    if known is not None and registry.entries().get(known[0].name) is known[0]:
        return known[1]
    kind, number = place
    here = f"{what}: {name} is a {type(x).__name__} on DLPack device ({kind}, {number})"
    for entry in registry.entries().values():
        library, own = _place(entry)
        if own[0] != kind:
            continue
        if own[1] != number:
            raise DeviceError(f"{here}, but {entry.name} computes on number {own[1]}; move the array there")
        _libraries[place] = entry, library
        return library
    raise DeviceError(f"{here}, which no installed backend owns; copy it to the host first")


def _place(entry: Entry) -> tuple[Any, tuple[int, int]]:
    """The library of a backend's arrays and their DLPack device; type 0 if it has none, or cannot run."""
    if not entry.foreign or entry.manifest is None:
        return None, (0, 0)
    try:
        if not any(_exports(text) for text in entry.manifest.arrays):
            return None, (0, 0)
        array: Any = entry.load().empty((1,), np.dtype(np.float32))
        kind, number = array.__dlpack_device__()
    except (ImportError, TruenoError):  # its own calls say why
        return None, (0, 0)
    return sys.modules[type(array).__module__.partition(".")[0]], (int(kind), int(number))


def _exports(text: str) -> bool:
    """Whether an array type of a manifest, `cupy:ndarray`, exports DLPack, and its library imports it."""
    module, _, name = text.partition(":")
    loaded = import_module(module)
    root = sys.modules[module.partition(".")[0]]
    return hasattr(getattr(loaded, name, None), "__dlpack_device__") and hasattr(root, "from_dlpack")
