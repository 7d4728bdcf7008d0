"""The correct kernels: CUDA C, compiled by nvcc for several architectures and options.

What nvcc makes of a file is kept in the folder for temporary files, under a hash of source, options and compiler.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).with_name("cuda")
COMPILED = Path(__file__).with_name("compiled")
ARCHES = ("sm_75", "sm_80", "sm_90a", "sm_100")
OPTIONS = {
    "plain": (),
    "lineinfo": ("-lineinfo",),
    "debug": ("-G",),
    "fast": ("-use_fast_math",),
    "separate": ("-rdc=true", "-fmad=false"),
}
"""By the name that the tables use."""
KEPT = ("ampere", "barriers", "hopper", "scans", "warps")
"""The files of which the repository has a build, for machines without nvcc."""
LONGEST = 300  # seconds of one compilation


class Build(NamedTuple):
    """One compilation of a file: the file's stem, an architecture, a name of OPTIONS."""

    source: str
    arch: str
    options: str

    def __str__(self) -> str:
        return f"{self.source}-{self.arch}-{self.options}"


def names() -> list[str]:
    """The files' stems."""
    return sorted(path.stem for path in FOLDER.glob("*.cu"))


def least(source: str) -> str:
    """The oldest architecture that a file is for: its first line says it, `// from sm_80: …`."""
    first = FOLDER.joinpath(f"{source}.cu").read_text("utf-8").partition("\n")[0]
    match = re.match(r"// from (sm_\w+)", first)
    return match[1] if match else ARCHES[0]


def builds() -> list[Build]:
    """Every file for every architecture that it is for, with every set of options."""
    return [
        Build(source, arch, options)
        for source in names()
        for arch in ARCHES[ARCHES.index(least(source)) :]
        for options in OPTIONS
    ]


@cache
def compiler() -> str | None:
    """nvcc, if it is installed."""
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


@cache
def _version() -> str:
    command = compiler()
    assert command is not None
    return subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout


def compiled(build: Build) -> str:
    """The PTX of a build; raises RuntimeError with nvcc's words where it does not compile."""
    command = compiler()
    if command is None:
        raise RuntimeError("nvcc is not installed")
    source = FOLDER / f"{build.source}.cu"
    options = [f"-arch={build.arch}", *OPTIONS[build.options]]
    key = hashlib.sha256("\0".join([_version(), *options, source.read_text("utf-8")]).encode()).hexdigest()[:24]
    folder = Path(tempfile.gettempdir()) / f"trueno-corpus-{os.getuid()}"
    kept = folder / f"{build}-{key}.ptx"
    if not kept.exists():
        folder.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as own:
            target = Path(own) / "kernels.ptx"
            done = subprocess.run(
                [command, "-ptx", "-std=c++17", *options, "-o", str(target), str(source)],
                capture_output=True, text=True, timeout=LONGEST, check=False,
            )  # fmt: skip
            if done.returncode:
                raise RuntimeError(f"{build}: {done.stderr or done.stdout}")
            target.replace(kept)
    return kept.read_text("utf-8")


def committed() -> Iterator[tuple[str, str]]:
    """The stems and texts that are in the repository: a build of each file of KEPT, without the compiler's comments."""
    for path in sorted(COMPILED.glob("*.ptx")):
        yield path.stem, path.read_text("utf-8")


def write_committed() -> list[Path]:
    """Compile `compiled/` again; nvcc's version decides what it holds, so no test compares it."""
    COMPILED.mkdir(exist_ok=True)
    written = []
    for source in KEPT:
        arch = {"sm_75": "sm_80"}.get(least(source), least(source))
        text = compiled(Build(source, arch, "plain"))
        path = COMPILED / f"{source}.ptx"
        path.write_text(re.sub(r"^\s*//.*\n", "", text, flags=re.M).strip() + "\n", "utf-8")
        written.append(path)
    return written
