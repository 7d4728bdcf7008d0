"""Launches of `control.cu`."""

import math
from itertools import pairwise

import numpy as np

from .launches import Work, floats, ints, launch, zeros


@launch(1, 32)
def empty(rng):
    return Work([])


@launch(2, 64)
def operate(rng):
    op, x, y = ints(rng, 0, 12, 100), ints(rng, -999, 999, 100), ints(rng, 0, 40, 100)
    ones = np.array([bin(int(v) & 0xFFFFFFFF).count("1") for v in x])
    shifted = (x.astype(np.int64) << (y & 31)).astype(np.uint64).astype(np.uint32).view(np.int32)
    results = [x + y, x - y, x * y, x & y, x | y, x ^ y, np.minimum(x, y), np.maximum(x, y), shifted, ones + y]
    return Work([op, x, y, np.zeros_like(x), 100], {3: np.choose(np.minimum(op, 10), [*results, np.full(100, -1)])})


@launch(1, 64)
def greatest(rng):
    x, y = ints(rng, 1, 9999, 2, 64)
    return Work([x, y, np.zeros_like(x)], {2: np.gcd(x, y)})


@launch(1, 32)
def either_memory(rng):
    x = floats(rng, 32)
    want = np.where(np.arange(32) % 2, 2, 1) * x.astype(np.float64).sum()
    return Work([x, np.zeros_like(x), 32], {1: want}, rtol=1e-4, atol=1e-4)


@launch(1, 32)
def print_first(rng):
    return Work([ints(rng, 0, 99, 30), 30])


@launch(1, 64)
def collatz(rng):
    x = ints(rng, 1, 300, 60)

    def steps(v):
        count = 0
        while v != 1:
            v, count = (3 * v + 1 if v % 2 else v // 2), count + 1
        return count

    return Work([x, np.zeros_like(x), 60], {1: np.array([steps(v) for v in x.tolist()])})


@launch(1, 32)
def trap_on_zero(rng):
    x = ints(rng, 1, 99, 32)
    return Work([x, np.zeros_like(x)], {1: 1000 // x})


@launch(1, 64)
def count_digits(rng):
    x = ints(rng, 0, 2**31 - 1, 64)
    want = [int(np.argmax(np.bincount([int(d) for d in str(v)], minlength=10))) for v in x.tolist()]
    return Work([x, np.zeros_like(x)], {1: np.array(want)})


@launch(2, 64)
def distances(rng):
    x = floats(rng, 100, 3)
    plane = np.array([1.5, -2.0, 0.5, 3.0], np.float32)
    packed = plane.tobytes() + (1).to_bytes(4, "little")
    return Work([packed, x, zeros(100), 100], {2: x.astype(np.float64) @ plane[:3] + 3}, rtol=1e-5, atol=1e-5)


@launch(2, 64)
def look_up(rng):
    x = ints(rng, 0, 999, 100)
    table = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3])
    return Work([x, np.zeros_like(x), 100], {1: table[x & 15]})


@launch(1, 64)
def add_bias(rng):
    x = ints(rng, 0, 999, 64)
    return Work([x, np.zeros_like(x)], {1: x + np.tile([10, 20, 30, 40], 16)})


@launch(2, 64)
def primes(rng):
    want = [n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1)) for n in range(100)]
    return Work([zeros(100, dtype=np.int32), 100], {0: np.array(want)})


@launch(2, 64)
def lower_bound(rng):
    row, x = np.sort(ints(rng, 0, 99, 40)), ints(rng, -5, 110, 100)
    return Work([row, 40, x, np.zeros_like(x), 100], {3: np.searchsorted(row, x)})


@launch((2, 3), 32)
def mandelbrot(rng):
    return Work([zeros(3, 40, dtype=np.int32), 40, 25])


@launch(1, 32)
def sum_of_rows(rng):
    starts = np.concatenate([[0], np.cumsum(rng.integers(0, 9, 20))]).astype(np.int32)
    values = floats(rng, int(starts[-1]) + 1)
    want = [values[a:b].sum(dtype=np.float64) for a, b in pairwise(starts)]
    return Work([starts, values, zeros(20), 20], {2: np.array(want)}, rtol=1e-4, atol=1e-5)
