"""Copies of strided arrays, on the emulator: every order of axes, stride, size of element and alignment."""

from math import prod

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.kernels import copy, operands
from unit.cuda.kernels.moves import random

VIEWS = {
    "columns": lambda x: x[:, :, 1:4],
    "steps": lambda x: x[::2, ::3, ::2],
    "reversed": lambda x: x[::-1, :, ::-1],
    "transposed": lambda x: x.T,
    "swapped": lambda x: x.transpose(0, 2, 1),
    "rotated": lambda x: x.transpose(2, 0, 1),
    "one element": lambda x: x[1:2, 2:3, 3:4],
    "broadcast": lambda x: np.broadcast_to(x[:, :1], (3, *x.shape[:1], 5, x.shape[2])),
    "scalar": lambda x: x[1, 2, 3, ...],
    "itself": lambda x: x,
    "rows": lambda x: x[:, 1:, :],
    "turned and reversed": lambda x: x.T[:, ::-1],
    "empty": lambda x: x[:0],
}
DTYPES = ["u1", "i2", "f4", "f8", "c16", "V12", "V3"]


@pytest.fixture(scope="module")
def device():
    return Emulator("sm_90")


def copied(device, x, view, shift=0):
    """What the copy makes of a view of `x`, which lies `shift` bytes behind an aligned address."""
    raw = np.ascontiguousarray(x).view(np.uint8).reshape(-1) if x.size else np.empty(0, np.uint8)
    held = device.to_device(np.concatenate([np.zeros(shift, np.uint8), raw]))
    first = view.__array_interface__["data"][0] - x.__array_interface__["data"][0]
    out = device.empty((max(view.size, 1),), x.dtype)
    pointer = held.data.ptr + shift + first
    copy.StridedCopy(device)(pointer, view.shape, view.strides, x.itemsize, out.data.ptr)
    return out.data.bytes[: view.size * x.itemsize].tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", VIEWS)
def test_views(device, name, dtype):
    dtype = np.dtype(dtype)
    x = random().integers(0, 256, (9, 10, 12 * dtype.itemsize), np.uint8).view(dtype)
    view = VIEWS[name](x)
    for shift in (0, min(dtype.itemsize & -dtype.itemsize, 8)):
        assert copied(device, x, view, shift) == view.tobytes()


def test_random_views(device):
    rng = random()
    for _ in range(25):
        rank = int(rng.integers(1, 6))
        x = rng.integers(0, 99, tuple(rng.integers(1, 7, rank))).astype(rng.choice(["u1", "i2", "f4", "f8"]))
        cuts = [slice(None, None, int(rng.choice([-2, -1, 1, 1, 1, 2]))) for _ in range(rank)]
        view = x[tuple(cuts)].transpose(rng.permutation(rank))
        assert copied(device, x, view) == view.tobytes(), (x.shape, cuts, view.strides)


def test_more_axes_than_a_launch_has(device):
    x = random().integers(0, 9, (2,) * 11).astype("f4")
    view = x.transpose(*range(11)[::-1])
    assert copied(device, x, view) == view.tobytes()
    wide = as_strided(x, (3,) + (2,) * 9, (4,) + (0, 8) * 4 + (4,))
    assert copied(device, x, wide) == wide.tobytes()


def test_columns_become_rows_by_transposing(device, monkeypatch):
    seen = []
    transposed = copy.transpose.launches
    monkeypatch.setattr(copy.transpose, "launches", lambda *a, **o: seen.append(a) or transposed(*a, **o))
    x = random().standard_normal((40, 36)).astype("f4")
    assert copied(device, x, x.T) == x.T.tobytes() and len(seen) == 1
    stack = random().standard_normal((3, 20, 16)).astype("f8")
    view = stack.transpose(0, 2, 1)
    assert copied(device, stack, view) == view.tobytes() and len(seen) == 4
    view = stack[::-1, 1:, :12].transpose(0, 2, 1)
    assert copied(device, stack, view) == view.tobytes() and len(seen) == 7


@pytest.mark.parametrize("most", [32, 100])
def test_large_arrays_are_split(device, monkeypatch, most):
    monkeypatch.setattr(operands, "REACH", most)
    monkeypatch.setattr(copy, "REACH", most)
    x = random().integers(0, 256, (7, 9, 13)).astype("u2")
    for view in (x, x[:, ::2], x.transpose(2, 0, 1), x[::-1, ::-1, ::-1], x.reshape(-1)[::3]):
        assert copied(device, x, view) == view.tobytes()


@pytest.mark.parametrize("shape", [(2**33,), (3, 2**32), (2**17, 2**16), (2, 3, 2**31 + 1)])
def test_parts_of_a_huge_array_cover_it_once(shape):
    strides = [8 * prod(shape[i + 1 :]) * 2 for i in range(len(shape))]
    axes = list(zip(shape, strides, strict=True))
    end = 0
    for some, start, target in copy.parts(axes, 0, 0, 8):
        count = prod(n for n, _ in some)
        assert count <= operands.REACH and len(some) <= copy.AXES
        assert target == end and start == 2 * target
        end += 8 * count
    assert end == 8 * prod(shape)


def test_axes_are_merged():
    assert copy.merged([(3, 44), (1, 7), (5, 8), (2, 4)]) == [(3, 44), (10, 4)]
    assert copy.merged([(3, 40), (10, 4), (1, 0)]) == [(30, 4)]
    assert copy.merged([(1, 5), (1, 3)]) == [(1, 0)]
    assert copy.merged([(4, 0), (6, 0)]) == [(24, 0)]


def test_words_are_as_wide_as_the_runs():
    assert copy.widest([(8, 256), (16, 4)], 4, 0, 0) == ([(8, 256), (4, 16)], 16)
    assert copy.widest([(8, 256), (16, 4)], 4, 0, 8) == ([(8, 256), (8, 8)], 8)
    assert copy.widest([(8, 256), (15, 4)], 4, 0) == ([(8, 256), (15, 4)], 4)
    assert copy.widest([(8, 252), (16, 4)], 4, 0) == ([(8, 252), (16, 4)], 4)
    assert copy.widest([(8, 24)], 12, 0) == ([(8, 24), (3, 4)], 4)
    assert copy.widest([(8, 32)], 16, 0) == ([(8, 32)], 16)
