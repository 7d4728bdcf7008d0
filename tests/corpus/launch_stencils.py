"""Launches of `stencils.cu`."""

import numpy as np

from .launches import Work, floats, launch, zeros


@launch(3, 128)
def blur3(rng):
    x = floats(rng, 300)
    p = np.pad(x, 1)
    return Work([x, np.zeros_like(x), 300], {1: (p[:-2] + p[1:-1] + p[2:]) / 3}, rtol=1e-5, atol=1e-6)


@launch((2, 3), (32, 8))
def laplace2d(rng):
    x = floats(rng, 21, 50)
    p = np.pad(x, 1)
    want = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * x
    return Work([x, np.zeros_like(x), 21, 50], {1: want}, rtol=1e-4, atol=1e-5)


@launch(1, 64)
def heat_steps(rng):
    x = floats(rng, 64)
    v = x.astype(np.float64)
    for _ in range(3):
        p = np.pad(v, 1, mode="edge")
        v = v + 0.25 * (p[:-2] - 2 * v + p[2:])
    return Work([x, 3], {0: v}, rtol=1e-4, atol=1e-5)


@launch(1, (16, 16))
def cross3d(rng):
    x = floats(rng, 4, 16, 16)
    p = np.pad(x, 1)
    c = slice(1, -1)
    want = p[:-2, c, c] + p[2:, c, c] + p[c, :-2, c] + p[c, 2:, c] + p[c, c, :-2] + p[c, c, 2:] - 6 * x
    return Work([x, np.zeros_like(x), 4], {1: want}, rtol=1e-4, atol=1e-5)


@launch(4, 64)
def blocks_that_leave(rng):
    x = floats(rng, 3, 64)
    return Work([x, np.zeros_like(x), 3], {1: x[:, ::-1]})


@launch(2, 64)
def fir(rng):
    x = floats(rng, 100)
    taps = np.array([1, 2, 3, 4, 5, 4, 3, 2, 1]) / 10
    return Work([x, zeros(100), 100], {1: np.convolve(x, taps, "same")}, rtol=1e-4, atol=1e-5)
