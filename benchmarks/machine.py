"""What the figures were measured on, and whether it was busy with something else."""

import os
import platform
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import trueno
from trueno.machine import cpu

PACKAGES = (
    "trueno", "trueno-scalar", "trueno-simd", "numpy", "scipy", "torch", "numba", "llvmlite",
    "llama-cpp-python", "gguf",
)  # fmt: skip


def cores() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def named() -> str:
    """The CPU's name, which virtual machines blur, and its widest vectors where these are not AVX-512's."""
    isa = trueno.select_best_available_backend().isa
    return cpu() if isa in (None, "avx512") else f"{cpu()} with {isa.upper()}"


def load() -> float | None:
    """Runnable processes, averaged over a minute."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def _jiffies() -> tuple[float, float] | None:
    """Seconds of all CPUs together that something ran, and that were stolen by other guests of the host."""
    try:
        fields = [int(f) for f in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return None
    tick = os.sysconf("SC_CLK_TCK")
    user, nice, system, _, _, irq, soft, steal = fields
    return (user + nice + system + irq + soft) / tick, steal / tick


def _own() -> float:
    t = os.times()
    return t.user + t.system + t.children_user + t.children_system


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


class Watch:
    """Facts at the start; `finish()` adds how busy the machine was with others meanwhile."""

    def __init__(self, threads: int) -> None:
        self.facts: dict[str, Any] = {
            "date": time.strftime("%Y-%m-%d %H:%M"),
            "cpu": named(),
            "cores": cores(),
            "threads": threads,
            "platform": platform.platform(),
            "python": platform.python_version(),
            "versions": {name: v for name in PACKAGES if (v := _version(name))},
            "load at start": load(),
        }
        self._start = time.perf_counter(), _jiffies(), _own()

    def finish(self) -> dict[str, Any]:
        start, jiffies, own = self._start
        wall, now = time.perf_counter() - start, _jiffies()
        self.facts["load at end"] = load()
        self.facts["seconds"] = round(wall, 1)
        if jiffies and now and wall > 0:
            others = max(now[0] - jiffies[0] - (_own() - own), 0.0) / wall
            self.facts["CPUs kept busy by others"] = round(others, 2)
            self.facts["CPUs stolen by the host"] = round((now[1] - jiffies[1]) / wall, 2)
        return self.facts

    def warnings(self) -> list[str]:
        """Sentences on what makes the figures doubtful."""
        warnings, facts = [], self.facts
        at_start = facts["load at start"]
        if at_start is not None and at_start > 0.3 * facts["cores"]:
            warnings.append(f"the load average was {at_start} at the start: something else was running")
        others, stolen = facts.get("CPUs kept busy by others", 0.0), facts.get("CPUs stolen by the host", 0.0)
        if others > 0.15:
            warnings.append(f"other processes kept {others} CPUs busy meanwhile: the figures mean little")
        if stolen > 0.1:
            warnings.append(f"the host gave {stolen} of our CPUs to other guests")
        if sys.flags.dev_mode or sys.gettrace() is not None:
            warnings.append("Python runs in development mode or under a tracer")
        return warnings
