"""The registry: which backends are installed, which can run here and why not, and one object of each.

One scan of the entry points, at first need; it imports no plugin.  A plugin that raises keeps its error:
`trueno doctor` shows it, and asking for that backend by name raises it with its cause.

Reads take no lock: what changes is put in place whole.
"""

import os
import re
import sys
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from trueno.changes import changed
from trueno.discovery.entry import Entry as Entry  # others import it from here
from trueno.discovery.manifest import Manifest
from trueno.discovery.protocol import API, Backend, Device
from trueno.errors import ParameterError, SettingError, UnknownBackend, suggestion, warn
from trueno.firstuse import importing
from trueno.locks import ForkSafeLock
from trueno.parsers import FALSE, TRUE
from trueno.settings import settings
from trueno.version import __version__

GROUP = "trueno.backends"
FORKED = (
    "it was in use before this process was forked, and a GPU does not survive a fork; "
    'start processes with the method "spawn": multiprocessing.get_context("spawn")'
)


# ---- the registry ----------------------------------------------------------------------------------

_lock = ForkSafeLock()
_entries: dict[str, Entry] | None = None
_given: dict[str, tuple[Manifest, Any]] = {}  # by `register`
_owners: WeakKeyDictionary[type, Entry | None] = WeakKeyDictionary()
_arrays: tuple[Any, dict[str, Entry]] = None, {}  # the entries that it was made of, and the owners of array types
_refresh = False
_said: set[str] = set()


def entries() -> dict[str, Entry]:
    """Every installed backend by name, best tier first; `reference`, the core's own, comes last."""
    found = _entries
    if found is None:  # what is returned is what was read: another thread may forget at any time
        with _lock:
            found = _entries
            if found is None:
                with importing:
                    found = _scan()
    return found


def load(name: str) -> Backend:
    """The backend object called `name`; UnknownBackend or BackendUnavailable with reason and remedy."""
    found = entries()
    entry = found.get(name)
    if entry is None:
        known = ", ".join(sorted(found))
        limit = settings.origin("TRUENO_AUTOLOAD")
        only = "" if limit.origin == "default" else f" (TRUENO_AUTOLOAD is {limit.value!r}, from {limit.origin})"
        near = "" if name in extras() else suggestion(name, found)
        get = f": pip install 'trueno[{name}]'" if name in extras() else ""
        raise UnknownBackend(f'"{name}" is not installed{get}{near}; installed: {known}{only}')
    return entry.load()


def extras() -> dict[str, str]:
    """The backends that the core's own extras bring: names, and the distribution that each needs."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        needs = requires("trueno") or []
    except PackageNotFoundError:  # a frozen application may have left it out
        needs = []
    found: dict[str, str] = {}
    for need in needs:
        what, _, marker = need.partition(";")
        extra = re.search(r"""extra\s*==\s*['"]([\w-]+)['"]""", marker)
        distribution = _plain(re.split(r"[^\w.-]", what.strip(), maxsplit=1)[0])
        if extra and distribution == f"trueno-{extra[1]}":  # `cuda12` and `all` are no names of backends
            found[extra[1]] = distribution
    return found


def owner(kind: type) -> Entry | None:
    """The backend whose manifest names this array type, or one that it inherits from; None for NumPy's and others."""
    known = _owners
    try:
        return known[kind]
    except KeyError:
        found = known[kind] = _find_owner(kind)
        return found


def _find_owner(kind: type) -> Entry | None:
    global _arrays
    found, (of, table) = entries(), _arrays
    if of is not found:
        table = {}
        for entry in sorted(found.values(), key=lambda e: e.opt_in):  # stable: best tier first within each
            for text in entry.manifest.arrays if entry.manifest else ():
                table.setdefault(text, entry)
        _arrays = found, table
    for parent in kind.__mro__:
        text = f"{parent.__module__}:{parent.__qualname__}"
        if text == "numpy:ndarray":
            return None
        if text in table:
            return table[text]
    return None


def software(entry: Entry) -> bool:
    """Whether all of its devices are emulated by software, so that it is used only when it is named."""
    return bool(entry.devices) and all(device.software for device in entry.devices)


def foreign(entry: Entry) -> bool:
    """Whether its kernels take arrays of its own, so that the core moves the caller's."""
    return entry.manifest is not None and entry.manifest.foreign


def atomic(entry: Entry) -> bool:
    """Whether its manifest promises that a kernel which raises has written nothing."""
    return entry.manifest is not None and entry.manifest.atomic


def half(entry: Entry, op: str) -> bool:
    """Whether its manifest promises a kernel of that op for 16-bit floats on its own arrays."""
    return entry.manifest is not None and not {op, "*"}.isdisjoint(entry.manifest.half)


def register(manifest: str | os.PathLike[str] | Mapping[str, Any], *, factory: Any = None) -> None:
    """Add a backend that no entry point brings: in a frozen application, which has none, or in a test.

    manifest: the path of a `backend.toml`, or its contents as a dict.  factory: what makes the backend, or the backend
    itself, instead of the manifest's `factory`; such a backend is not tried in a process of its own.
    ParameterError if the manifest is none, or its name belongs to another backend.  The same again changes nothing.
    """
    from trueno.discovery.manifest import load as read
    from trueno.discovery.manifest import parse

    given = isinstance(manifest, Mapping)
    if not given and not isinstance(manifest, (str, os.PathLike)):
        raise ParameterError(
            f"register: it got a {type(manifest).__name__}; give the path of a backend.toml, or a dict"
        )
    path = "" if given else os.path.abspath(os.fspath(manifest))  # type: ignore[arg-type]
    try:
        data = dict(manifest) if given else read(path)  # type: ignore[arg-type]
        if factory is not None and not data.get("factory"):
            data["factory"] = "registered:factory"
        found = parse(data, "register" if given else os.path.basename(path), path=path)
    except ValueError as error:
        raise ParameterError(f"register: {error}") from None
    made = factory
    if factory is not None and not callable(factory):
        made = _Always(factory)
    with _lock:
        known = _given.get(found.name)
        if known is not None and known[0] == found and known[1] == made:
            return
        rival = (_entries or {}).get(found.name)
        if found.name == "reference" or known is not None or (rival is not None and not _same(rival, found)):
            other = known[0] if known is not None else rival.manifest if rival is not None else None
            brings = "trueno itself" if found.name == "reference" else _source(other)
            raise ParameterError(f"register: there is a backend called {found.name!r} already, from {brings}")
        _given[found.name] = (found, made)
        if _entries is not None and rival is None:
            entry = Entry(found.name, found, factory=made)
            settled = dict(_entries)
            settled[found.name] = entry
            _declare([entry])
            _switch([entry])
            entry.hand_over(False, False, _start_others)
            _publish(settled)


class _Always:
    """A factory that gives one object; equal to another of the same object."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend

    def __call__(self) -> Any:
        return self.backend

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Always) and other.backend is self.backend

    def __hash__(self) -> int:
        return id(self.backend)


def forget(refresh: bool = False) -> None:
    """Drop every entry, so that the next use scans again; with `refresh` nothing that is kept on disk counts.

    Objects that were made stay: a factory is called once a process.
    """
    global _entries, _refresh
    with _lock:
        if "trueno.discovery.trial" in sys.modules:
            from trueno.discovery.trial import abandon

            abandon()
        _refresh |= refresh  # until the scan
        _active.update(e.name for e in (_entries or {}).values() if e.active)
        _entries = None
        _forget_owners()


def retire(name: str, reason: str) -> None:
    """Take a backend out of this process for good: its device was lost.  Its plans are dropped."""
    entry = entries().get(name)
    if entry is None or name == "reference":
        return
    entry.retire(reason)
    changed()


_active: set[str] = set()  # has run something, under an entry that was forgotten


def _forget_owners() -> None:
    global _owners, _arrays
    _owners, _arrays = WeakKeyDictionary(), (None, {})


def _publish(found: dict[str, Entry]) -> dict[str, Entry]:
    """Put entries into their order and let everyone see them, all at once; what everyone sees now."""
    global _entries
    ordered = sorted(found.values(), key=lambda e: (e.name == "reference", -e.tier, e.name))
    _entries = published = {e.name: e for e in ordered}
    _forget_owners()
    return published


# ---- the scan --------------------------------------------------------------------------------------


def _scan() -> dict[str, Entry]:
    global _refresh
    from trueno.discovery.index import points

    settings.get("TRUENO_AUTOLOAD")  # a setting that cannot be read is said before anything else is
    claims: dict[str, dict[str, Entry]] = {}  # by name and distribution
    hooks: set[str] = set()  # the two settings hold for plugins of hooks too
    for point in points(refresh=_refresh):
        if point.group != GROUP:
            hooks.add(point.name)
            continue
        if point.name == "reference":
            _warn(f'the backend "reference" of {point.distribution} is left out: the name is trueno\'s own')
            continue
        claims.setdefault(point.name, {}).setdefault(_plain(point.distribution), _entry(point))
    for name, (manifest, factory) in _given.items():
        others = {of: entry for of, entry in claims.get(name, {}).items() if not _same(entry, manifest)}
        claims[name] = {**others, "": Entry(name, manifest, factory=factory)}
    found = {name: _only(name, list(several.values())) for name, several in claims.items()}
    _declare(list(found.values()))
    settings.warn_unknown()
    known = {*found, *hooks}
    _check_names("TRUENO_BLOCK", settings.get("TRUENO_BLOCK"), known)
    found = _limit(found, known)
    _switch(list(found.values()))
    for name in found:
        if len(claims[name]) > 1:  # of the others nothing is asked yet: whether old verdicts count is told below
            _warn_of_a_clash(found[name], list(claims[name].values()))
    if hooks:
        import trueno.hooks  # noqa: F401 - which listens to events from now on
    found["reference"] = _reference()
    for entry in found.values():
        entry.hand_over(_refresh, entry.name in _active, _start_others)
    _refresh = False
    return _publish(found)


def _entry(point: Any) -> Entry:
    try:
        return Entry(point.name, point.parsed())
    except ValueError as error:
        said = " ".join(f"its manifest is refused: {error}".split())
        entry = Entry(point.name, None, "bad_manifest", said)
        entry.error = error
        entry.source = point.distribution, point.version, point.path
        return entry


def _only(name: str, claims: list[Entry]) -> Entry:
    """The entry of a name; where several distributions claim it, nobody can tell which was meant, and none is used."""
    if len(claims) == 1:
        return claims[0]
    known = " and ".join(sorted(claim.source[0] or _source(claim.manifest) for claim in claims))
    many, none, one = ("two", "neither", "one") if len(claims) == 2 else (len(claims), "none", "all but one")
    return Entry(
        name, None, "duplicate", f"{many} distributions bring it, {known}, and {none} is used; uninstall {one}"
    )


def _warn_of_a_clash(entry: Entry, claims: list[Entry]) -> None:
    """Say it where a name that is claimed twice costs a backend that would be chosen: calls run elsewhere, slower."""
    if entry.code == "duplicate":
        _switch(claims)
        if any(claim.manifest and not claim.opt_in and not claim.reason for claim in claims):
            _warn(f'the backend "{entry.name}" is switched off: {entry.reason}')


def _source(manifest: Manifest | None) -> str:
    if manifest is None:
        return "another distribution"
    return manifest.distribution or f"trueno.register ({manifest.path or 'a dict'})"


def _plain(distribution: str) -> str:
    return distribution.lower().replace("_", "-").replace(".", "-")


def _same(entry: Entry, manifest: Manifest) -> bool:
    """Whether an entry is of this very manifest, perhaps found in another way."""
    return entry.manifest is not None and bool(manifest.path) and entry.manifest.path == manifest.path


def _declare(found: list[Entry]) -> None:
    """Make the plugins' own variables known, of those too that are switched off."""
    for entry in found:
        for name, setting in entry.manifest.settings.items() if entry.manifest else ():
            try:
                settings.declare(name, setting)
            except SettingError as error:
                entry.refuse("bad_manifest", f"its manifest is refused: {error}")


def _limit(found: dict[str, Entry], known: set[str]) -> dict[str, Entry]:
    """What TRUENO_AUTOLOAD lets through; what `register` was given always is."""
    text = settings.get("TRUENO_AUTOLOAD").strip().lower()
    if text in TRUE:
        return found
    names = () if text in FALSE else tuple(n.strip() for n in text.split(",") if n.strip())
    _check_names("TRUENO_AUTOLOAD", names, known)
    return {name: e for name, e in found.items() if name in names or name in _given}


def _switch(found: list[Entry]) -> None:
    """Switch off what TRUENO_BLOCK and TRUENO_FORCE_CPU do."""
    blocked = settings.get("TRUENO_BLOCK")
    force = settings.origin("TRUENO_FORCE_CPU")
    for entry in found:
        if entry.name in blocked:
            entry.refuse("blocked", f"blocked by TRUENO_BLOCK ({settings.origin('TRUENO_BLOCK').origin})")
        elif force.value and entry.kind == "gpu":
            said = f"not loaded: TRUENO_FORCE_CPU ({force.origin}) forces the CPU; unset it to use a GPU"
            entry.refuse("forced_cpu", said)


def _check_names(setting: str, names: tuple[str, ...], found: set[str]) -> None:
    """Warn of names that nothing installed carries: a misspelt one switches nothing."""
    for name in names:
        if name == "reference":
            _warn(f'{setting} names "reference", which is part of trueno and stays')
        elif name not in found:
            _warn(f'{setting} names "{name}", which is not installed{suggestion(name, found)}')


def _warn(sentence: str) -> None:
    if sentence not in _said:
        _said.add(sentence)
        warn(sentence)


def _reference() -> Entry:
    """The core's own backend: always there, made at first need."""
    entry = Entry(
        "reference",
        Manifest(
            name="reference",
            api=(API, API),
            kind="cpu",
            tier=0,
            factory="trueno.reference:ReferenceBackend",
            install="",
            atomic=True,
            distribution="trueno",
            version=__version__,
        ),
    )
    entry.accept(Device("NumPy"))
    return entry


# ---- trying, and forks -----------------------------------------------------------------------------


def _start_others(asked: Entry) -> None:
    """Start the processes of all that are likely to be asked next: the CPU's, and with a GPU's everyone's."""
    for entry in entries().values():
        if entry is asked or not (entry.opt_in or (entry.kind == "gpu" and asked.kind != "gpu")):
            entry.start()


def _after_fork() -> None:
    """In the child of a fork: another thread may have been at work on an entry, and contexts of GPUs are dead."""
    lost = False
    for entry in (_entries or {}).values():
        entry.after_fork()
        if entry.kind == "gpu" and entry.active:
            entry.retire(FORKED)
            lost = True
    if lost:
        changed()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
settings.on_reload(forget)
