"""`trueno doctor`: what is installed, what can run, why not, and what to do about it."""

import os
import platform
import re
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import metadata
from typing import Annotated, Any

import numpy as np
import typer
from rich.text import Text

from trueno import cachedir
from trueno.calibrate.store import describe
from trueno.cli.crew import processors
from trueno.cli.report import Screen, screen, table, write_json
from trueno.discovery import registry
from trueno.discovery.entry import Entry
from trueno.discovery.index import extras
from trueno.errors import SettingError, TruenoError, TruenoWarning
from trueno.select.available import select_best_available_backend
from trueno.settings import settings

HEALTH = ("ok", "degraded", "broken")
STYLES = {
    "available": "green", "failed": "red", "no device": "yellow", "not built yet": "dim", "switched off": "yellow"
}  # fmt: skip
STATUSES = {
    "no_device": "no device", "not_built": "not built yet", "blocked": "switched off", "forced_cpu": "switched off"
}  # fmt: skip
"""Labels, by code, of backends that cannot run although nothing is wrong with them."""
FRAME = re.compile(r'^ +File "(?P<file>[^"\n]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?$', re.MULTILINE)
OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORDS = (
    ("installed", "its package is installed"),
    ("available", "it can run here (–: it is switched off, or no release of it can)"),
    ("active", "it has run something in this process"),
)


def command(
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Probe everything again, ignoring cached verdicts.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    explained: Annotated[
        bool, typer.Option("--settings", help="Print only the settings, and what each of them does.")
    ] = False,
) -> None:
    """Examine this installation.

    Exit code 0: all is well; a backend without a device to run on is not an error.  1: an installed
    component is broken.  2: Trueno itself is.
    """
    if refresh:
        registry.forget(refresh=True)
    with _printing_aside():
        report = examine()
    if json:
        write_json(report)
    elif explained:
        _show_settings(report, screen())
    else:
        _show(report, screen())
    if report["health"] != "ok":
        raise typer.Exit(HEALTH.index(report["health"]))


@contextmanager
def _printing_aside() -> Iterator[None]:
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
        {"name": name, "install": f"pip install 'trueno[{name}]'"}
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
    if entry.code in ("missing", "no_device"):  # the sentence ends with the command, if there is one
        return reason.partition(". Install: ")[2]
    return manifest.install if manifest and entry.code == "not_built" else ""


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
    from trueno import hooks  # start-up

    sections = [{"plugin": plugin, "lines": lines} for plugin, lines in hooks.doctor_sections()]
    return sections, hooks.problems()


def _advice(backends: list[dict[str, Any]], failed: list[dict[str, Any]]) -> list[str]:
    advice = []
    if backends and all(b["name"] == "reference" for b in backends if b["available"]):
        extras = metadata.metadata("trueno").get_all("Provides-Extra") or []
        extra = "simd" if "simd" in extras else "all"
        advice.append(f"only the reference can run, which is slow on purpose. Install: pip install 'trueno[{extra}]'")
    advice += [f"{b['name']}: {b['reason']}" + _remedy(b) for b in failed]
    return advice


def _remedy(backend: dict[str, Any]) -> str:
    remedy = backend["remedy"]
    return f". Install: {remedy}" if remedy and remedy not in backend["reason"] else ""


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None or value == ():
        return "–"
    if isinstance(value, tuple):
        return ",".join(":".join(v) if isinstance(v, tuple) else str(v) for v in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def ago(seconds: float) -> str:
    """The age of something, in one word and a unit."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit} ago"
    return "just now"


def _probed(backend: dict[str, Any]) -> str:
    if backend["probed"] == "cached" and backend["checked"]:
        return ago(time.time() - backend["checked"])
    return backend["probed"] or "–"


def _show(report: dict[str, Any], console: Screen) -> None:
    console.print(f"trueno {report['trueno']}", style="bold")
    console.print(
        f"{report['python']}, NumPy {report['numpy']}, {report['platform']}, "
        f"{report['cpus']} CPU{'s' if report['cpus'] > 1 else ''}"
    )
    console.print()
    if report["backends"]:
        console.print(backend_table(report["backends"], report["not_installed"]))
        console.print()
        active = any(b["active"] for b in report["backends"])
        console.print(
            "; ".join(f"{word}: {meaning}" for word, meaning in WORDS if active or word != "active"), style="dim"
        )
        for b in report["backends"]:
            source = " ".join(w for w in (b["distribution"], b["version"]) if w)
            where = b["path"] or ("part of trueno" if b["name"] == "reference" else "no file of a manifest")
            console.print(f"{b['name']}: {source or 'registered'}, {where}", soft_wrap=True)
        console.print()
    if report["best"]:
        best = report["best"]
        console.print(f"Chosen automatically: {best['name']}" + (f" ({best['isa']})" if best["isa"] else ""))
        console.print()
    if report["settings"]:
        rows = table("setting", "value", "from")
        rows.columns[0].no_wrap = True
        for s in report["settings"]:
            style = "" if s["origin"] == "default" else "bold"
            rows.add_row(s["name"], _value(s["value"]), s["origin"], style=style)
        console.print(rows)
        console.print("what each does: trueno doctor --settings", style="dim")
        console.print()
    if report["cache"]:
        cache = report["cache"]
        used = (
            f"{cache['files']} files, {cache['bytes'] / 1e6:.1f} MB"
            if cache["used"]
            else f"not used: {cache['reason']}"
        )
        console.print(f"Cache: {cache['path']} ({used})", soft_wrap=True)
    if report["calibration"]:
        console.print(f"Calibration: {report['calibration']}", soft_wrap=True)
    for section in report["sections"]:
        console.print()
        console.print(section["plugin"], style="bold")
        for line in section["lines"]:
            console.print(line, soft_wrap=True)
    notes = [f"{b['name']}: {note}" for b in report["backends"] for note in b["notes"]]
    raised = [f"{b['name']}: {b['raised']}" for b in report["backends"] if b["raised"]]
    for word, lines, colour in (
        ("note", notes, "yellow"),
        ("raised", raised, "yellow"),
        ("warning", report["warnings"], "yellow"),
        ("advice", report["advice"], "yellow"),
        ("broken", report["broken"], "red"),
    ):
        for line in lines:
            console.print(f"{word}: {line}", style=colour, soft_wrap=True)
    style = {"ok": "bold green", "degraded": "bold yellow", "broken": "bold red"}[report["health"]]
    console.print()
    console.print(report["health"], style=style)


def _show_settings(report: dict[str, Any], console: Screen) -> None:
    """Two lines per setting: a sentence is too long for a table column."""
    for s in report["settings"]:
        style = "" if s["origin"] == "default" else "bold"
        console.print(f"{s['name']} = {_value(s['value'])}   ({s['origin']})", style=style, soft_wrap=True)
        console.print(f"    {s['help']}", style="dim", soft_wrap=True)
    for line in report["broken"]:
        console.print(f"broken: {line}", style="red", soft_wrap=True)


def backend_table(backends: list[dict[str, Any]], absent: list[dict[str, str]] | None = None) -> Any:
    """Every backend with the three answers, and those of ours that are `absent`; used by `trueno demo`, too."""
    active = any(b["active"] for b in backends)
    titles = ["backend", "version", "installed", "available", *["active"] * active, "probed", "device or reason"]
    rows = table(*titles)
    for b in backends:
        device = ", ".join(f"{d['name']} {d['isa']}".strip() for d in b["devices"])
        says = {"available": "yes", "failed": "no", "no device": "no"}.get(b["status"], "–")
        rows.add_row(
            b["name"],
            b["version"] or "–",
            "yes",
            Text(says, style=STYLES[b["status"]]),
            *["yes" if b["active"] else "–"] * active,
            _probed(b),
            device if b["available"] else f"{b['reason']} ({b['code']})",
        )
    for b in absent or ():
        rows.add_row(b["name"], "–", "no", "–", *["–"] * active, "–", f"not installed — {b['install']}")
    return rows
