"""Correct kernels that look wrong: the files of `traps/`, and how they are launched.

A file begins with three comments.  `// why:` says why the kernel is right.  `// silent:` names the rules of an analyzer
that it is meant for; a finding of one of them, or of high severity, is a false alarm.  `// launch:` is for the
emulator: `grid 2 block 64 shared 0 cluster 2 args …`, where an argument is a number, an array as `u32[128]` of small
random numbers, `zeros:u32[1]`, `ones:u32[32]`, or a struct of random bytes, `bytes:24`.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from .launches import Launch, Work
from .statements import entries

FOLDER = Path(__file__).with_name("traps")


@dataclass(frozen=True)
class Trap:
    """silent: the rules that it is meant for."""

    name: str
    why: str
    silent: tuple[str, ...]
    text: str
    launch: Launch


@cache
def traps() -> list[Trap]:
    return [_read(path) for path in sorted(FOLDER.glob("*.ptx"))]


def _read(path: Path) -> Trap:
    text = path.read_text("ascii")
    head = re.match(r"(?://[^\n]*\n)+", text)
    words = re.sub(r"\s+", " ", re.sub(r"^//", "", head[0] if head else "", flags=re.M)).strip()
    match = re.fullmatch(r"why: (.+) silent: (.+) launch: (.+)", words)
    if match is None:
        raise ValueError(f"{path.name}: it must begin with // why: … // silent: … // launch: …")
    return Trap(path.stem, match[1], tuple(match[2].split(", ")), text, launch_of(entries(text)[0].name, match[3]))


def launch_of(entry: str, words: str) -> Launch:
    """`grid 2 block 64 shared 0 cluster 2 args …` for an entry."""
    sizes, _, rest = words.partition("args")
    pairs = dict(re.findall(r"(\w+) ([\d,]+)", sizes))
    numbers = {name: tuple(int(n) for n in value.split(",")) for name, value in pairs.items()}
    cluster = numbers.get("cluster")

    def make(rng: np.random.Generator) -> Work:
        return Work([_argument(word, rng) for word in rest.split()])

    return Launch(entry, numbers["grid"], numbers["block"], make, numbers.get("shared", (0,))[0], cluster)


def _argument(word: str, rng: np.random.Generator) -> Any:
    match = re.fullmatch(r"(?:(zeros|ones|bytes):)?(?:([uf])(\d+)\[(\d+)\]|(\d+))", word)
    if match is None:
        raise ValueError(f"an argument cannot be {word!r}")
    fill, kind, bits, count, number = match.groups()
    if fill == "bytes":
        return rng.integers(0, 9, int(number)).astype(np.uint8).tobytes()
    if number is not None:
        return int(number)
    dtype = np.dtype(f"{kind}{int(bits) // 8}")
    values = {"zeros": np.zeros, "ones": np.ones}.get(fill, lambda n: rng.integers(0, 100, n))(int(count))
    return values.astype(dtype)
