"""How to install a part of Trueno that is missing: the command that fits the way in which Trueno was installed.

A clone's distributions are in no package index, so `pip install 'trueno[cli]'` would fail there, or install another
project of that name.  Installers write where a distribution comes from into `direct_url.json` (PEP 610), and their own
name into `INSTALLER` (PEP 376).
"""

import os
import re
from functools import cache
from typing import Any, NamedTuple

CONSTRAINTS = "local.txt"
"""A clone has this file in its root: it names our own distributions' folders."""
ADVICE = r"pip install 'trueno\[([\w,-]+)\]'"
"""The command as manifests and plugins write it, for an installation from an index."""


class Origin(NamedTuple):
    """Where this Trueno comes from.

    kind: `clone` (place: its root), `folder` (of the core's sources alone), `file` (a wheel), `repository` (place: its
    URL, as pip takes it) or `index` (no place).  editable: its sources are imported.  tool: `pip` or `uv pip`.
    """

    kind: str
    place: str = ""
    editable: bool = False
    tool: str = "pip"

    def __str__(self) -> str:
        what = {"clone": "a clone", "folder": "the sources", "file": "a file", "repository": "a repository"}
        if self.kind not in what:
            return "a package index"
        return f"{what[self.kind]}, {self.place}" + (", editable" if self.editable else "")


@cache
def origin() -> Origin:
    """The origin of the Trueno that runs."""
    from importlib.metadata import PackageNotFoundError, distribution  # start-up

    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.abspath(os.path.join(here, *[os.pardir] * 3))
    try:
        found = distribution("trueno")
        text, installer = found.read_text("direct_url.json") or "{}", found.read_text("INSTALLER") or ""
    except (PackageNotFoundError, OSError, ValueError):
        text, installer = "{}", ""
    tool = "uv pip" if installer.strip() == "uv" else "pip"
    if os.path.isfile(os.path.join(root, CONSTRAINTS)):  # the sources in a clone are imported
        return Origin("clone", root, True, tool)
    import json  # start-up

    try:
        return _described(json.loads(text), tool)
    except (ValueError, TypeError, AttributeError):  # a damaged file
        return Origin("index", tool=tool)


def _described(data: Any, tool: str) -> Origin:
    """The origin that the contents of a direct_url.json describe."""
    from urllib.parse import unquote, urlsplit  # start-up

    url, folder = str(data.get("url", "")), data.get("dir_info")
    if "vcs_info" in data:
        revision = data["vcs_info"].get("requested_revision")
        part = f"#subdirectory={data['subdirectory']}" if data.get("subdirectory") else ""
        return Origin(
            "repository", f"{data['vcs_info']['vcs']}+{url}" + (f"@{revision}" if revision else "") + part, tool=tool
        )
    if not url.startswith("file:"):
        return Origin("file" if url else "index", url, tool=tool)
    path = os.path.normpath(unquote(urlsplit(url).path))
    if folder is None:
        return Origin("file", path, tool=tool)
    editable, parent = bool(folder.get("editable")), os.path.dirname(path)
    if os.path.isfile(os.path.join(parent, CONSTRAINTS)):
        return Origin("clone", parent, editable, tool)
    return Origin("folder", path, editable, tool)


def install(extra: str) -> str:
    """The command that installs an extra of Trueno, such as `cli`, or several, `cli,gguf`."""
    return command(extra, origin(), os.getcwd)


def command(extra: str, source: Origin, folder: Any = os.getcwd) -> str:
    """The command for a given origin; folder: returns the working directory."""
    pip = f"{source.tool} install"
    if source.kind == "clone":
        edit, limit = "-e " if source.editable else "", "" if source.tool != "pip" else f"-c {CONSTRAINTS} "
        what = f'"core/[{extra}]"' if limit else f'"./core[{extra}]"'
        return f"{_enter(source.place, folder)}{pip} {limit}{edit}{what}"
    if source.kind == "folder":
        return f'{pip} {"-e " if source.editable else ""}"{source.place}[{extra}]"'
    if source.kind == "file" and os.path.isabs(source.place):
        return f"{pip} --find-links {_quoted(os.path.dirname(source.place))} 'trueno[{extra}]'"
    if source.kind in ("repository", "file"):
        return f"{pip} 'trueno[{extra}] @ {source.place}'"
    return f"{pip} 'trueno[{extra}]'"


def _enter(root: str, folder: Any) -> str:
    """`cd ROOT && ` unless the shell is there already: local.txt names folders relative to the working directory."""
    try:
        if os.path.realpath(folder()) == os.path.realpath(root):
            return ""
    except OSError:  # the working directory is gone
        pass
    return f"cd {_quoted(root)} && "


def _quoted(path: str) -> str:
    from shlex import quote  # start-up

    return quote(path)


def fitting(text: str) -> str:
    """A sentence of a plugin or of a manifest, in which commands that install our extras fit the installation."""
    return re.sub(ADVICE, lambda match: install(match[1]), text) if "trueno[" in text else text
