"""topk of the CUDA backend, on the emulator: to the bit."""

import numpy as np
import pytest
from ml_dtypes import bfloat16
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.kernels import topk
from unit.cuda.kernels.moves import call, part, random, shifted, unwritten


@pytest.fixture(scope="module")
def device():
    return Emulator("sm_90")


def largest(device, x, k, shift=0, guarded=False):
    kernel = topk.topk(device, call("topk", x.dtype, x, k=k, guarded=guarded))
    values = unwritten(device, (*x.shape[:-1], k), x.dtype)
    indices = device.to_device(np.full(values.shape, -7, np.int64))
    assert kernel(shifted(device, x, shift), values, indices) == 0
    return values.elements.copy(), indices.elements.copy()


def assert_largest(x, k, values, indices):
    wide = x.astype(np.float64)
    nan = np.isnan(wide)
    order = np.lexsort((-np.where(nan, 0, wide), ~nan), axis=-1)[..., :k]
    assert (indices == order).all()
    assert values.tobytes() == np.take_along_axis(x, order, -1).tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, bfloat16], ids=lambda t: np.dtype(t).name)
def test_the_largest_in_order(device, dtype):
    rng = random()
    for shape, k in (((5,), 5), ((3, 70), 1), ((2, 2, 33), 9), ((2, 700), 300), ((4, 1000), 7)):
        x = (rng.standard_normal(shape) * 10).astype(dtype)
        x[..., rng.integers(0, shape[-1], 3)] = rng.choice([np.inf, -np.inf, -0.0, 0.0, np.nan])
        assert_largest(x, k, *largest(device, x, k, int(rng.integers(2))))


@pytest.mark.parametrize("k", [1, 3, 40, 299, 300])
def test_few_values_and_blocks_that_share_a_row(device, monkeypatch, k):
    monkeypatch.setattr(topk, "shape_of", lambda *_: (64, 4))
    rng = random()
    x = rng.choice([-2.0, -0.0, 0.0, 1.5, np.nan], (2, 300)).astype("f4")
    x[1] = 7.0
    assert_largest(x, k, *largest(device, x, k))
    monkeypatch.setattr(topk, "TOGETHER", 30)
    assert_largest(x, k, *largest(device, x, k))


def test_infinities_at_both_ends(device):
    rng = random()
    for x in (
        [15, -np.inf, 3, -9.6, -np.inf],
        [np.inf, 1, np.inf, -np.inf, 2],
        [-np.inf] * 5,
        [np.nan, np.inf, 0, -5, np.nan],
    ):
        x = rng.permutation(np.array(x, "f4"))
        for k in (2, 4, 5):
            assert_largest(x, k, *largest(device, x, k))


def test_a_guard_hears_of_what_is_copied_alone(device):
    x = np.zeros((2, 40), "f4")
    x[0, 7], x[1, 9] = 3.0, -np.inf
    largest(device, x, 5, guarded=True)
    assert device.take_status() == 0
    largest(device, x, 40, guarded=True)
    assert device.take_status() == 2
    x[1, 3] = np.nan
    largest(device, x, 1, guarded=True)
    assert device.take_status() == 1


def test_what_is_refused(device):
    for x, values, indices in (((3, 4), (3, 5), (3, 5)), ((3, 4), (3, 2), (3, 3)), ((3, 4), (2, 2), (2, 2))):
        kernel = topk.topk(device, call("topk", "f4", np.zeros(x), k=values[-1]))
        outs = unwritten(device, values, "f4"), device.to_device(np.full(indices, -7, np.int64))
        assert kernel(device.to_device(np.zeros(x, "f4")), *outs) == -1 and (outs[1].elements == -7).all()
    kernel, both = topk.topk(device, call("topk", "f4", np.zeros((2, 8)), k=2)), device.to_device(np.zeros(40, "f4"))
    x, indices = part(both, (2, 8), 0), device.to_device(np.zeros((2, 2), np.int64))
    assert kernel(x, part(both, (2, 2), 15), indices) == -1 and kernel(x, part(both, (2, 2), 16), indices) == 0
    empty = device.to_device(np.zeros((0, 8), "f4"))
    assert kernel(empty, part(both, (0, 2), 0), device.to_device(np.zeros((0, 2), np.int64))) == 0


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("together", [True, False])
def test_a_search_that_keeps_too_much_or_nothing_stays_within_its_row(device, monkeypatch, kept, together):
    """The emulator reports every access outside of an array: scratch, x and results end where their last row does."""
    monkeypatch.setattr(topk, "source", topk.source.__wrapped__)
    how = "eq" if kept else "ne"
    monkeypatch.setattr(topk.Row, "kept", lambda self, code, _: self.k.compare(how, code, code))
    monkeypatch.setattr(topk, "TOGETHER", 100 if together else 0)
    x = random().standard_normal((2, 70)).astype("f4")
    _, indices = largest(device, x, 9)
    left = indices == -7
    assert (left | ((indices >= 0) & (indices < 70))).all() and left.all() != kept
