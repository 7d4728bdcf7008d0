"""What is here: the backends, and the best of them."""

from dataclasses import dataclass

from trueno.discovery import registry
from trueno.discovery.registry import Entry
from trueno.select import policy


def backends() -> dict[str, Entry]:
    """Every installed backend by name, best first; `.available` and `.reason` say whether it can run."""
    return dict(registry.entries())


@dataclass(frozen=True, slots=True)
class Best:
    """The backend that an automatic choice prefers."""

    name: str
    kind: str
    isa: str
    device: str


def select_best_available_backend() -> Best:
    """The best backend that can run here: never scalar where SIMD or a GPU works."""
    entry = registry.entries()[next(policy.candidates(())).name]
    device = entry.devices[0] if entry.devices else None
    return Best(entry.name, entry.kind, device.isa if device else "", device.name if device else "")
