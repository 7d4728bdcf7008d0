"""Correct kernels that Triton, Numba and tinygrad printed: the files of `foreign/`, and how they are launched.

A file begins with two comments: who printed it, and a launch in the words of a trap (`traps`).  `producers` has the
kernels in those languages, and prints the files again.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from .launches import Launch, Work
from .origins import Origin
from .results import RESULTS
from .statements import entries
from .traps import launch_of

FOLDER = Path(__file__).with_name("foreign")
HEAD = re.compile(r"// by: (?P<by>[^\n]+)\n// launch: (?P<launch>[^\n]+)\n")


@dataclass(frozen=True)
class Foreign:
    """name: `triton/softmax_rows-sm_80`.  by: the producer and its version.  kernel: `softmax_rows`."""

    name: str
    by: str
    text: str
    launch: Launch

    @property
    def kernel(self) -> str:
        return re.sub(r"\d*(-sm_\d+\w?)?$", "", self.name.partition("/")[2])

    @property
    def origin(self) -> Origin:
        return Origin(self.name, self.text, self.launch.entry, self.launch)


@cache
def foreign() -> list[Foreign]:
    return [_read(path) for path in sorted(FOLDER.glob("*/*.ptx"))]


def producers() -> list[str]:
    return sorted(path.name for path in FOLDER.iterdir())


def foreign_origins(arch: str = "") -> Iterator[Origin]:
    """The kernels that mutants are made from."""
    return (one.origin for one in foreign() if arch in one.name)


def _read(path: Path) -> Foreign:
    text = path.read_text("ascii")
    head = HEAD.match(text)
    if head is None:
        raise ValueError(f"{path.name}: it must begin with // by: … and // launch: …")
    (entry,) = entries(text)
    name = f"{path.parent.name}/{path.stem}"
    one = Foreign(name, head["by"], text, launch_of(entry.name, head["launch"]))
    first = path.parent.name == "tinygrad"  # it passes the result ahead of the operands
    result = RESULTS.get((path.parent.name, one.kernel)) or (None if first else RESULTS.get(("", one.kernel)))
    if result is None:
        return one
    make = one.launch.make

    def checked(rng: np.random.Generator) -> Work:
        work = make(rng)
        arrays = [at for at, arg in enumerate(work.args) if isinstance(arg, np.ndarray)]
        want = np.asarray(result(*(work.args[at].copy() for at in arrays)))
        place = arrays[0 if first else -1]
        return Work(work.args, {place: want.reshape(work.args[place].shape)}, 2e-3, 2e-3)

    return replace(one, launch=replace(one.launch, make=checked))
