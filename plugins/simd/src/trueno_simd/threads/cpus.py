"""The number of CPUs that this process may use, on Linux also which ones, and how to keep a thread off one."""

import ctypes
import math
import os
import sys
from functools import cache
from typing import Any

from trueno_simd.threads.words import GET_CPU, MASK, MASKS, MOST, SET_CPUS, poke


@cache
def cpu_masks() -> Any:
    """For each CPU, the mask of all that we may use except that one (if another is left)."""
    allowed = os.sched_getaffinity(0)
    masks = (ctypes.c_ubyte * (MASK * (max(allowed) + 1)))()
    for cpu in allowed:
        for other in allowed - {cpu} or allowed:
            masks[MASK * cpu + other // 8] |= 1 << other % 8
    return masks


def poke_cpus() -> None:
    """Tell `_part` how to get and set CPUs, on Linux; elsewhere it does nothing."""
    if not hasattr(os, "sched_getaffinity") or sys.byteorder != "little":
        return
    system = ctypes.CDLL(None)
    names = "sched_getcpu", "sched_setaffinity"
    if max(os.sched_getaffinity(0)) < 8 * MASK and all(hasattr(system, name) for name in names):
        poke(MASKS, ctypes.addressof(cpu_masks()))
        for word, name in zip((SET_CPUS, GET_CPU), reversed(names), strict=True):
            poke(word, ctypes.cast(getattr(system, name), ctypes.c_void_p).value or 0)


def usable_cpus() -> int:
    if hasattr(os, "process_cpu_count"):  # 3.13
        cpus = os.process_cpu_count()
    elif hasattr(os, "sched_getaffinity"):
        cpus = len(os.sched_getaffinity(0))
    else:
        cpus = os.cpu_count()
    return max(1, min(cpus or 1, _quota() or MOST + 1, MOST + 1))


def _quota() -> int | None:
    """CPUs that the control group grants (Linux), rounded up; None if it sets no limit."""
    quotas = []
    for line in _read("/proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        while controllers == "" or "cpu" in controllers.split(","):
            if controllers == "":  # version 2: one tree, every ancestor's limit holds
                words = _read(f"/sys/fs/cgroup{path.rstrip('/')}/cpu.max").split()
            else:
                where = f"/sys/fs/cgroup/cpu{path.rstrip('/')}/cpu.cfs_"
                words = [_read(f"{where}quota_us").strip(), _read(f"{where}period_us").strip()]
            if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
                quotas.append(math.ceil(int(words[0]) / int(words[1])))
            if path in ("", "/"):
                break
            path = path.rpartition("/")[0]
    return max(1, min(quotas)) if quotas else None


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""
