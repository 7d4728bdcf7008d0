"""Launches of `transposes.cu`."""

import numpy as np

from .launches import Work, floats, ints, launch, zeros


@launch((2, 5), (32, 8))
def transpose_naive(rng):
    x = floats(rng, 37, 50)
    return Work([x, zeros(50, 37), 37, 50], {1: x.T})


@launch((2, 2), (32, 8))
def transpose_padded(rng):
    x = floats(rng, 37, 50)
    return Work([x, zeros(50, 37), 37, 50], {1: x.T})


@launch((2, 2), (32, 8))
def transpose_conflicts(rng):
    x = floats(rng, 37, 50)
    return Work([x, zeros(50, 37), 37, 50], {1: x.T})


@launch((2, 2), (32, 8))
def transpose_swizzled(rng):
    x = floats(rng, 64, 64)
    return Work([x, zeros(64, 64), 64], {1: x.T})


@launch(2, 256)
def reverse_block(rng):
    x = ints(rng, 0, 999, 2, 256)
    return Work([x], {0: x[:, ::-1].copy()})


@launch(2, 64)
def copy_vectors(rng):
    x = floats(rng, 300, 4)
    return Work([x, np.zeros_like(x), 300], {1: x})


@launch(3, 64)
def split_points(rng):
    p = floats(rng, 150, 3)
    return Work([p, zeros(150), zeros(150), zeros(150), 150], {k + 1: p[:, k] for k in range(3)})


@launch(3, 64)
def gather(rng):
    index, x = ints(rng, -5, 90, 150), floats(rng, 80)
    good = (index >= 0) & (index < 80)
    return Work([index, x, zeros(150), 150, 80], {2: np.where(good, x[index * good], 0)})
