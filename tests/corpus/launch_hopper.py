"""Launches of `hopper.cu`."""

import numpy as np

from .launches import Work, floats, ints, launch, zeros


def fp8(rng, *shape):
    """Small whole numbers in e4m3, and as floats: both exact."""
    values = rng.integers(-3, 4, shape)
    bits = np.select([values == 0, abs(values) == 1, abs(values) == 2], [0, 0x38, 0x40], 0x44)
    return (bits | (values < 0) * 0x80).astype(np.uint8), values


@launch(1, 128)
def bulk_copy(rng):
    x = floats(rng, 5, 128)
    return Work([x, np.zeros_like(x), 5], {1: x[:, ::-1]})


@launch(2, 64)
def bulk_in_and_out(rng):
    x = ints(rng, 0, 999, 2, 64)
    return Work([x, np.zeros_like(x)], {1: x[:, ::-1] + 1})


@launch(1, 96)
def bulk_pipeline(rng):
    x = ints(rng, 0, 999, 5, 64)
    return Work([x, np.zeros_like(x), 5], {1: x[:, ::-1]})


@launch(1, 128)
def wgmma_steps(rng):
    a, b = rng.standard_normal((64, 32)).astype(np.float16), rng.standard_normal((8, 32)).astype(np.float16)
    return Work([a, b, zeros(64, 8)], {2: a.astype(np.float64) @ b.T.astype(np.float64)}, rtol=1e-4, atol=1e-4)


@launch(1, 128)
def wgmma_tile(rng):
    a, b = rng.standard_normal((64, 16)).astype(np.float16), rng.standard_normal((8, 16)).astype(np.float16)
    return Work([a, b, zeros(64, 8)], {2: a.astype(np.float64) @ b.T.astype(np.float64)}, rtol=1e-4, atol=1e-4)


@launch(4, 64, cluster=2)
def swap_in_cluster(rng):
    x = ints(rng, 0, 999, 2, 2, 64)
    return Work([x, np.zeros_like(x)], {1: x[:, ::-1]})


@launch(1, 32)
def mma_fp8(rng):
    (a, wide), (b, other) = fp8(rng, 16, 32), fp8(rng, 8, 32)
    return Work([a, b, zeros(16, 8)], {2: wide @ other.T})


@launch(2, 64)
def to_fp8(rng):
    bits, values = fp8(rng, 100, 2)
    return Work([values.astype(np.float32), np.zeros(100, np.uint16), 100], {1: bits.view(np.uint16)[:, 0]})


@launch(2, 64)
def dependent(rng):
    x = floats(rng, 100)
    return Work([x, np.zeros_like(x), 100], {1: x + 1})
