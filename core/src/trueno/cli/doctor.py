"""`trueno doctor`: what is installed, what can run, why not, and what to do about it."""

import os
import platform
import warnings
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

from trueno.cli.crew import processors
from trueno.cli.report import screen, table, write_json
from trueno.discovery import registry
from trueno.discovery.registry import Entry
from trueno.errors import SettingError, TruenoError, TruenoWarning
from trueno.select.available import select_best_available_backend
from trueno.settings import SETTINGS, settings

HEALTH = ("ok", "degraded", "broken")
STYLES = {"available": "green", "failed": "red", "not built yet": "dim", "switched off": "yellow"}


def command(json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Examine this installation.

    Exit code 0: all is well.  1: something that is installed cannot run.  2: Trueno itself cannot.
    """
    report = examine()
    if json:
        write_json(report)
    else:
        _show(report, screen())
    if report["health"] != "ok":
        raise typer.Exit(HEALTH.index(report["health"]))


def examine() -> dict[str, Any]:
    """The whole report, as plain data."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TruenoWarning)
        broken: list[str] = []
        values = _settings(broken)
        backends, best = ([], None) if broken else _backends(broken)
        cache = _cache() if values else None
    notes = [str(w.message) for w in caught if issubclass(w.category, TruenoWarning)]
    failed = [b for b in backends if b["status"] == "failed"]
    advice = _advice(backends, failed)
    return {
        "health": "broken" if broken else "degraded" if failed else "ok",
        "trueno": metadata.version("trueno"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "numpy": np.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "cpus": processors(),
        "best": best,
        "backends": backends,
        "settings": values,
        "cache": cache,
        "broken": broken,
        "warnings": notes,
        "advice": advice,
    }


def _settings(broken: list[str]) -> list[dict[str, Any]]:
    try:
        found = settings.all()
    except SettingError as error:
        broken.append(str(error))
        return []
    return [
        {"name": name, "value": v.value, "origin": v.origin, "help": SETTINGS[name].help if name in SETTINGS else ""}
        for name, v in found.items()
    ]


def _backends(broken: list[str]) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    rows = [_backend(entry) for entry in registry.entries().values()]
    try:
        best = select_best_available_backend()
    except TruenoError as error:
        broken.append(str(error))
        return rows, None
    return rows, {"name": best.name, "kind": best.kind, "isa": best.isa, "device": best.device}


def _backend(entry: Entry) -> dict[str, Any]:
    available, manifest = entry.available, entry.manifest
    return {
        "name": entry.name,
        "kind": entry.kind,
        "installed": True,
        "available": available,
        "active": entry.active,
        "status": status(entry),
        "reason": entry.reason,
        "remedy": "" if available or manifest is None else manifest.install,
        "distribution": (manifest.distribution if manifest else "") or ("trueno" if entry.name == "reference" else ""),
        "version": (manifest.version if manifest else "")
        or (metadata.version("trueno") if entry.name == "reference" else ""),
        "path": manifest.path if manifest else "",
        "devices": [{"name": d.name, "isa": d.isa, "software": d.software} for d in entry.devices],
    }


def status(entry: Entry) -> str:
    """One of four: available, not built yet (its own manifest says so), switched off (by a setting), failed."""
    if entry.available:
        return "available"
    forced = settings.get("TRUENO_FORCE_CPU") and entry.kind == "gpu"
    if forced or entry.name in settings.get("TRUENO_BLOCK"):
        return "switched off"
    if entry.manifest is not None and entry.manifest.unavailable:
        return "not built yet"
    return "failed"


def _cache() -> dict[str, Any]:
    """The folder of compiled kernels: the setting's, or the user's own for this platform."""
    given = settings.get("TRUENO_CACHE_DIR")
    if given:
        path = Path(given).expanduser()
    else:
        from platformdirs import user_cache_path

        path = user_cache_path("trueno", appauthor=False)
    files = size = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                size += os.stat(os.path.join(folder, name)).st_size
            except OSError:  # written beside and renamed by another process meanwhile
                continue
            files += 1
    return {"path": str(path), "exists": path.is_dir(), "files": files, "bytes": size}


def _advice(backends: list[dict[str, Any]], failed: list[dict[str, Any]]) -> list[str]:
    said = []
    if backends and all(b["name"] == "reference" for b in backends if b["available"]):
        extras = metadata.metadata("trueno").get_all("Provides-Extra") or []
        extra = "simd" if "simd" in extras else "all"
        said.append(f"only the reference can run, which is slow on purpose. Install: pip install 'trueno[{extra}]'")
    said += [f"{b['name']}: {b['reason']}" + _remedy(b) for b in failed]
    return said


def _remedy(backend: dict[str, Any]) -> str:
    remedy = backend["remedy"]
    return f". Install: {remedy}" if remedy and remedy not in backend["reason"] else ""


def _value(value: Any) -> str:
    if value is None or value == ():
        return "–"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _show(report: dict[str, Any], console: Console) -> None:
    console.print(Text(f"trueno {report['trueno']}", style="bold"))
    console.print(
        f"{report['python']}, NumPy {report['numpy']}, {report['platform']}, "
        f"{report['cpus']} CPU{'s' if report['cpus'] > 1 else ''}\n"
    )
    if report["backends"]:
        console.print(backend_table(report["backends"]))
        console.print()
    if report["best"]:
        best = report["best"]
        console.print(f"Chosen automatically: {best['name']}" + (f" ({best['isa']})" if best["isa"] else "") + "\n")
    if report["settings"]:
        rows = table("setting", "value", "from")
        rows.columns[0].no_wrap = True
        for s in report["settings"]:
            style = "" if s["origin"] == "default" else "bold"
            rows.add_row(s["name"], _value(s["value"]), s["origin"], style=style)
        console.print(rows)
        console.print()
    if report["cache"]:
        cache = report["cache"]
        held = f"{cache['files']} files, {cache['bytes'] / 1e6:.1f} MB" if cache["exists"] else "not made yet"
        console.print(f"Compiled kernels: {cache['path']} ({held})", soft_wrap=True)
    for key, word, colour in (
        ("warnings", "warning", "yellow"),
        ("advice", "advice", "yellow"),
        ("broken", "broken", "red"),
    ):
        for line in report[key]:
            console.print(f"{word}: {line}", style=colour, soft_wrap=True)
    style = {"ok": "bold green", "degraded": "bold yellow", "broken": "bold red"}[report["health"]]
    console.print(Text(f"\n{report['health']}", style=style))


def backend_table(backends: list[dict[str, Any]]) -> Any:
    """Every backend with the three answers; `trueno demo` shows it too."""
    rows = table("backend", "version", "status", "active", "device or reason")
    for b in backends:
        device = ", ".join(f"{d['name']} {d['isa']}".strip() for d in b["devices"])
        rows.add_row(
            b["name"],
            b["version"] or "–",
            Text(b["status"], style=STYLES[b["status"]]),
            "yes" if b["active"] else "–",
            device if b["available"] else b["reason"],
        )
    return rows


def described() -> list[dict[str, Any]]:
    """Every installed backend, as the report has it."""
    return [_backend(entry) for entry in registry.entries().values()]
