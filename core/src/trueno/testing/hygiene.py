"""A backend's side effects: what it imports, prints and changes, and whether a process may fork.

Each function runs `trueno.testing.child` in a child process and lists what is wrong.  The core's own backend has
no code apart from the core's, so it passes.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from trueno.discovery import registry
from trueno.testing.declared import package_of

SECONDS = 300.0
"""Time limit of a child; first imports and first compilations are slow on busy machines."""


def _child(task: str, name: str, **environment: str) -> tuple[dict[str, Any], str]:
    """The task's report, and its output.  A report of {"error": …} if it did not finish."""
    manifest = registry.entries()[name].manifest
    path = manifest.path if manifest else ""
    paths = os.pathsep.join(p for p in sys.path if p)
    with TemporaryDirectory(prefix="trueno-kit-") as folder:
        report = Path(folder, "report.json")
        command = [sys.executable, "-m", "trueno.testing.child", task, name, path, str(report)]
        try:
            done = subprocess.run(
                command,
                env={**os.environ, "PYTHONPATH": paths, **environment},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            return {"error": f"it did not end in {SECONDS:.0f} seconds"}, ""
        printed = done.stdout.decode("utf-8", "replace")
        if report.exists() and (text := report.read_text("utf-8")):
            return json.loads(text), printed
        last_line = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        return {"error": f"its process ended with {how}" + (f": {last_line}" if last_line else "")}, printed


def probe_problems(name: str) -> list[str]:
    """Both probes in a new process: verdicts, output, and the changes around them."""
    if not package_of(name):
        return []
    report, printed = _child("probes", name)
    wrong = [f"it prints on stdout: {printed[:200]!r}"] if printed else []
    if "error" in report:
        return [*wrong, f"probing raised: {report['error']}"]
    for level, key in ((1, "one"), (2, "two")):
        ok, reason = report[key]
        if not ok:
            wrong.append(f"probe({level}) says no in a new process: {reason or 'without a reason'}")
    if not report["same"]:
        wrong.append("probe(1) gives another verdict the second time")
    if not report["twice"]:
        wrong.append("the factory, called a second time, gives a backend whose probe(1) differs")
    return [*wrong, *(f"probing changed the {change}" for change in report["changes"])]


def fork_problems(name: str) -> list[str]:
    """A process that calls probe(1) and then forks: does its child work?  Nothing on systems without fork."""
    if not hasattr(os, "fork") or not package_of(name):
        return []
    report, _ = _child("fork", name)
    problem = report.get("error") or report.get("said")
    return [f"after probe(1) and a fork: {problem}"] if problem else []


def discovery_problems(name: str) -> list[str]:
    """Listing the backends must import none of this one's code, once its verdict is known."""
    report, printed = _child("discovery", name, TRUENO_PROBE="on")
    if "error" not in report:
        report, more = _child("discovery", name, TRUENO_PROBE="on")
        printed += more
    wrong = [f"discovery prints: {printed[:200]!r}"] if printed else []
    if "error" in report:
        return [*wrong, f"discovery raised: {report['error']}"]
    if report["listed"]:
        wrong.append("trueno.backends() imported its package; it must be found by its manifest alone")
    elif report["asked"]:
        wrong.append("asking whether it is available imported its package, though its verdict was known")
    if not report["available"]:
        wrong.append(f"in a new process it is not available: {report['reason']}")
    return wrong


def force_cpu_problems(name: str) -> list[str]:
    """Under TRUENO_FORCE_CPU=1 a GPU backend is neither imported nor available; a CPU backend is unaffected."""
    report, _ = _child("discovery", name, TRUENO_PROBE="on", TRUENO_FORCE_CPU="1")
    if "error" in report:
        return [f"under TRUENO_FORCE_CPU=1: {report['error']}"]
    if registry.entries()[name].kind != "gpu":
        return [] if report["available"] else [f"TRUENO_FORCE_CPU=1 made it unavailable: {report['reason']}"]
    wrong = ["under TRUENO_FORCE_CPU=1 its package is imported"] if report["listed"] or report["asked"] else []
    return [*wrong, "under TRUENO_FORCE_CPU=1 it is available"] if report["available"] else wrong
