"""ptxas, which judges every kernel that the tests build; it needs no GPU."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache

import pytest
from trueno_cuda.ptx import Kernel


@dataclass(frozen=True)
class Report:
    """What ptxas says of a kernel it accepted."""

    registers: int
    spilled: int


@cache
def ptxas() -> str:
    program = shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin")
    if program is None:
        pytest.skip("ptxas is not installed: pip install nvidia-cuda-nvcc, or a CUDA toolkit")
    return program


def run(text: str, arch: str) -> tuple[bool, str]:
    """Whether ptxas takes `text`, and its messages."""
    command = [ptxas(), "-v", "-arch", arch, "-o", "/dev/null", "/dev/stdin"]
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
    return done.returncode == 0, done.stderr


def assembled(kernel: Kernel) -> Report:
    """The kernel's report; AssertionError with ptxas' words and the text where it is refused."""
    good, log = run(kernel.text, kernel.arch)
    numbered = "\n".join(f"{i:4} {line}" for i, line in enumerate(kernel.text.splitlines(), 1))
    assert good, f"{log}\n{numbered}"
    assert "warning" not in log.lower(), log
    used = re.search(r"Used (\d+) registers", log)
    spilled = re.findall(r"(\d+) bytes spill", log)
    assert used is not None, log
    return Report(int(used[1]), sum(map(int, spilled)))
