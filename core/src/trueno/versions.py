"""`trueno.show_versions()`: what a report of a problem should contain, as text or as data."""

import os
import platform
import sys
from collections.abc import Mapping
from importlib import metadata
from typing import IO, Any

from trueno.discovery import registry
from trueno.escape import escaped
from trueno.machine import cpu
from trueno.remedies import origin
from trueno.text import columns

OTHERS = ("numpy", "numba", "llvmlite", "wgpu", "cupy-cuda12x", "cupy-cuda13x", "ml_dtypes", "torch", "gguf", "lz4")
"""Distributions beside our own whose version may matter."""
DRIVER = "/proc/driver/nvidia/version"


def show_versions(file: IO[str] | None = None, *, as_dict: bool = False) -> dict[str, Any] | None:
    """Print the versions and facts on which results and speed depend, for a report of a problem.

    Trueno's distributions and their origin, NumPy, Numba, CuPy and others, the CUDA driver, the CPU, the system, and
    every backend with the reason if it cannot run.  It probes the backends, but loads none.
    file: a text stream; default: stdout.  as_dict: return them as data that JSON can hold, and print nothing.
    """
    facts = _facts()
    if as_dict:
        return facts
    stream = sys.stdout if file is None else file
    for title, rows in facts.items():
        print(
            title, *columns((f"  {name}", str(value or "–")) for name, value in rows.items()), "", sep="\n", file=stream
        )
    return None


def _facts() -> dict[str, Mapping[str, str | int | None]]:
    return {
        "system": {
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "os": platform.platform(),
            "cpu": cpu(),
            "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "CUDA driver": _driver(),
        },
        "distributions": {**_ours(), "installed from": str(origin()), **{name: _version(name) for name in OTHERS}},
        "backends": _backends(),
    }


def _ours() -> Mapping[str, str | None]:
    """The versions of Trueno and of every distribution that brings a backend."""
    entries = registry.entries().values()
    names = ("trueno", *sorted({entry.source[0] for entry in entries if entry.source[0]} - {"trueno"}))
    return {name: _version(name) for name in names}


def _version(name: str) -> str | None:
    """The version of a distribution; None if it is not installed."""
    try:
        return escaped(metadata.version(name))
    except (metadata.PackageNotFoundError, ValueError):
        return None


def _driver() -> str | None:
    """The version of NVIDIA's driver as its kernel module states it; None without one, or where no file says so."""
    try:
        with open(DRIVER, encoding="utf-8", errors="replace") as file:
            words = file.readline().split()
    except OSError:
        return None
    return next((escaped(word) for word in words if word[0].isdigit() and "." in word), None)


def _backends() -> dict[str, str]:
    """For each backend its devices, or its reason and code."""
    answers = {}
    entries = registry.entries().values()
    for entry in entries:
        entry.start_probe()  # side by side
    for entry in entries:
        if entry.available:
            devices = ", ".join(f"{device.name} {device.isa}".strip() for device in entry.devices)
            answers[entry.name] = f"available: {devices}" if devices else "available"
        else:
            answers[entry.name] = f"{entry.reason} ({entry.code})"
    return answers
