"""Launches of `barriers.cu`."""

import numpy as np

from .launches import Work, floats, ints, launch, zeros


@launch(1, 128)
def two_halves(rng):
    x = ints(rng, 0, 999, 2, 64)
    return Work([x, np.zeros_like(x)], {1: x[:, ::-1]})


@launch(1, 128)
def produce_and_consume(rng):
    x = ints(rng, 0, 999, 64)
    return Work([x, np.zeros_like(x)], {1: x[::-1] * 3})


@launch(1, 64)
def produce_tiles(rng):
    x = ints(rng, 0, 999, 4, 32)
    return Work([x, np.zeros_like(x), 4], {1: x[:, ::-1] + np.arange(4)[:, None]})


@launch(3, 96, shared=384)
def dynamic_reverse(rng):
    x = floats(rng, 3, 96)
    return Work([x, np.zeros_like(x)], {1: x[:, ::-1]})


@launch(1, 64, shared=600)
def dynamic_two(rng):
    x, d = ints(rng, 0, 999, 50), rng.standard_normal(50)
    return Work([x, d, np.zeros_like(x), np.zeros_like(d), 50], {2: np.roll(x, -1), 3: d[::-1]})


@launch(1, 96)
def rounds(rng):
    x = ints(rng, 0, 999, 96)
    return Work([x, np.zeros_like(x), 3], {1: np.roll(x, -3)})


@launch(3, 64)
def even_blocks(rng):
    x = ints(rng, 0, 999, 3, 64)
    want = x.copy()
    want[::2] = x[::2].reshape(2, 32, 2)[:, :, ::-1].reshape(2, 64)
    return Work([x, np.zeros_like(x)], {1: want})


@launch(1, 64)
def until_settled(rng):
    x = ints(rng, 0, 999, 64)
    return Work([x, zeros(1, dtype=np.int32)], {0: np.sort(x)})


@launch(1, 128)
def one_warp_leaves(rng):
    x = ints(rng, 0, 999, 128)
    want = np.zeros_like(x)
    want[:96] = x[:96][::-1]
    return Work([x, np.zeros_like(x)], {1: want})


@launch(2, 128)
def guarded_tail(rng):
    x = floats(rng, 200)
    rows = np.zeros((2, 128), np.float32)
    rows.ravel()[:200] = x
    return Work([x, np.zeros_like(x), 200], {1: (rows + np.roll(rows, -1, 1)).ravel()[:200]})


@launch(1, 64)
def sort_odd_even(rng):
    x = ints(rng, 0, 999, 128)
    return Work([x], {0: np.sort(x)})
