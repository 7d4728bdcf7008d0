"""The processor, as the system describes it: one reader of /proc/cpuinfo."""

from functools import cache

CPUINFO = "/proc/cpuinfo"
NAMES = ("model name", "cpu model", "Model")
"""Keys under which the name may stand."""
FIRST = 16384
"""Bytes that hold the first CPU; the rest are like it."""


def cpu_facts() -> dict[str, str]:
    """What the system says of the first CPU; empty where it has no such file."""
    return _facts(_read(FIRST).partition("\n\n")[0])


@cache
def cpu() -> str:
    """The processor's name."""
    for facts in map(_facts, (_read(FIRST), _read())):  # a small ARM board says its name behind all CPUs
        for key in NAMES:
            if key in facts:
                return facts[key]
    import platform

    return platform.processor() or platform.machine()


def _read(size: int = -1) -> str:
    try:
        with open(CPUINFO, "rb", buffering=0) as file:
            return file.read(size).decode("utf-8", "replace")
    except OSError:
        return ""


def _facts(text: str) -> dict[str, str]:
    """Of `key : value` lines; of one key, the first that has a value."""
    facts: dict[str, str] = {}
    for line in text.splitlines():
        key, value = (word.strip() for word in line.partition(":")[::2])
        if value:
            facts.setdefault(key, value)
    return facts
