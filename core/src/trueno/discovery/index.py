"""The index of installed plugins: a scan of the entry points, kept on disk until something is installed or removed.

A scan imports `importlib.metadata` and opens a file of every distribution.  So its result is kept, with the contents
of the manifests, in the user's cache folder, in a file named after `sys.path` and the versions of Python and Trueno.
It is valid as long as every entry of `sys.path`, and every manifest, has the same time and size.
An index that is damaged, from elsewhere or outdated is not an error: it only costs a scan.
"""

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from trueno import cachedir
from trueno.discovery.manifest import Manifest, load, locate, parse
from trueno.escape import escaped
from trueno.locks import ForkSafeLock
from trueno.sealed import seal, unseal
from trueno.version import __version__

if TYPE_CHECKING:
    from importlib.metadata import Distribution

BACKENDS, HOOKS, *_ = GROUPS = ("trueno.backends", "trueno.hooks", "trueno.commands", "trueno.gates", "trueno.arrays")
LIBRARIES = ("dask",)  # extras whose distribution adds a library of arrays, and no backend

RACY = 2 * 10**9
"""Nanoseconds within which a folder may change twice under one time stamp: file systems have coarse clocks."""

KEPT = 64
"""Files that are kept: scripts in different folders have a `sys.path` each."""

Stamp = list[int] | None

_scanning = ForkSafeLock()  # `importlib.metadata` shares caches between threads, and takes no care of them


@dataclass(frozen=True, slots=True)
class Point:
    """One entry point; for a backend with the file and the contents of its manifest, which is not checked yet.

    manifest: None for a hook, and if `problem` says why there is none.
    """

    group: str
    name: str
    value: str
    distribution: str = ""
    version: str = ""
    manifest: dict[str, Any] | None = None
    path: str = ""
    problem: str = ""

    def parsed(self) -> Manifest:
        """The manifest, checked; ValueError with a sentence when it is invalid."""
        if self.manifest is None:
            raise ValueError(self.problem or f"the entry point {self.name} has no manifest")
        where = self.value.replace(":", "/")
        return parse(self.manifest, where, self.name, self.distribution, self.version, self.path)


def points(refresh: bool = False) -> list[Point]:
    """Every entry point of Trueno's groups, sorted by group and name; `refresh` scans, whatever the index says.

    Two distributions that claim one name give two points; duplicates within one distribution give one.
    """
    now = time.time_ns()
    entries = [_entry(entry) for entry in dict.fromkeys(sys.path) if isinstance(entry, str)]
    head = {"python": sys.version, "trueno": __version__, "path": entries}
    file = _file(head)
    kept = None if refresh or file is None else _kept(file, head)
    examined = (
        _scan([entry for entry, stamp in entries if stamp]) if kept is None else [_unchanged(*pair) for pair in kept]
    )
    if file and examined != kept:
        stamps = [stamp for _, stamp in entries] + [stamp for _, stamp in examined]
        if all(stamp is None or stamp[0] < now - RACY for stamp in stamps):
            _keep(file, {"head": head, "points": [[asdict(point), stamp] for point, stamp in examined]})
    return [point for point, _ in examined]


def extras() -> dict[str, str]:
    """The backends that the core's own extras bring: names, and the distribution that each needs."""
    from importlib.metadata import PackageNotFoundError, requires

    needs: list[str] = []
    with suppress(PackageNotFoundError):  # a frozen application may have left it out
        needs = requires("trueno") or []
    backends: dict[str, str] = {}
    for need in needs:
        what, _, marker = need.partition(";")
        extra = re.search(r"""extra\s*==\s*['"]([\w-]+)['"]""", marker)
        distribution = normalized(re.split(r"[^\w.-]", what.strip(), maxsplit=1)[0])
        if extra and distribution == f"trueno-{extra[1]}" and extra[1] not in LIBRARIES:  # nor are `cuda12` and `all`
            backends[extra[1]] = distribution
    return backends


def normalized(distribution: str) -> str:
    """The name of a distribution as package indexes compare it."""
    return distribution.lower().replace("_", "-").replace(".", "-")


def _entry(entry: str) -> tuple[str, Stamp]:
    """An entry of `sys.path` and its stamp; a relative one with its folder, unless it is the name of an import hook."""
    with suppress(OSError):  # the working directory may be gone
        path = os.path.abspath(entry)
        if stamp := _stamp(path):
            return path, stamp
    return entry, None


def _stamp(path: str) -> Stamp:
    try:
        facts = os.stat(path)
    except (OSError, ValueError):
        return None
    return [facts.st_mtime_ns, facts.st_size]


def _file(head: dict[str, Any]) -> Path | None:
    folder = cachedir.folder("index")
    if folder is None:
        return None
    key = "\n".join([head["python"], head["trueno"], *(entry for entry, _ in head["path"])])
    return folder / f"{crc32(key.encode(errors='backslashreplace')):08x}.json"  # the head in it decides; see `_kept`


def _kept(file: Path, head: dict[str, Any]) -> list[tuple[Point, Stamp]] | None:
    """The contents of the index, if it was made under `head`."""
    try:
        data = unseal(cachedir.read(file))
        if data["head"] != head | {"path": [list(pair) for pair in head["path"]]}:
            return None
        return [(_point(facts), stamp) for facts, stamp in data["points"]]
    except (ValueError, TypeError, KeyError):
        return None


def _point(facts: dict[str, Any]) -> Point:
    point = Point(**facts)
    texts = [value for key, value in facts.items() if key != "manifest"]
    if set(facts) != set(Point.__slots__) or not all(isinstance(text, str) for text in texts):
        raise TypeError("not a point")
    if point.group not in GROUPS or not isinstance(point.manifest, dict | None):
        raise TypeError("not a point of ours")
    return point


def _keep(file: Path, data: dict[str, Any]) -> None:
    if cachedir.write(file, seal(data)):
        with suppress(OSError):
            others = sorted(file.parent.iterdir(), key=lambda path: path.stat().st_mtime_ns)
            for path in others[:-KEPT]:
                path.unlink(missing_ok=True)


def _unchanged(point: Point, stamp: Stamp) -> tuple[Point, Stamp]:
    """A point of the index; its manifest is read again if the file has changed, or did not exist."""
    if point.group != BACKENDS or not point.value or (stamp and _stamp(point.path) == stamp):
        return point, stamp
    return _examined(point)


def _examined(point: Point) -> tuple[Point, Stamp]:
    """The point with its manifest, or with the problem."""
    path, stamp, manifest, problem = "", None, None, ""
    try:
        path = locate(point.value)
        stamp = _stamp(path)
        data = load(path)
        json.dumps(data)
        manifest = data
    except ValueError as error:
        problem = str(error)
    except TypeError:  # the only type in TOML that JSON does not have
        problem = "it holds a date or a time, which no key takes"
    except RecursionError:
        problem = "it is nested too deeply"
    return replace(point, manifest=manifest, path=path, problem=problem), stamp


def _scan(entries: list[str]) -> list[tuple[Point, Stamp]]:
    from importlib import invalidate_caches

    with _scanning:
        with suppress(KeyError):  # another thread that imports something clears the same cache
            invalidate_caches()  # something may have been installed while this process runs
        return _collect(entries)


def _collect(entries: list[str]) -> list[tuple[Point, Stamp]]:
    unique: list[Point] = []
    for i, entry in enumerate(entries):
        claims: dict[str, tuple[list[int], list[Point]]] = {}
        for distribution in _ours(entry):
            name, version = _identity(distribution)
            numbers = [int(n) for n in re.findall(r"\d+", version)]
            if _shadowed(name, entries[:i]) or (name in claims and claims[name][0] >= numbers):
                continue  # the remains of an interrupted installation in the same folder count only if they are newer
            claims[name] = numbers, _claims(distribution, name, version)
        unique += [point for _, claimed in claims.values() for point in claimed]
    unique.sort(key=lambda point: (point.group, point.name, point.value, point.distribution))
    return [(point, None) if point.problem or point.group != BACKENDS else _examined(point) for point in unique]


def _ours(entry: str) -> Iterator["Distribution"]:
    """The distributions in one entry of `sys.path` that have entry points in one of our groups."""
    from importlib.metadata import distributions

    for distribution in distributions(path=[entry]):
        with suppress(Exception):  # an unreadable distribution is not ours to report
            text = distribution.read_text("entry_points.txt") or ""
            if any(group in text for group in GROUPS):
                yield distribution


def _identity(distribution: "Distribution") -> tuple[str, str]:
    """Name and version; both may be missing after an interrupted installation."""
    with suppress(Exception):
        return distribution.metadata["Name"] or "unnamed", distribution.version or ""
    return "unnamed", ""


def _shadowed(name: str, earlier: list[str]) -> bool:
    """Whether an earlier entry of `sys.path` has a distribution of this name: Python imports that one's code."""
    from importlib.metadata import distributions

    return any(True for _ in distributions(name=name, path=earlier))


def _claims(distribution: "Distribution", name: str, version: str) -> list[Point]:
    name, version = escaped(name), escaped(version)  # a header may continue on further lines
    try:
        points = [(point.group, point.name, point.value) for point in distribution.entry_points]
    except Exception as error:  # lines that are not entry points
        problem = f"its entry_points.txt cannot be read: {type(error).__name__}: {error}"
        return [Point(BACKENDS, name, "", name, version, problem=problem)]
    return [Point(*claim, name, version) for claim in dict.fromkeys(points) if claim[0] in GROUPS]
