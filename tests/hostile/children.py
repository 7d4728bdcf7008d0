"""Programs in child processes: what they compute with, and what they must say at the end."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .driver import environment

SOUND = '''
import os, signal, sys, time, warnings
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job ignores
import numpy as np
import trueno

X = (np.arange(1, 34) / 8).astype("f4")
LONG = (np.arange(150_001) % 251).astype("f4")
A = (np.arange(37 * 41) % 13 - 6).astype("f4").reshape(37, 41)

def near(what, got, want, ulps=200):
    """Within so many last places: enough to tell a kernel from one that has been tampered with."""
    want = np.asarray(want, np.longdouble)
    wrong = ~(np.abs(np.asarray(got, np.longdouble) - want) <= ulps * 2.0**-24 * np.maximum(np.abs(want), 1e-30))
    assert not wrong.any(), f"{what}: {np.asarray(got)[wrong][:3]}, not {want[wrong][:3]}"

def soft(x):
    e = np.exp(x.astype(np.longdouble) - x.max())
    return e / e.sum()

CHECKS = {
    "add": lambda: near("add", trueno.add(X, X), 2 * X, 0),
    "exp": lambda: near("exp", trueno.exp(X), np.exp(X.astype(np.longdouble))),
    "softmax": lambda: near("softmax", trueno.softmax(X), soft(X)),
    "long softmax": lambda: near("long softmax", trueno.softmax(LONG / 16), soft(LONG / 16), 2000),
    "sum": lambda: near("sum", trueno.sum(LONG[:60_000]), LONG[:60_000].sum(dtype="f8"), 0),
    "argmax": lambda: near("argmax", trueno.argmax(LONG), 250, 0),
    "matmul": lambda: near("matmul", trueno.matmul(A, A.T.copy()), A.astype("f8") @ A.T.astype("f8"), 0),
    "layer_norm": lambda: near("layer_norm", trueno.layer_norm(X, np.ones_like(X), np.zeros_like(X), eps=0.0),
                               (X - X.mean(dtype="f8")) / X.std(dtype="f8"), 20_000),
    "float64": lambda: near("float64", trueno.tanh(X.astype("f8")), np.tanh(X.astype(np.longdouble)), 1e-5),
}

def sound(names=tuple(CHECKS)):
    for name in names:
        CHECKS[name]()
'''
"""The start of every program: `sound()` computes what is known beforehand and asserts it."""
CHECKS = ("add", "exp", "softmax", "long softmax", "sum", "argmax", "matmul", "layer_norm", "float64")
SAID = "all is sound"


@dataclass
class Ended:
    """A process that ended."""

    code: int
    out: str
    err: str

    def must_be_sound(self, what: str) -> None:
        """Assert that it ended by itself and said so."""
        assert self.code == 0 and SAID in self.out, f"{what}: {self}"

    def __str__(self) -> str:
        code = f"signal {signal.Signals(-self.code).name}" if self.code < 0 else f"exit code {self.code}"
        return f"{code}\n{self.out[-500:]}\n{self.err[-1500:]}"


def start(text: str, cache: Path, *given: str, **variables: str) -> "subprocess.Popen[str]":
    """Begin a program after SOUND; `given` are its arguments."""
    return subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", SOUND + text, *given],
        env=environment(TRUENO_CACHE_DIR=str(cache), **variables), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, errors="replace",
    )  # fmt: skip


def finish(child: "subprocess.Popen[str]", seconds: float = 100) -> Ended:
    try:
        out, err = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGABRT)  # faulthandler says where
        try:
            out, err = child.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            child.kill()
            out, err = child.communicate()
        return Ended(-signal.SIGABRT, out, f"it hangs\n{err}")
    return Ended(child.returncode, out, err)


def run(text: str, cache: Path, *given: str, seconds: float = 100, **variables: str) -> Ended:
    return finish(start(text, cache, *given, **variables), seconds)


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for the user alone, gone afterwards whatever was made of it."""
    path = Path(tempfile.mkdtemp(prefix="trueno-hostile-"))
    try:
        yield path
    finally:
        for inside in path.rglob("*"):
            if inside.is_dir() and not inside.is_symlink():
                os.chmod(inside, 0o700)
        shutil.rmtree(path, ignore_errors=True)
