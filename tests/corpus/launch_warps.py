"""Launches of `warps.cu`."""

import numpy as np

from .launches import Work, floats, ints, launch, zeros


@launch(2, 128)
def exchange_warp(rng):
    x = ints(rng, 0, 999, 8, 32)
    return Work([x, np.zeros_like(x)], {1: np.roll(x[:, ::-1] + 1, -1, 1)})


@launch(3, 64)
def reduce_warp_shared(rng):
    x = ints(rng, 0, 999, 6, 32)
    return Work([x, zeros(6, dtype=np.int32)], {1: x.sum(1)})


@launch(3, 32)
def butterfly(rng):
    x = floats(rng, 3, 32)
    return Work([x, np.zeros_like(x)], {1: np.repeat(x.sum(1, keepdims=True), 32, 1)}, rtol=1e-4, atol=1e-5)


@launch(2, 64)
def broadcast_lane(rng):
    x = ints(rng, 0, 999, 4, 32)
    return Work([x, np.zeros_like(x), 9], {1: np.repeat(x[:, 9:10], 32, 1)})


@launch(2, 32)
def rotate_lanes(rng):
    x = ints(rng, 0, 999, 2, 32)
    return Work([x, np.zeros_like(x)], {1: np.roll(x, -5, 1)})


@launch(1, 64)
def half_warps(rng):
    x = ints(rng, 0, 999, 4, 16)
    return Work([x, zeros(4, dtype=np.int32)], {1: x.sum(1)})


@launch(3, 64)
def pack_votes(rng):
    x = floats(rng, 160)
    return Work([x, zeros(5, dtype=np.uint32), 160], {1: np.packbits(x > 0, bitorder="little").view(np.uint32)})


@launch(1, 32)
def match_groups(rng):
    x = ints(rng, 0, 6, 32)
    same = x[:, None] == x
    return Work(
        [x, zeros(32, dtype=np.uint32)], {1: np.packbits(same, axis=1, bitorder="little").view(np.uint32)[:, 0]}
    )


@launch(2, 32)
def sort_warp(rng):
    x = ints(rng, 0, 999, 2, 32)
    return Work([x], {0: np.sort(x, 1)})


@launch(1, 32)
def sum_of_tail(rng):
    x = ints(rng, 0, 999, 20)
    return Work([x, np.zeros_like(x), 20], {1: np.full(20, x.sum())})


@launch(1, 64)
def lower_half(rng):
    x = ints(rng, 0, 999, 64)
    want = np.zeros_like(x)
    want[:16], want[32:48] = x[:16].sum(), x[32:48].sum()
    return Work([x, np.zeros_like(x)], {1: want})


@launch(4, 32)
def all_equal(rng):
    x = ints(rng, 0, 40, 4, 32)
    x[::2] = x[::2, :1]
    return Work([x, zeros(4, dtype=np.int32)], {1: (x == x[:, :1]).all(1) | (x == 7).any(1) * 2})


@launch(3, 64)
def reserve(rng):
    x = ints(rng, 0, 999, 170)
    return Work([x, np.zeros_like(x), zeros(1, dtype=np.int32), 170], {2: (x % 3 == 0).sum()})
