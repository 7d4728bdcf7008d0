"""Manifests: what a plugin says about itself, read from a file without importing any of its code.

The entry point's value is `package:backend.toml`.  The file is found beside the package's `__init__` with
`find_spec` of the top-level name, which imports nothing and works for wheels and editable installs alike.
"""

import sys
import tomllib
from dataclasses import dataclass, field
from importlib.util import find_spec
from os.path import expandvars
from pathlib import Path
from typing import Any

from trueno.discovery.protocol import API

KEYS = frozenset(
    {"name", "api", "kind", "tier", "opt_in", "factory", "arrays", "install", "unavailable", "require", "settings"}
)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a `backend.toml`, with the distribution that brought it."""

    name: str
    api: tuple[int, int]
    kind: str
    tier: int
    factory: str
    install: str
    arrays: tuple[str, ...] = ()
    opt_in: bool = False
    unavailable: str = ""
    require: dict[str, Any] = field(default_factory=dict)
    distribution: str = ""
    version: str = ""
    path: str = ""

    def missing(self) -> str:
        """Level-0 probe: the first requirement that does not hold, as a sentence; empty when all do."""
        if self.unavailable:
            return self.unavailable
        if not self.api[0] <= API <= self.api[1]:
            spoken = f"{self.api[0]} to {self.api[1]}"
            return f"speaks backend API {spoken}, but this trueno speaks {API}; upgrade one of the two"
        for module in self.require.get("modules", ()):
            if find_spec(module.partition(".")[0]) is None:
                return f"the module {module} is not installed. Install: {self.install}"
        here = self.require.get(sys.platform, {})
        paths = here.get("any_path", ())
        if paths and not any(Path(expandvars(p)).exists() for p in paths):
            return f"no device ({', '.join(paths)} missing). Install: {self.install}"
        return ""


def read(name: str, value: str, distribution: str, version: str) -> Manifest:
    """Read the manifest an entry point names; ValueError with a sentence when it is not one."""
    package, colon, file = value.partition(":")
    if not colon or "." in package:
        raise ValueError(f"the entry point's value is {value!r}; it must be like 'my_package:backend.toml'")
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"the package {package} is not found")
    path = Path(next(iter(spec.submodule_search_locations))) / file
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from None
    unknown = sorted(set(data) - KEYS)
    if unknown:
        raise ValueError(f"{path.name}: unknown key {unknown[0]!r}; known: {' '.join(sorted(KEYS))}")
    if data.get("name") != name:
        raise ValueError(f"{path.name}: name is {data.get('name')!r}, but the entry point is {name!r}")
    if data.get("kind") not in ("cpu", "gpu"):
        raise ValueError(f"{path.name}: kind is {data.get('kind')!r}; it must be cpu or gpu")
    if not data.get("unavailable") and ":" not in data.get("factory", ""):
        raise ValueError(f"{path.name}: factory is {data.get('factory')!r}; it must be like 'package.module:Class'")
    api = data.get("api")
    if not (isinstance(api, list) and len(api) == 2 and all(isinstance(n, int) for n in api)):
        raise ValueError(f"{path.name}: api is {api!r}; it must be [lowest, highest]")
    return Manifest(
        name=name,
        api=(api[0], api[1]),
        kind=data["kind"],
        tier=int(data.get("tier", 0)),
        factory=data.get("factory", ""),
        install=data.get("install", f"pip install 'trueno[{name}]'"),
        arrays=tuple(data.get("arrays", ())),
        opt_in=bool(data.get("opt_in", False)),
        unavailable=data.get("unavailable", ""),
        require=data.get("require", {}),
        distribution=distribution,
        version=version,
        path=str(path),
    )
