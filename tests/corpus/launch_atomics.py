"""Launches of `atomics.cu`."""

import numpy as np

from .launches import Work, floats, ints, launch, zeros


@launch(2, 256)
def histogram_shared(rng):
    x = rng.integers(0, 256, 1500).astype(np.uint8)
    return Work([x, zeros(256, dtype=np.int32), 1500], {1: np.bincount(x, minlength=256)})


@launch(4, 128)
def histogram_global(rng):
    x = rng.integers(0, 256, 500).astype(np.uint8)
    return Work([x, zeros(256, dtype=np.int32), 500], {1: np.bincount(x, minlength=256)})


@launch(1, 128)
def histogram_warps(rng):
    x = ints(rng, 0, 999, 700)
    return Work([x, zeros(16, dtype=np.int32), 700], {1: np.bincount(x & 15, minlength=16)})


@launch(2, 64)
def max_by_cas(rng):
    x = np.abs(floats(rng, 100))
    return Work([x, zeros(1), 100], {1: x.max()})


@launch(2, 64)
def tickets(rng):
    return Work([np.full(128, -1, np.int32), zeros(1, dtype=np.int32)], {1: np.array(128)})


@launch(2, 64)
def set_bits(rng):
    x = ints(rng, 0, 256, 100)
    bits = np.zeros(256, bool)
    bits[x] = True
    return Work([x, zeros(8, dtype=np.uint32), 100], {1: np.packbits(bits, bitorder="little").view(np.uint32)})


@launch(6, 32)
def locked_add(rng):
    one = np.int32
    return Work([zeros(1, dtype=one), zeros(1, dtype=one), zeros(1, dtype=one)], {1: np.array(6), 2: np.array(0)})


@launch(4, 32)
def wait_for_flag(rng):
    one = np.int32
    return Work([zeros(1, dtype=one), zeros(1, dtype=one), zeros(4, dtype=one)], {2: np.full(4, 42)})


@launch(1, 64)
def add_doubles(rng):
    x = rng.standard_normal(200)
    return Work([x, zeros(1, dtype=np.float64), 200], {1: x.sum()}, rtol=1e-9, atol=1e-9)


@launch(1, 64)
def min_max(rng):
    x = ints(rng, -999, 999, 200)
    return Work([x, zeros(1, dtype=np.int32), zeros(1, dtype=np.int32), 200], {1: x.min(), 2: x.max()})
