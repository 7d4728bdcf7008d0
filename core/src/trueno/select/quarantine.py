"""Quarantine: backends that failed, or tripped a guard too often, are left out for calls of the same key."""

from dataclasses import dataclass, replace
from typing import Any

from trueno.discovery.protocol import Call


@dataclass(frozen=True, slots=True)
class Quarantined:
    """One key for which a backend is quarantined, and why."""

    backend: str
    op: str
    dtype: str
    layout: str
    rank: int
    sizes: tuple[int, ...]
    static: tuple[tuple[str, Any], ...]
    residency: str
    reason: str = ""


_reasons: dict[Quarantined, str] = {}


def key(call: Call, name: str) -> Quarantined:
    """What a call on backend `name` shares with calls like it."""
    return Quarantined(
        name, call.op.name, call.dtype.name, call.layout, call.rank, call.sizes, call.static, call.residency
    )


def add(call: Call, name: str, why: str) -> None:
    """Quarantine `name` for calls like this one."""
    _reasons[key(call, name)] = why


def reason(call: Call, name: str) -> str | None:
    """Why `name` is quarantined for calls like this one, or None."""
    return _reasons.get(key(call, name)) if _reasons else None


def quarantined() -> tuple[Quarantined, ...]:
    """All that is in quarantine."""
    return tuple(replace(one, reason=why) for one, why in list(_reasons.items()))


def release(backend: str | None = None) -> None:
    """End the quarantine of one backend, or of all."""
    for one in [k for k in _reasons if backend is None or k.backend == backend]:
        _reasons.pop(one, None)
