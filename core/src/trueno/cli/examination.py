"""What `trueno doctor` finds out, as plain data: what is installed, what can run, why not, and what to do about it.

It needs neither typer nor rich, so that the core alone can examine itself.
"""

import os
import platform
import re
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import metadata
from typing import Any

import numpy as np

from trueno import cachedir, hooks
from trueno.calibrate.store import describe
from trueno.cli.crew import processors
from trueno.discovery import registry
from trueno.discovery.entry import Entry
from trueno.discovery.index import extras
from trueno.errors import SettingError, TruenoError, TruenoWarning
from trueno.remedies import fitting, install, origin
from trueno.select.available import select_best_available_backend
from trueno.settings import settings

HEALTH = ("ok", "degraded", "broken")
"""The states of an installation; their indices are the exit codes."""
STATUSES = {
    "no_device": "no device", "not_built": "not built yet", "blocked": "switched off", "forced_cpu": "switched off"
}  # fmt: skip
"""Labels, by code, of backends that cannot run although nothing is wrong with them."""
FRAME = re.compile(r'^ +File "(?P<file>[^"\n]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?$', re.MULTILINE)
OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@contextmanager
def printing_aside() -> Iterator[None]:
    """Redirect plugins' output, from Python or C, to stderr: stdout is for the report."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # one of them is closed
        kept = -1
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if kept >= 0:
            os.dup2(kept, 1)
            os.close(kept)


def examine() -> dict[str, Any]:
    """The whole report, as plain data."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TruenoWarning)
        broken: list[str] = []
        backends, best = _backends(broken)
        values = _settings(broken)  # with those that plugins declare, which are loaded now
        cache = _cache(broken) if values else None
        sections, problems = ([], []) if broken else _sections()
        calibration = None if broken else describe()
    notes = [str(w.message.args[0]) for w in caught if isinstance(w.message, TruenoWarning)]
    notes += [] if broken else settings.unknown()  # the warning appears once per process, perhaps earlier
    failed = [b for b in backends if b["status"] == "failed" and not b["opt_in"]]
    return {
        "health": "broken" if broken else "degraded" if failed or problems else "ok",
        "trueno": metadata.version("trueno"),
        "origin": str(origin()),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "numpy": np.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "cpus": processors(),
        "best": best,
        "backends": backends,
        "not_installed": [] if broken else _not_installed(),
        "settings": values,
        "cache": cache,
        "calibration": calibration,
        "sections": sections,
        "broken": broken,
        "warnings": list(dict.fromkeys([*notes, *problems])),
        "advice": _advice(backends, failed),
    }


def _settings(broken: list[str]) -> list[dict[str, Any]]:
    try:
        entries = settings.all()
    except SettingError as error:
        if str(error) not in broken:
            broken.append(str(error))
        return []
    declared = settings.declared()
    return [{"name": n, "value": v.value, "origin": v.origin, "help": declared[n].help} for n, v in entries.items()]


def _backends(broken: list[str]) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    try:
        rows = described()
    except SettingError as error:
        broken.append(str(error))
        return [], None
    try:
        best = select_best_available_backend()
    except TruenoError as error:
        broken.append(str(error))
        return rows, None
    # Choosing the best loaded it, which may have failed although its probe passed.
    rows = [_backend(entry) for entry in registry.entries().values()]
    return rows, {"name": best.name, "kind": best.kind, "isa": best.isa, "device": best.device}


def _not_installed() -> list[dict[str, str]]:
    """The backends of the core's own extras that are not installed: name, and the command that installs each."""
    here = {re.sub(r"[-_.]+", "-", d.name or "").lower() for d in metadata.distributions()}
    installed = registry.entries()
    return [
        {"name": name, "install": install(name)}
        for name, distribution in extras().items()
        if name not in installed and distribution not in here
    ]


def described() -> list[dict[str, Any]]:
    """Every installed backend, in the report's form."""
    for entry in registry.entries().values():
        entry.start_probe()  # side by side
    return [_backend(entry) for entry in registry.entries().values()]


def _backend(entry: Entry) -> dict[str, Any]:
    available = entry.available
    error = "" if entry.error is None else "".join(traceback.format_exception(entry.error))
    return {
        "name": entry.name,
        "kind": entry.kind,
        "tier": entry.tier,
        "opt_in": entry.opt_in,
        "installed": True,
        "available": available,
        "active": entry.active,
        "status": status(entry),
        "code": entry.code,
        "reason": entry.reason,
        "remedy": "" if available else _install(entry),
        "error": error,
        "raised": "" if available else _raised(error),
        "notes": list(entry.notes),
        "probed": entry.probed,
        "checked": entry.checked,
        "distribution": entry.source[0],
        "version": entry.source[1],
        "path": entry.source[2],
        "devices": [{"name": d.name, "isa": d.isa, "software": d.software} for d in entry.devices],
    }


def _raised(error: str) -> str:
    """The last line outside Trueno in a traceback, `file, line 3, in probe`; empty if there is none."""
    frames = [m for m in FRAME.finditer(error) if not m["file"].startswith((OURS, "<frozen"))]
    if not frames:
        return ""
    file, line, function = frames[-1].groups()
    return f"{file}, line {line}" + (f", in {function}" if function else "")


def _install(entry: Entry) -> str:
    """The command that fixes it, if installing something can; other reasons contain their remedy."""
    manifest, reason = entry.manifest, entry.reason
    if entry.code == "missing":  # the sentence ends with the command, if there is one
        return reason.partition(". Install: ")[2]
    return fitting(manifest.install) if manifest and entry.code == "not_built" else ""


def status(entry: Entry) -> str:
    """One of five: available, no device (to run on), not built yet (by its own manifest), switched off (by
    a setting), failed.
    """
    if entry.available:
        return "available"
    return STATUSES.get(entry.code, "failed")


def _cache(broken: list[str]) -> dict[str, Any] | None:
    """The folder for compiled kernels, measurements and verdicts, and why it is not used, if so."""
    try:
        path, reason = cachedir.inspect(writing=True)
    except SettingError as error:  # `~nobody`
        if str(error) not in broken:
            broken.append(str(error))
        return None
    files = size = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                size += os.stat(os.path.join(folder, name)).st_size
            except OSError:  # another process may have renamed it meanwhile
                continue
            files += 1
    return {"path": str(path), "used": not reason, "reason": reason, "files": files, "bytes": size}


def _sections() -> tuple[list[dict[str, Any]], list[str]]:
    """The plugins' lines for this report, and the problems with plugins of hooks."""
    sections = [{"plugin": plugin, "lines": lines} for plugin, lines in hooks.doctor_sections()]
    return sections, hooks.problems()


def _advice(backends: list[dict[str, Any]], failed: list[dict[str, Any]]) -> list[str]:
    advice = []
    if backends and all(b["name"] == "reference" for b in backends if b["available"]):
        extras = metadata.metadata("trueno").get_all("Provides-Extra") or []
        extra = "simd" if "simd" in extras else "all"
        advice.append(f"only the reference can run, which is slow on purpose. Install: {install(extra)}")
    advice += [f"{b['name']}: {b['reason']}" + _remedy(b) for b in failed]
    return advice


def _remedy(backend: dict[str, Any]) -> str:
    remedy = backend["remedy"]
    return f". Install: {remedy}" if remedy and remedy not in backend["reason"] else ""
