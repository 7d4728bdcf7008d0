"""One scan: the entries of all installed backends, those switched off among them, from entry points and `register`.

Importing no plugin, it settles who owns a name, declares the plugins' own settings, and obeys TRUENO_AUTOLOAD,
TRUENO_BLOCK and TRUENO_FORCE_CPU.
"""

from collections.abc import Mapping
from typing import Any

from trueno.discovery.entry import Entry
from trueno.discovery.index import BACKENDS, Point, normalized, points
from trueno.discovery.manifest import Manifest
from trueno.discovery.protocol import API, Device
from trueno.errors import SettingError, suggestion, warn
from trueno.parsers import FALSE, TRUE
from trueno.settings import settings
from trueno.version import __version__

_warned: set[str] = set()


def scan(registered: Mapping[str, tuple[Manifest, Any]], refresh: bool) -> dict[str, Entry]:
    """Every entry by name, in no order; `refresh` scans, whatever the index says.

    registered: what `register` was given, manifest and factory by name.
    """
    settings.get("TRUENO_AUTOLOAD")  # a setting that cannot be read is reported before anything else is
    claims: dict[str, dict[str, Entry]] = {}  # by name and distribution
    hooks: set[str] = set()  # the two settings hold for plugins of hooks too
    for point in points(refresh=refresh):
        if point.group != BACKENDS:
            hooks.add(point.name)
            continue
        if point.name == "reference":
            _warn(f'the backend "reference" of {point.distribution} is left out: the name is trueno\'s own')
            continue
        claims.setdefault(point.name, {}).setdefault(normalized(point.distribution), _entry(point))
    for name, (manifest, factory) in registered.items():
        others = {of: entry for of, entry in claims.get(name, {}).items() if not same_manifest(entry, manifest)}
        claims[name] = {**others, "": Entry(name, manifest, factory=factory)}
    entries = {name: _only(name, list(several.values())) for name, several in claims.items()}
    declare_settings(list(entries.values()))
    settings.warn_unknown()
    names = {*entries, *hooks}
    _check_names("TRUENO_BLOCK", settings.get("TRUENO_BLOCK"), names)
    entries = _autoloaded(entries, names, registered)
    switch_off(list(entries.values()))
    for name, entry in entries.items():
        if len(claims[name]) > 1:  # of the others nothing is asked yet: whether old verdicts count is said later
            _warn_of_a_clash(entry, list(claims[name].values()))
    if hooks:
        import trueno.hooks  # noqa: F401 - which listens to events from now on
    entries["reference"] = _reference()
    return entries


def _entry(point: Point) -> Entry:
    try:
        return Entry(point.name, point.parsed())
    except ValueError as error:
        reason = " ".join(f"its manifest is refused: {error}".split())
        entry = Entry(point.name, None, "bad_manifest", reason)
        entry.error = error
        entry.source = point.distribution, point.version, point.path
        return entry


def _only(name: str, claims: list[Entry]) -> Entry:
    """The entry of a name; where several distributions claim it, the choice is ambiguous, and none is used."""
    if len(claims) == 1:
        return claims[0]
    owners = " and ".join(sorted(claim.source[0] or described_source(claim.manifest) for claim in claims))
    many, none, one = ("two", "neither", "one") if len(claims) == 2 else (len(claims), "none", "all but one")
    return Entry(
        name, None, "duplicate", f"{many} distributions bring it, {owners}, and {none} is used; uninstall {one}"
    )


def _warn_of_a_clash(entry: Entry, claims: list[Entry]) -> None:
    """Say it where a name that is claimed twice costs a backend that would be chosen: calls run elsewhere, slower."""
    if entry.code == "duplicate":
        switch_off(claims)
        if any(claim.manifest and not claim.opt_in and not claim.reason for claim in claims):
            _warn(f'the backend "{entry.name}" is switched off: {entry.reason}')


def described_source(manifest: Manifest | None) -> str:
    """Where a backend comes from, for a sentence."""
    if manifest is None:
        return "another distribution"
    return manifest.distribution or f"trueno.register ({manifest.path or 'a dict'})"


def same_manifest(entry: Entry, manifest: Manifest) -> bool:
    """Whether an entry is of this very manifest, perhaps found in another way."""
    return entry.manifest is not None and bool(manifest.path) and entry.manifest.path == manifest.path


def declare_settings(entries: list[Entry]) -> None:
    """Make the plugins' own variables known, of those too that are switched off."""
    for entry in entries:
        for name, setting in entry.manifest.settings.items() if entry.manifest else ():
            try:
                settings.declare(name, setting)
            except SettingError as error:
                entry.mark_unavailable("bad_manifest", f"its manifest is refused: {error}")


def _autoloaded(entries: dict[str, Entry], installed: set[str], registered: Mapping[str, Any]) -> dict[str, Entry]:
    """What TRUENO_AUTOLOAD lets through; what `register` was given always is."""
    text = settings.get("TRUENO_AUTOLOAD").strip().lower()
    if text in TRUE:
        return entries
    names = () if text in FALSE else tuple(n.strip() for n in text.split(",") if n.strip())
    _check_names("TRUENO_AUTOLOAD", names, installed)
    return {name: e for name, e in entries.items() if name in names or name in registered}


def switch_off(entries: list[Entry]) -> None:
    """Mark what TRUENO_BLOCK and TRUENO_FORCE_CPU switch off as unavailable."""
    blocked = settings.get("TRUENO_BLOCK")
    force = settings.origin("TRUENO_FORCE_CPU")
    for entry in entries:
        if entry.name in blocked:
            entry.mark_unavailable("blocked", f"blocked by TRUENO_BLOCK ({settings.origin('TRUENO_BLOCK').origin})")
        elif force.value and entry.kind == "gpu":
            reason = f"not loaded: TRUENO_FORCE_CPU ({force.origin}) forces the CPU; unset it to use a GPU"
            entry.mark_unavailable("forced_cpu", reason)


def _check_names(setting: str, names: tuple[str, ...], installed: set[str]) -> None:
    """Warn of names that nothing installed carries: a misspelt one switches nothing."""
    for name in names:
        if name == "reference":
            _warn(f'{setting} names "reference", which is part of trueno and stays')
        elif name not in installed:
            _warn(f'{setting} names "{name}", which is not installed{suggestion(name, installed)}')


def _warn(sentence: str) -> None:
    if sentence not in _warned:
        _warned.add(sentence)
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
    entry.mark_available(Device("NumPy"))
    return entry
