"""Launches of `reductions.cu`."""

import numpy as np

from .launches import Work, floats, ints, launch, zeros


@launch(4, 256)
def sum_tree(rng):
    x = floats(rng, 5000)
    padded = np.zeros((-(-5000 // 1024), 4, 256))
    padded.ravel()[:5000] = x
    return Work([x, zeros(4), 5000], {1: padded.sum((0, 2))}, rtol=1e-4, atol=1e-3)


@launch(3, 128)
def sum_interleaved(rng):
    x = ints(rng, -99, 99, 3, 128)
    return Work([x, zeros(3, dtype=np.int32)], {1: x.sum(1)})


@launch(1, 128)
def sum_shuffle(rng):
    x = floats(rng, 1000)
    return Work([x, zeros(1), 1000], {1: x.sum(dtype=np.float64)}, rtol=1e-4, atol=1e-3)


@launch(2, 128)
def max_of_rows(rng):
    x = floats(rng, 7, 70)
    return Work([x, zeros(7), 7, 70], {1: x.max(1)})


@launch(1, 64)
def argmin_block(rng):
    x = ints(rng, 0, 100, 500)
    return Work([x, zeros(1, dtype=np.int32), zeros(1, dtype=np.int32), 500], {1: x.min(), 2: x.argmin()})


@launch(3, 64)
def dot_atomic(rng):
    x, y = floats(rng, 2, 700)
    return Work([x, y, zeros(1), 700], {2: np.dot(x.astype(np.float64), y)}, rtol=1e-3, atol=1e-3)


@launch(5, 128)
def sum_last_block(rng):
    x = ints(rng, -99, 99, 3000)
    return Work([x, zeros(5, dtype=np.int32), zeros(1, dtype=np.int32), 3000], {2: x.sum()})


@launch(4, 64)
def any_negative(rng):
    x = ints(rng, -1, 60, 240)
    rows = np.zeros(256, bool)
    rows[:240] = x < 0
    return Work([x, zeros(4, dtype=np.int32), 240], {1: rows.reshape(4, 64).any(1)})


@launch(4, 64)
def count_odd(rng):
    x = ints(rng, 0, 60, 240)
    rows = np.zeros(256, bool)
    rows[:240] = x & 1
    return Work([x, zeros(4, dtype=np.int32), 240], {1: rows.reshape(4, 64).sum(1)})


@launch(1, 32)
def moments(rng):
    x = floats(rng, 333)
    wide = x.astype(np.float64)
    return Work([x, zeros(1), zeros(1), 333], {1: wide.mean(), 2: wide.var()}, rtol=1e-4, atol=1e-5)
