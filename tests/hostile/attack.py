"""What an attack is, where attacks are found, and what they count.

A module `attack_NAME.py` has `case(rng, backend, tally)`, which raises what it finds, and may have

    BACKENDS   the backends that it goes over; without it there is one row for all, and `backend` is ""
    SHARE      how much of the time it gets, 1 as a rule
    LIMIT      seconds after which a case counts as hanging

Its docstring's first line says what it does.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np

CPU = ("simd", "scalar", "reference", "cuda_emulated")
"""Backends that compute with the host's arithmetic."""
ALL = (*CPU, "wgpu")
FOLDER = Path(__file__).parent


@dataclass
class Tally:
    """What a case has tried: calls of Trueno, and states (files, graphs, processes, moments) that it put it in."""

    calls: int = 0
    states: int = 0


Case = Callable[[np.random.Generator, str, Tally], None]


@dataclass(frozen=True)
class Attack:
    """One attack as its module declares it."""

    name: str
    about: str
    case: Case
    backends: tuple[str, ...] = ("",)
    share: float = 1.0
    limit: float = 120.0


def names() -> list[str]:
    return sorted(path.stem.removeprefix("attack_") for path in FOLDER.glob("attack_*.py"))


def load(name: str) -> Attack:
    """The attack called `name`, or in a module of that dotted name; ModuleNotFoundError where there is none."""
    module = import_module(name if "." in name else f"{__package__}.attack_{name}")
    return Attack(
        name,
        (module.__doc__ or "").partition("\n")[0],
        module.case,
        getattr(module, "BACKENDS", ("",)),
        getattr(module, "SHARE", 1.0),
        getattr(module, "LIMIT", 120.0),
    )


def generator(seed: int, attack: str, backend: str, number: int) -> np.random.Generator:
    """The random numbers of one case."""
    return np.random.default_rng([seed, zlib.crc32(f"{attack} {backend}".encode()), number])
