"""The size of the last cache that this process's CPUs share, as the machine reports it."""

import os
from functools import cache
from pathlib import Path
from typing import Final

DEFAULT: Final = 32 << 20
"""Bytes, where the system reports none (Windows, macOS): a usual size of a desktop's last cache."""
STREAMED: Final = 2.0
"""Bytes that a call reads and writes, in last caches, from which on results bypass them: at 1.4 both ways are level."""
LAST_CACHE: Final = 32 << 20
"""Of a larger last cache this much counts: it is shared with CPUs that this process does not see."""
UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
CPUS: Final = Path("/sys/devices/system/cpu")


@cache
def last_cache() -> int:
    """Bytes of the last cache: of the first CPU that we may use, as Linux lists it, else as C's library says."""
    return _listed() or _configured() or DEFAULT


def uncached(last_cache: int) -> float:
    """Bytes that a call reads and writes from which on results bypass a last cache of so many bytes."""
    return STREAMED * min(last_cache, LAST_CACHE)


def _listed() -> int:
    """From Linux' list; in a virtual machine `sysconf` counts the caches of the whole host."""
    cpu = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    levels = {}
    for index in CPUS.glob(f"cpu{cpu}/cache/index*"):
        try:
            kind, level, size = ((index / name).read_text("ascii").strip() for name in ("type", "level", "size"))
            if kind != "Instruction":
                levels[int(level)] = int(size.rstrip("KMG")) * UNITS.get(size[-1:], 1)
        except (OSError, ValueError):
            continue
    return levels[max(levels)] if levels else 0


def _configured() -> int:
    for level in (3, 2):
        try:
            size = os.sysconf(f"SC_LEVEL{level}_CACHE_SIZE")
        except (AttributeError, OSError, ValueError):
            continue
        if size > 0:
            return size
    return 0
