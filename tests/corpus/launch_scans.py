"""Launches of `scans.cu`."""

import numpy as np

from .launches import Work, floats, ints, launch, zeros


@launch(2, 128)
def scan_two_buffers(rng):
    x = ints(rng, -9, 9, 2, 128)
    return Work([x, np.zeros_like(x)], {1: x.cumsum(1)})


@launch(2, 128)
def scan_tree(rng):
    x = ints(rng, -9, 9, 2, 256)
    return Work([x, np.zeros_like(x)], {1: x.cumsum(1) - x})


@launch(2, 256)
def scan_warps(rng):
    x = ints(rng, -9, 9, 2, 256)
    return Work([x, np.zeros_like(x)], {1: x.cumsum(1)})


@launch(1, 128)
def compact_positive(rng):
    x = ints(rng, -9, 9, 128)
    kept = x[x > 0]
    return Work([x, np.zeros_like(x), zeros(1, dtype=np.int32)],
                {1: np.pad(kept, (0, 128 - len(kept))), 2: len(kept)})  # fmt: skip


@launch(1, 64)
def suffix_max(rng):
    x = floats(rng, 64)
    return Work([x, np.zeros_like(x)], {1: np.maximum.accumulate(x[::-1])[::-1]})
