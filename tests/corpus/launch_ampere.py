"""Launches of `ampere.cu`."""

import numpy as np

from .launch_types import bfloat16, widened
from .launches import Work, floats, ints, launch, zeros


@launch(1, 32)
def mma_half(rng):
    a, b = rng.standard_normal((16, 16)).astype(np.float16), rng.standard_normal((8, 16)).astype(np.float16)
    return Work([a, b, zeros(16, 8)], {2: a.astype(np.float64) @ b.T.astype(np.float64)}, rtol=1e-4, atol=1e-4)


@launch(1, 32)
def mma_bf16(rng):
    a, b = bfloat16(rng.standard_normal((16, 16))), bfloat16(rng.standard_normal((8, 16)))
    want = widened(a).astype(np.float64) @ widened(b).T
    return Work([a, b, zeros(16, 8)], {2: want}, rtol=1e-4, atol=1e-4)


@launch(1, 32)
def mma_bytes(rng):
    a, b = rng.integers(-128, 128, (16, 32)).astype(np.int8), rng.integers(-128, 128, (8, 32)).astype(np.int8)
    return Work([a, b, zeros(16, 8, dtype=np.int32)], {2: a.astype(int) @ b.T.astype(int)})


@launch(1, 64)
def copy_two_buffers(rng):
    x = floats(rng, 5, 64, 4)
    return Work([x, np.zeros_like(x), 5], {1: x[:, ::-1, ::-1]})


@launch(2, 128)
def copy_once(rng):
    x = floats(rng, 2, 128)
    return Work([x, np.zeros_like(x)], {1: x[:, ::-1]})


@launch(2, 64)
def copy_own(rng):
    x = floats(rng, 100, 2)
    return Work([x, np.zeros_like(x), 100], {1: x[:, ::-1]})


@launch((4, 4), (8, 8))
def matmul_stages(rng):
    a, b = floats(rng, 2, 32, 32)
    return Work([a, b, zeros(32, 32), 32], {2: a.astype(np.float64) @ b}, rtol=1e-4, atol=1e-4)


@launch(3, 32)
def sum_redux(rng):
    x = ints(rng, -99, 99, 3, 32)
    return Work([x, zeros(3, dtype=np.int32)], {1: x.sum(1)})


@launch(1, 64)
def arrive_and_wait(rng):
    x = ints(rng, 0, 999, 64)
    return Work([x, np.zeros_like(x)], {1: x[::-1]})
