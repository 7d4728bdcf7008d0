"""The backends that are installed, those that automatic choices consider, and the best of them."""

from collections.abc import Iterator
from typing import NamedTuple

from trueno.discovery import registry
from trueno.discovery.entry import Entry
from trueno.errors import BackendUnavailable
from trueno.settings import settings
from trueno.showing import Backends


def backends() -> dict[str, Entry]:
    """Every installed backend by name, best first; `.available` and `.reason` say whether it can run.

    Nothing is probed or imported before `.available` is read.
    """
    return Backends(registry.entries())


def automatic() -> Iterator[Entry]:
    """The entries that automatic choices consider, best first: available, no emulation, none that must be named."""
    return (e for e in registry.entries().values() if not e.opt_in and e.available and not e.software)


class Best(NamedTuple):
    """The backend that an automatic choice prefers."""

    name: str
    kind: str
    isa: str
    device: str


def select_best_available_backend() -> Best:
    """The best backend that can run here: never scalar where SIMD or a GPU works.

    If TRUENO_BACKEND is set, its first backend, or BackendUnavailable if that cannot run.  Otherwise neither one that
    software emulates, nor one that is used only when it is named.
    """
    named = settings.get("TRUENO_BACKEND")
    for name in named[:1]:
        registry.load(name)
        return _described(registry.entries()[name])
    for entry in automatic():
        try:
            entry.load()
        except BackendUnavailable:  # it passed its probe but fails here
            continue
        return _described(entry)
    raise BackendUnavailable("no backend can run, not even the reference; reinstall trueno")


def _described(entry: Entry) -> Best:
    device = entry.devices[0] if entry.devices else None
    return Best(entry.name, entry.kind, device.isa if device else "", device.name if device else "")
