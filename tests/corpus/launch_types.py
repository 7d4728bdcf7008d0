"""Launches of `types.cu`."""

import numpy as np

from .launches import Work, floats, ints, launch, zeros


def bfloat16(x):
    """The upper half of the bits, rounded to nearest even."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def widened(x):
    return (x.astype(np.uint32) << 16).view(np.float32)


@launch(2, 64)
def axpy_half2(rng):
    x, y = rng.standard_normal((2, 200)).astype(np.float16)
    return Work([x, y, 0.5, 100], {1: (x.astype(np.float32) * 0.5 + y).astype(np.float16)})


@launch(2, 64)
def scale_bf16(rng):
    x = bfloat16(rng.standard_normal(100))
    return Work([x, np.zeros_like(x), 1.5, 100], {1: bfloat16(widened(x) * np.float32(1.5))})


@launch(2, 64)
def widen_half(rng):
    x = rng.standard_normal(100).astype(np.float16)
    return Work([x, zeros(100), 100], {1: x.astype(np.float32)})


@launch(2, 64)
def hypot64(rng):
    x, y = rng.standard_normal((2, 100))
    return Work([x, y, np.zeros_like(x), 100], {2: np.hypot(x, y)}, rtol=1e-12)


@launch(2, 64)
def multiply_complex(rng):
    x, y = (floats(rng, 100, 2) for _ in range(2))
    want = x.view(np.complex64).astype(np.complex128) * y.view(np.complex64)
    return Work([x, y, np.zeros_like(x), 100], {2: want.view(np.float64)}, rtol=1e-4, atol=1e-5)


@launch(2, 64)
def divide64(rng):
    x, y = rng.integers(0, 2**60, 100), rng.integers(1, 2**40, 100)
    return Work([x, y, np.zeros_like(x), 100], {2: x // y + x % y})


@launch(2, 64)
def average_bytes(rng):
    x, y = rng.integers(0, 256, (2, 100, 4)).astype(np.uint8)
    return Work([x, y, np.zeros_like(x), 100], {2: (x.astype(int) + y + 1) // 2})


@launch(2, 64)
def clamp_shorts(rng):
    x = ints(rng, -5000, 5000, 100)
    return Work([x, zeros(100, dtype=np.int16), 100], {1: np.clip(x, -1000, 1000)})


@launch(2, 64)
def exponentials(rng):
    x = floats(rng, 100)
    wide = x.astype(np.float64)
    return Work([x, zeros(100), 100], {1: np.exp(wide) + np.sin(wide) + 1 / np.sqrt(1 + wide**2)}, rtol=1e-5, atol=1e-5)


@launch(2, 64)
def unpack_nibbles(rng):
    x, scale = rng.integers(0, 256, (3, 16)).astype(np.uint8), rng.standard_normal(3).astype(np.float16)
    digits = np.concatenate([x & 15, x >> 4], 1).astype(np.float32) - 8
    return Work([x, scale, zeros(96), 3], {2: (digits * scale.astype(np.float32)[:, None]).ravel()})


@launch(1, 64, entry="scale_allIf")
def scale_floats(rng):
    x = floats(rng, 100)
    return Work([x, 3.0, 100], {0: x * 3})


@launch(1, 64, entry="scale_allId")
def scale_doubles(rng):
    x = rng.standard_normal(100)
    return Work([x, 3.0, 100], {0: x * 3})


@launch(1, 64, entry="scale_allIi")
def scale_ints(rng):
    x = ints(rng, -99, 99, 100)
    return Work([x, 3, 100], {0: x * 3})


@launch(3, 64, entry="sum_unrolledILi64")
def sum_unrolled_64(rng):
    x = ints(rng, -99, 99, 3, 64)
    return Work([x, zeros(3, dtype=np.int32)], {1: x.sum(1)})


@launch(2, 256, entry="sum_unrolledILi256")
def sum_unrolled_256(rng):
    x = ints(rng, -99, 99, 2, 256)
    return Work([x, zeros(2, dtype=np.int32)], {1: x.sum(1)})
