"""Registers and spills as ptxas assigns them, where it is installed: the text alone has virtual registers."""

import re
import shutil
import subprocess
from functools import cache
from typing import NamedTuple

LIMIT = 120
"""Seconds."""


class Assembled(NamedTuple):
    """Of one entry.  spills: bytes stored and loaded."""

    registers: int
    spill_stores: int
    spill_loads: int
    shared: int


@cache
def ptxas() -> str | None:
    return shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin")


def assembled(text: str, arch: str) -> tuple[dict[str, Assembled], str]:
    """What ptxas reports of each entry, and why it reports nothing: not installed, or its first error."""
    program = ptxas()
    if program is None:
        return {}, "ptxas is not installed"
    command = [program, "-v", "-arch", arch, "-o", "/dev/null", "/dev/stdin"]
    try:
        done = subprocess.run(command, input=text, text=True, capture_output=True, check=False, timeout=LIMIT)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {}, f"ptxas: {error}"
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line.lower() or "fatal" in line.lower()]
        return {}, _refused((lines or ["ptxas failed"])[0].strip())
    result: dict[str, Assembled] = {}
    for part in re.split(r"Compiling entry function ", done.stderr)[1:]:
        name = re.match(r"'([^']+)'", part)
        used = re.search(r"Used (\d+) registers", part)
        spilled = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", part)
        shared = re.search(r"(\d+) bytes smem", part)
        if name and used:
            stores, loads = (int(spilled[1]), int(spilled[2])) if spilled else (0, 0)
            result[name[1]] = Assembled(int(used[1]), stores, loads, int(shared[1]) if shared else 0)
    return result, ""


def _refused(error: str) -> str:
    """`ptxas /dev/stdin, line 40; error   : …` as a sentence."""
    match = re.match(r"ptxas (?:/dev/stdin, line (\d+); )?(?:error|fatal)\s*: (.*)", error)
    if match is None:
        return f"ptxas does not accept this text: {error}"
    place = f"line {match[1]}: " if match[1] else ""
    return f"ptxas does not accept this text: {place}{match[2]}"
