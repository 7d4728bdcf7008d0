"""Registers and spills as ptxas or nvJitLink assigns them, where one is installed.

The text alone has virtual registers.  ptxas is asked first: nvJitLink compiles for linking, and gives some texts other
registers.
"""

import re
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from trueno_cuda.ptx.analyze import linked

LIMIT = 120
"""Seconds."""
PTXAS, LINKER = "ptxas", "nvJitLink"
PROGRAMS = ("nvidia/*/bin/ptxas", "nvidia/*/bin/ptxas.exe", "triton/backends/nvidia/bin/ptxas")
LIBRARIES = ("nvidia/*/lib/libnvJitLink.so.1[3-9]", "nvidia/*/bin/x86_64/nvJitLink_1[3-9]*.dll")
"""Where packages for Python have them: nvidia-cuda-nvcc, Triton, nvidia-nvjitlink."""


class Assembled(NamedTuple):
    """Of one entry.  spills: bytes stored and loaded.  by: who says so."""

    registers: int
    spill_stores: int
    spill_loads: int
    shared: int
    by: str = PTXAS


def packaged(*patterns: str) -> str | None:
    """A file of a package for Python, of the newest if there are several."""
    for pattern in patterns:
        package, _, inside = pattern.partition("/")
        spec = find_spec(package)
        folders = (spec.submodule_search_locations or ()) if spec else ()
        if found := sorted(path for folder in folders for path in Path(folder).glob(inside)):
            return str(found[-1])
    return None


@cache
def ptxas() -> str | None:
    usual = shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin")
    return usual or packaged(*PROGRAMS)


@cache
def linker() -> str | None:
    return packaged(*LIBRARIES)


def assembled(text: str, arch: str) -> tuple[dict[str, Assembled], str]:
    """What ptxas, or else nvJitLink, reports of each entry, and why there is no report: not installed, or an error."""
    program, library = ptxas(), linker()
    if program is not None:
        by, command = PTXAS, [program, "-v", "-arch", arch, "-o", "/dev/null", "/dev/stdin"]
    elif library is not None:
        by, command = LINKER, [sys.executable, "-I", str(linked.__file__), library, arch]
    else:
        return {}, "ptxas is not installed"
    try:
        done = subprocess.run(command, input=text, text=True, capture_output=True, check=False, timeout=LIMIT)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {}, f"{by}: {error}"
    log = done.stdout + done.stderr
    if done.returncode:
        lines = [line for line in log.splitlines() if "error" in line.lower() or "fatal" in line.lower()]
        return {}, _refused(by, (lines or ["it failed"])[0].strip())
    result: dict[str, Assembled] = {}
    for part in re.split(r"Compiling entry function ", log)[1:]:
        name = re.match(r"'([^']+)'", part)
        used = re.search(r"Used (\d+) registers", part)
        spilled = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", part)
        shared = re.search(r"(\d+) bytes smem", part)
        if name and used:
            stores, loads = (int(spilled[1]), int(spilled[2])) if spilled else (0, 0)
            result[name[1]] = Assembled(int(used[1]), stores, loads, int(shared[1]) if shared else 0, by)
    return result, ""


def _refused(by: str, error: str) -> str:
    """`ptxas /dev/stdin, line 40; error   : …` as a sentence."""
    match = re.match(
        r"(?:ptxas )?(?:(?:/dev/stdin|application ptx input), line (\d+); )?(?:error|fatal)\s*: (.*)", error
    )
    if match is None:
        return f"{by} does not accept this text: {error}"
    place = f"line {match[1]}: " if match[1] else ""
    return f"{by} does not accept this text: {place}{match[2]}"
