"""The registry: the installed backends, whether each can run here and why not, and one object of each.

It scans the entry points once, at the first use, and imports no plugin.  An entry keeps the error of its plugin:
`trueno doctor` shows it, and a request for that backend by name raises it with its cause.

Reads take no lock: each change replaces a whole table at once.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast
from weakref import WeakKeyDictionary

from trueno import hints
from trueno.changes import changed
from trueno.discovery.entry import Entry as Entry  # other modules import it from here
from trueno.discovery.index import extras
from trueno.discovery.manifest import Manifest, parse
from trueno.discovery.manifest import load as read
from trueno.discovery.protocol import Backend, DeviceBackend
from trueno.discovery.scan import declare_settings, described_source, same_manifest, scan, switch_off
from trueno.errors import BackendUnavailable, ParameterError, UnknownBackend
from trueno.firstuse import importing
from trueno.locks import ForkSafeLock
from trueno.remedies import install
from trueno.settings import settings

FORKED = (
    "it was in use before this process was forked, and a GPU does not survive a fork; "
    'start processes with the method "spawn": multiprocessing.get_context("spawn")'
)


# ---- the registry ----------------------------------------------------------------------------------

_lock = ForkSafeLock()
_entries: dict[str, Entry] | None = None
_registered: dict[str, tuple[Manifest, Any]] = {}  # manifest and factory by name, from `register`
_owners: WeakKeyDictionary[type, Entry | None] = WeakKeyDictionary()
_arrays: tuple[Any, dict[str, Entry]] = None, {}  # the entries from which it was made, and the owners of array types
_refresh = False
_active: set[str] = set()  # names of backends that were active under an entry that was forgotten
numbered: dict[str, Backend] = {}
"""Further devices that were ever asked for, by names such as `cuda:1`; as any backend's, their objects stay."""


def entries() -> dict[str, Entry]:
    """Every installed backend by name, best tier first; `reference`, the core's own, comes last."""
    current = _entries
    if current is None:  # it returns the value that it read: another thread may call `forget` at any time
        with _lock:
            current = _entries
            if current is None:
                with importing:
                    current = _scan()
    return current


def _scan() -> dict[str, Entry]:
    global _refresh
    by_name = scan(_registered, _refresh)
    for entry in by_name.values():
        entry.configure(_refresh, entry.name in _active, _probe_others)
    _refresh = False
    return _publish(by_name)


def load(name: str) -> Backend:
    """The backend object called `name`; UnknownBackend or BackendUnavailable with reason and remedy."""
    name = named(name) if ":" in name else name
    installed = entries()
    entry = installed.get(name)
    if entry is None:
        limit = settings.origin("TRUENO_AUTOLOAD")
        only = "" if limit.origin == "default" else f" (TRUENO_AUTOLOAD is {limit.value!r}, from {limit.origin})"
        remedy = f": {install(name)}" if name in extras() else hints.backend(name, sorted(installed))
        raise UnknownBackend(f'"{name}" is not installed{remedy}; installed: {", ".join(sorted(installed))}{only}')
    return entry.load()


def named(name: str) -> str:
    """A name in lower case; `cuda:1` becomes a backend of its own, and `cuda:0` is `cuda` where that means the same."""
    name = name.lower()
    base, colon, number = name.partition(":")
    if not colon or name in entries():
        return name
    whole = cast(DeviceBackend, load(base))
    if not hasattr(whole, "numbered"):
        return name  # which `load` refuses with a hint
    if not number.isdecimal() or len(number) > 9:
        raise UnknownBackend(f'"{name}" names no device; {base} wants a number after the colon')
    name = f"{base}:{int(number)}"
    backend = numbered.get(name) or whole.numbered(int(number))
    if backend is whole:
        return base
    with _lock:
        current = entries()
        if name not in current and (manifest := current[base].manifest) is not None:
            make = _Always(numbered.setdefault(name, backend))
            entry = Entry(name, replace(manifest, name=name, opt_in=True), factory=make)
            entry.configure(False, name in _active, _probe_others)
            _publish({**current, name: entry})
    return name


def home(x: Any) -> Entry | None:
    """The entry of the device that has an array; None for NumPy's and others."""
    entry = owner(type(x))
    if entry is None:
        return None
    try:
        backend = cast(DeviceBackend, entry.load())
    except BackendUnavailable:  # which is raised where it is to be used
        return entry
    number = backend.number(x) if hasattr(backend, "numbered") else None
    name = "" if number is None else named(f"{entry.name}:{number}")  # which may publish another table
    return entries()[name] if name else entry


def owner(kind: type) -> Entry | None:
    """The backend whose manifest names this array type, or one that it inherits from; None for NumPy's and others."""
    owners = _owners  # another thread may call `forget` at any time
    try:
        return owners[kind]
    except KeyError:
        entry = owners[kind] = _find_owner(kind)
        return entry


def _find_owner(kind: type) -> Entry | None:
    global _arrays
    current, (source, table) = entries(), _arrays
    if source is not current:
        table = {}
        for entry in sorted(current.values(), key=lambda e: e.opt_in):  # stable: best tier first within each
            for text in entry.manifest.arrays if entry.manifest else ():
                table.setdefault(text, entry)
        _arrays = current, table
    for parent in kind.__mro__:
        text = f"{parent.__module__}:{parent.__qualname__}"
        if text == "numpy:ndarray":
            return None
        if text in table:
            return table[text]
    return None


def register(manifest: str | os.PathLike[str] | Mapping[str, Any], *, factory: Any = None) -> None:
    """Add a backend without an entry point: in a frozen application, which has no entry points, or in a test.

    manifest: the path of a `backend.toml`, or its contents as a dict.  factory: a function that makes the backend, or
    the backend itself, instead of the manifest's `factory`; no child process probes such a backend.
    ParameterError if the manifest is invalid, or its name belongs to another backend.  Repeating a call has no effect.
    """

    is_dict = isinstance(manifest, Mapping)
    if not is_dict and not isinstance(manifest, (str, os.PathLike)):
        raise ParameterError(
            f"register: manifest is a {type(manifest).__name__}; give the path of a backend.toml, or a dict"
        )
    path = "" if is_dict else os.path.abspath(os.fspath(manifest))  # type: ignore[arg-type]
    try:
        data = dict(manifest) if is_dict else read(path)  # type: ignore[arg-type]
        if factory is not None and not data.get("factory"):
            data["factory"] = "registered:factory"
        parsed = parse(data, "manifest" if is_dict else os.path.basename(path), path=path)
    except ValueError as error:
        raise ParameterError(f"register: {error}") from None
    make = factory
    if factory is not None and not callable(factory):
        make = _Always(factory)
    name = parsed.name
    with _lock:
        earlier = _registered.get(name)
        if earlier is not None and earlier[0] == parsed and earlier[1] == make:
            return
        rival = (_entries or {}).get(name)
        if name == "reference" or earlier is not None or (rival is not None and not same_manifest(rival, parsed)):
            other = earlier[0] if earlier is not None else rival.manifest if rival is not None else None
            source = "trueno itself" if name == "reference" else described_source(other)
            raise ParameterError(f"register: there is a backend called {name!r} already, from {source}")
        _registered[name] = (parsed, make)
        if _entries is not None and rival is None:
            entry = Entry(name, parsed, factory=make)
            declare_settings([entry])
            switch_off([entry])
            entry.configure(False, False, _probe_others)
            _publish({**_entries, name: entry})


def registered(name: str) -> bool:
    """Whether this process has registered the backend, and no installed distribution."""
    return name in _registered


class _Always:
    """A factory that always returns one object; factories of the same object are equal."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend

    def __call__(self) -> Any:
        return self.backend

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Always) and other.backend is self.backend

    def __hash__(self) -> int:
        return id(self.backend)


def forget(refresh: bool = False) -> None:
    """Drop every entry, so that the next use scans again; with `refresh`, ignore all verdicts that are kept on disk.

    Existing objects stay: a factory is called once per process.
    """
    global _entries, _refresh
    with _lock:
        if "trueno.probing.process" in sys.modules:
            from trueno.probing.process import abandon  # start-up

            abandon()
        _refresh |= refresh  # until the scan
        _active.update(e.name for e in (_entries or {}).values() if e.active)
        _entries = None
        _forget_owners()


def retire(name: str, reason: str) -> None:
    """Take a backend whose device was lost out of this process permanently, and drop its plans."""
    entry = entries().get(name)
    if entry is None or name == "reference":
        return
    entry.retire(reason)
    changed()


def _forget_owners() -> None:
    global _owners, _arrays
    _owners, _arrays = WeakKeyDictionary(), (None, {})


def _publish(by_name: dict[str, Entry]) -> dict[str, Entry]:
    """Sort entries and publish them all at once; return the published table."""
    global _entries
    ordered = sorted(by_name.values(), key=lambda e: (e.name == "reference", -e.tier, e.name))
    _entries = published = {e.name: e for e in ordered}
    _forget_owners()
    return published


# ---- probes, and forks -----------------------------------------------------------------------------


def _probe_others(probed: Entry) -> None:
    """Start the probes of backends that are likely to be needed next: those on CPUs, and after one on a GPU all."""
    for entry in entries().values():
        if entry is probed or not (entry.opt_in or (entry.kind == "gpu" and probed.kind != "gpu")):
            entry.start_probe()


def _after_fork() -> None:
    """Retire the GPUs' entries in the child of a fork: their contexts are dead."""
    lost = False
    for entry in (_entries or {}).values():
        if entry.kind == "gpu" and entry.active:
            entry.retire(FORKED)
            lost = True
    if lost:
        changed()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
settings.on_reload(forget)
