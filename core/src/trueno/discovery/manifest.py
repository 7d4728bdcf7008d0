"""Manifests: a plugin's description of itself, read from a file without importing any of its code.

The entry point's value is `package:backend.toml`.  The file is found beside the package's `__init__` with
`find_spec` of the top-level name, which imports nothing and works for wheels and editable installs alike.
The table of `trueno.discovery.keys` lists the allowed keys; `python -m trueno.discovery.manifest` writes
`backend.schema.json` from it.
"""

import os.path
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from trueno.discovery.keys import LARGEST, TABLE, default, refuse, schema, shown
from trueno.discovery.protocol import API
from trueno.escape import escaped
from trueno.parsers import TYPES
from trueno.settings import SETTINGS, Setting

DEEPEST = 16
"""Tables and lists that may be nested; no key needs more than five."""
ANYBODYS = ("builtins", "typing", "types", "abc", "collections", "numbers")
"""Modules whose types many others inherit: no backend may own them."""

SCHEMA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "backend.schema.json")


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a `backend.toml`, with the distribution that it belongs to.

    settings: the plugin's own variables, each ready for `trueno.settings.settings.declare`.
    """

    name: str
    api: tuple[int, int]
    kind: str
    tier: int
    factory: str
    install: str
    arrays: tuple[str, ...] = ("numpy:ndarray",)
    opt_in: bool = False
    atomic: bool = False
    half: tuple[str, ...] = ()
    unavailable: str = ""
    require: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Setting] = field(default_factory=dict)
    distribution: str = ""
    version: str = ""
    path: str = ""

    @property
    def foreign(self) -> bool:
        """Whether its kernels take its own array type; the core then moves the caller's arrays."""
        return bool(self.arrays) and self.arrays[0] != "numpy:ndarray"

    def unmet(self) -> tuple[str, str] | None:
        """Level-0 probe: code and sentence of the first unmet requirement; None if all are met.

        Codes: api_mismatch, not_built, no_device, missing: a module for an absent device is not reported as missing.
        Looks for files and calls `find_spec`; runs none of the plugin's code.
        """
        if not self.api[0] <= API <= self.api[1]:
            return "api_mismatch", self._mismatch()
        if self.unavailable:
            return "not_built", self.unavailable
        paths = (here := self.require.get(sys.platform, {})).get("any_path", ())
        if paths and not any(os.path.exists(os.path.expandvars(path)) for path in paths):
            return "no_device", f"no device or driver is visible: {', '.join(map(escaped, paths))} missing"
        for module in here.get("modules", self.require.get("modules", ())):
            top = module.partition(".")[0]
            if not _installed(top):
                return "missing", f"the module {module} is not installed{self._remedy(top)}"
        return None

    def _remedy(self, module: str) -> str:
        """How to install a module: as the manifest says; else by its name, if the distribution requires it.

        Installing the distribution again, which `install` does by default, would not help.
        """
        if self.install != f"pip install --upgrade {self.distribution}":
            return f". Install: {self.install}" if self.install else ""
        from importlib.metadata import PackageNotFoundError, requires

        try:
            needs = requires(self.distribution) or []
        except (PackageNotFoundError, ValueError):
            needs = []
        names = {re.split(r"[^\w.-]", need.strip(), maxsplit=1)[0].lower().replace("-", "_") for need in needs}
        return f". Install: pip install {module}" if module.lower() in names else ""

    def _mismatch(self) -> str:
        low, high = self.api
        spoken = f"version {low}" if low == high else f"versions {low} to {high}"
        older = (self.distribution or f"the distribution of {self.name}") if high < API else "trueno"
        return (
            f"it implements {spoken} of the backend protocol, and this trueno implements {API}. "
            f"Install: pip install --upgrade {older}"
        )


def locate(value: str) -> str:
    """The path of the file that an entry point's value, `package:file.toml`, names; ValueError if it does not exist.

    The package is located but not imported.  A namespace package may have several folders: the first one with it.
    """
    package, colon, file = value.partition(":")
    if not colon or not package.isidentifier() or not re.fullmatch(r"\w[\w-]*(\.\w[\w-]*)*", file):
        raise ValueError(f"the entry point's value is {value!r}; it must be like 'my_package:backend.toml'")
    try:
        spec = find_spec(package)
    except Exception as error:  # a finder may be any code
        raise ValueError(f"the package {package} cannot be looked up: {type(error).__name__}: {error}") from None
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if not folders:
        raise ValueError(f"the package {package} is not found")
    for folder in folders:
        path = os.path.join(os.path.abspath(folder), file)
        if os.path.isfile(path):
            return path
    raise ValueError(f"the package {package} has no file {file}; it must be named as package data")


def load(path: str) -> dict[str, Any]:
    """The contents of a manifest's file, not yet checked; ValueError when it cannot be read or is not TOML.

    A file larger than `LARGEST` is not parsed, and no more than that is read of it.
    """
    import tomllib  # only here: if the index is valid, no manifest is read

    try:
        with open(path, "rb") as file:
            text = file.read(LARGEST + 1)
            size = max(os.fstat(file.fileno()).st_size, len(text))
        if size > LARGEST:
            raise ValueError(f"it has {size} bytes; a manifest has at most {LARGEST}")
        data = tomllib.loads(text.decode())
    except RecursionError:
        raise ValueError(f"{path} cannot be read: it is nested too deeply") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except Exception as error:  # an exception of the parser also means a bad file
        raise ValueError(f"{path} cannot be read: {error}") from None
    if _deep(data):
        raise ValueError(f"{path} is nested more than {DEEPEST} deep")
    return data


def parse(
    data: Mapping[str, Any], where: str, name: str = "", distribution: str = "", version: str = "", path: str = ""
) -> Manifest:
    """Check a manifest's contents; ValueError naming `where`, the key, its value and what is allowed.

    name: the entry point's, which must be the manifest's own; nothing if there is no entry point.
    For a manifest of another version of the protocol only name, api and kind are checked: the rest may be written
    for that version, and `unmet` then says what to upgrade.
    """
    contents = dict(data)
    if _deep(contents):
        raise ValueError(f"{where}: it is nested more than {DEEPEST} deep")
    keys = TABLE["properties"]
    api: Any = contents.get("api")
    if "api" in contents and not refuse(api, keys["api"], "api") and not api[0] <= API <= api[1]:
        contents = {key: contents[key] for key in ("name", "api") if key in contents} | {
            "kind": contents["kind"] if contents.get("kind") in keys["kind"]["enum"] else "cpu",
            "unavailable": "it is written for another version of trueno",
        }
    problem = refuse(contents) or _refuse_further(contents, name)
    if problem:
        raise ValueError(f"{where}: {problem}")
    for key in keys:
        contents.setdefault(key, default(key))
    return Manifest(
        **contents
        | {
            "api": tuple(contents["api"]),
            "arrays": tuple(contents["arrays"]),
            "half": tuple(contents["half"]),
            "require": dict(contents["require"]),
            "unavailable": _line(contents["unavailable"]),
            "install": _line(contents["install"]) or (f"pip install --upgrade {distribution}" if distribution else ""),
            "settings": {variable: _setting(facts) for variable, facts in contents["settings"].items()},
            "distribution": distribution,
            "version": version,
            "path": path,
        }
    )


def _refuse_further(contents: dict[str, Any], name: str) -> str:
    """Errors that a schema cannot express."""
    if name and contents["name"] != name:
        return f"name is {contents['name']!r}, but the entry point is {name!r}"
    if contents["api"][0] > contents["api"][1]:
        return f"api is {shown(contents['api'])}; it must be [lowest, highest]"
    for key in ("install", "unavailable"):
        if contents.get(key) and not _line(contents[key]):
            return f"{key} is {shown(contents[key])}; it must be a text that is not empty"
    for i, text in enumerate(contents.get("arrays", ())):
        if text.partition(":")[0].partition(".")[0] in ANYBODYS:
            return f"arrays[{i}] is {text!r}, which is not a backend's own; it must be a type that this backend brings"
    for variable in contents.get("settings", ()):
        if variable in SETTINGS:
            return f"settings.{variable} is a variable of trueno's own; it must have another name"
    return ""


def _setting(facts: dict[str, Any]) -> Setting:
    parse, value = TYPES[facts["type"]], facts.get("default")
    if isinstance(value, list):
        value = parse(",".join(value))  # names, in the form that the parser gives them
    elif facts["type"] == "seconds" and value is not None:
        value = float(value)
    return Setting(parse, value, _line(facts["help"]))


def _line(text: str) -> str:
    """A text made safe for one line on a screen: without control characters, which a terminal would obey."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _deep(data: Any) -> bool:
    """Whether it is nested deeper than any manifest; found without recursion."""
    left = [(data, 0)]
    while left:
        value, depth = left.pop()
        inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
        if inner and depth >= DEEPEST:
            return True
        left += [(one, depth + 1) for one in inner]
    return False


def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except Exception:  # ValueError for a module created in code; a finder may raise anything
        return sys.modules.get(package) is not None


if __name__ == "__main__":
    import json

    with open(SCHEMA, "w", encoding="utf-8") as target:
        target.write(json.dumps(schema(), indent=2) + "\n")
