"""Launches of `products.cu`."""

import numpy as np

from .launches import Work, floats, launch, zeros


def _square(rng, n):
    a, b = floats(rng, 2, n, n)
    return Work([a, b, zeros(n, n), n], {2: a.astype(np.float64) @ b}, rtol=1e-4, atol=1e-4)


@launch((2, 2), (16, 16))
def matmul_tiled(rng):
    return _square(rng, 32)


@launch((3, 2), (8, 8))
def matmul_ragged(rng):
    a, b = floats(rng, 13, 10), floats(rng, 10, 19)
    return Work([a, b, zeros(13, 19), 13, 19, 10], {2: a.astype(np.float64) @ b}, rtol=1e-4, atol=1e-4)


@launch((1, 1), 64)
def matmul_registers(rng):
    return _square(rng, 32)


@launch((3, 3), (8, 8))
def matmul_two_tiles(rng):
    return _square(rng, 24)


@launch(2, 128)
def gemv_warp(rng):
    a, x = floats(rng, 7, 160), floats(rng, 160)
    return Work([a, x, zeros(7), 7, 40], {2: a.astype(np.float64) @ x}, rtol=1e-4, atol=1e-4)


@launch((3, 4), (16, 4))
def outer(rng):
    x, y = floats(rng, 15), floats(rng, 40)
    return Work([x, y, zeros(15, 40), 15, 40], {2: np.outer(x, y)})


@launch(5, 32)
def dot_bytes(rng):
    a, x = rng.integers(-128, 128, (5, 200)).astype(np.int8), rng.integers(-128, 128, 200).astype(np.int8)
    return Work([a, x, zeros(5, dtype=np.int32), 50], {2: a.astype(np.int64) @ x})


@launch(4, 64, shared=400)
def softmax_rows(rng):
    x = floats(rng, 4, 100)
    e = np.exp(x.astype(np.float64))
    return Work([x, np.zeros_like(x), 100], {1: e / e.sum(1, keepdims=True)}, rtol=1e-4, atol=1e-6)
