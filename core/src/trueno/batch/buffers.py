"""The memory of each result: a buffer is reused once the last kernel that reads it has run.

A kernel never overwrites its own operands, so a failed call can be retried with all of them intact.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from trueno.batch.graph import Value


@dataclass(frozen=True, slots=True)
class Buffers:
    """place: the buffer of every value that a kernel computes.  sizes: elements and dtype of each buffer."""

    place: dict[int, int]
    sizes: tuple[tuple[int, np.dtype[Any]], ...]

    @property
    def nbytes(self) -> int:
        return sum(count * dtype.itemsize for count, dtype in self.sizes)


def assign(values: Sequence[Value], steps: Iterable[tuple[list[int], list[int]]], kept: set[int]) -> Buffers:
    """Buffers for steps, each given as the values that it reads and those that it writes; `kept` ones stay."""
    steps = list(steps)
    last: dict[int, int] = {}
    for at, (reads, makes) in enumerate(steps):
        last |= dict.fromkeys(reads, at) | dict.fromkeys(makes, at)
    free: defaultdict[tuple[int, np.dtype[Any]], list[int]] = defaultdict(list)
    place: dict[int, int] = {}
    sizes: list[tuple[int, np.dtype[Any]]] = []
    for at, (reads, makes) in enumerate(steps):
        for v in makes:
            if values[v].upload >= 0:  # in the memory of an upload
                continue
            size = (prod(values[v].shape), values[v].dtype)
            if free[size]:
                place[v] = free[size].pop()
            else:
                place[v] = len(sizes)
                sizes.append(size)
        for v in dict.fromkeys([*reads, *makes]):
            if last[v] == at and v in place and v not in kept:
                free[sizes[place[v]]].append(place[v])
    return Buffers(place, tuple(sizes))
