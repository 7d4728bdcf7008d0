"""The registry: which backends are installed, which are available and why not, and one object of each.

One scan of the entry points, at first need.  A plugin that raises keeps its error here: `trueno doctor`
shows it, and asking for that backend by name raises it with its cause.
"""

import os
from dataclasses import dataclass
from importlib import import_module
from threading import RLock
from typing import Any

from trueno.discovery.manifest import Manifest, read
from trueno.discovery.protocol import API, Backend, Device, Probe
from trueno.errors import BackendUnavailable, UnknownBackend, suggestion
from trueno.settings import settings

GROUP = "trueno.backends"


@dataclass(slots=True)
class Entry:
    """One installed backend: its manifest, whether it can run here, and the loaded object."""

    name: str
    manifest: Manifest | None
    reason: str = ""
    error: BaseException | None = None
    backend: Backend | None = None
    found: tuple[Device, ...] = ()
    probed: bool = False
    active: bool = False

    @property
    def available(self) -> bool:
        """Whether every probe passed; `reason` says why not."""
        _probe(self)
        return not self.reason

    @property
    def devices(self) -> tuple[Device, ...]:
        """What the probe found."""
        _probe(self)
        return self.found

    @property
    def kind(self) -> str:
        return self.manifest.kind if self.manifest else "unknown"

    @property
    def tier(self) -> int:
        return self.manifest.tier if self.manifest else -1

    def __repr__(self) -> str:
        return f"<{self.name}: {'available' if self.available else self.reason}>"


_lock = RLock()
if hasattr(os, "register_at_fork"):  # a thread of the parent may have held it

    def _after_fork() -> None:
        global _lock
        _lock = RLock()

    os.register_at_fork(after_in_child=_after_fork)
_entries: dict[str, Entry] | None = None


def entries() -> dict[str, Entry]:
    """Every installed backend by name, best tier first; `reference`, the core's own, comes last."""
    global _entries
    if _entries is None:
        with _lock:
            if _entries is None:
                _entries = _scan()
    return _entries


def load(name: str) -> Backend:
    """The backend object called `name`; UnknownBackend or BackendUnavailable with reason and remedy."""
    entry = entries().get(name)
    if entry is None:
        known = ", ".join(sorted(entries()))
        raise UnknownBackend(f'"{name}" is not installed{suggestion(name, entries()) or ";"} installed: {known}')
    if not entry.available:
        raise BackendUnavailable(f"{name}: {entry.reason}") from entry.error
    assert entry.backend is not None
    return entry.backend


def forget() -> None:
    """Drop every entry, so that the next use scans again."""
    global _entries
    with _lock:
        _entries = None


def _scan() -> dict[str, Entry]:
    from importlib.metadata import entry_points

    from trueno.reference import ReferenceBackend

    autoload = settings.get("TRUENO_AUTOLOAD").strip().lower()
    only = None if autoload in ("1", "true", "yes", "on") else autoload
    found: dict[str, Entry] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda p: (p.name, p.value)):
        dist = getattr(point, "dist", None)
        distribution, version = (dist.name, dist.version) if dist else ("", "")
        if point.name in found:
            other = found[point.name].manifest
            if other is None or (other.distribution, other.version) != (distribution, version):
                rival = other.distribution if other else "another distribution"
                found[point.name] = Entry(
                    point.name, None, f"two distributions bring it: {rival} and {distribution}; uninstall one"
                )
            continue
        if only is not None and point.name not in [n.strip() for n in only.split(",")]:
            continue
        try:
            manifest = read(point.name, point.value, distribution, version)
            found[point.name] = Entry(point.name, manifest)
        except ValueError as error:
            found[point.name] = Entry(point.name, None, f"its manifest is refused: {error}", error)
    for name in settings.get("TRUENO_BLOCK"):
        if name in found:
            found[name].reason = "blocked by TRUENO_BLOCK"
    if settings.get("TRUENO_FORCE_CPU"):
        for entry in found.values():
            if entry.kind == "gpu":
                entry.reason = f"not loaded: {settings.origin('TRUENO_FORCE_CPU').origin} forces the CPU"
    backend = ReferenceBackend()
    core = Manifest("reference", (API, API), "cpu", 0, "", "part of trueno", arrays=("numpy:ndarray",))
    ordered = sorted(found.values(), key=lambda e: (-e.tier, e.name))
    reference = Entry("reference", core, backend=backend, found=backend.probe(1).devices, probed=True)
    return {e.name: e for e in [*ordered, reference]}


def _probe(entry: Entry) -> None:
    """Levels 0 and 1, once; whatever the plugin raises becomes its reason."""
    if entry.probed or entry.reason:
        return
    with _lock:
        if entry.probed or entry.reason or entry.manifest is None:
            return
        entry.reason = entry.manifest.missing()
        if not entry.reason:
            try:
                module, _, attribute = entry.manifest.factory.partition(":")
                factory: Any = getattr(import_module(module), attribute)
                entry.backend = factory()
                verdict: Probe = entry.backend.probe(1)
                entry.found = verdict.devices
                entry.reason = "" if verdict.ok else verdict.reason or "its probe failed without a reason"
            except Exception as error:  # a plugin may raise anything; the host must live
                entry.error = error
                entry.reason = f"{type(error).__name__}: {error}"
        entry.probed = True
