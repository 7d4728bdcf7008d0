"""convolve2d of wgpu against SciPy's correlate and PyTorch."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("wgpu")
from trueno.errors import KernelError
from trueno_wgpu.device.array import Array
from trueno_wgpu.kernels import convolve2d
from trueno_wgpu.kernels.store import PLAIN
from unit.wgpu.products import assert_within, compute, floats, kernel, planned, unwritten

SHAPES = [
    ((1, 1), (1, 1)),
    ((7, 9), (2, 4)),
    ((33, 65), (3, 3)),
    ((9, 300), (9, 1)),
    ((300, 9), (1, 9)),
    ((40, 131), (7, 7)),
    ((1, 6, 6), (1, 1, 1, 1)),
    ((3, 9, 11), (2, 3, 3, 3)),
    ((2, 21, 70), (4, 2, 3, 5)),
    ((4, 17, 37), (13, 4, 2, 3)),
]


def correlated(x, weights, mode):
    """By SciPy, a channel at a time, in float64: value, and sum of absolute products."""
    signal = pytest.importorskip("scipy.signal")
    x, weights = x.astype("f8"), weights.astype("f8")
    kh, kw = weights.shape[-2:]
    if mode == "same":
        top, left = (kh - 1) // 2, (kw - 1) // 2
        x = np.pad(x, [(0, 0)] * (x.ndim - 2) + [(top, kh - 1 - top), (left, kw - 1 - left)])
    if x.ndim == 2:
        x, weights = x[None], weights[None, None]
        return tuple(v[0] for v in _channels(signal, x, weights))
    return _channels(signal, x, weights)


def _channels(signal, x, weights):
    return tuple(
        np.array([sum(signal.correlate(f(x[c]), f(w[c]), "valid", "direct") for c in range(len(x))) for w in weights])
        for f in (np.asarray, np.abs)
    )


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("mode", ["valid", "same"])
def test_shapes(gpu, rng, mode, guarded):
    for x_shape, shape in SHAPES:
        x, weights = floats(rng, *x_shape), floats(rng, *shape)
        want, weight = correlated(x, weights, mode)
        got = compute(gpu, "convolve2d", want.shape, x, weights, mode=mode, guarded=guarded)
        assert_within(got, want, weight, int(np.prod(shape[-3:])))
    assert gpu.take_status() == 0


def test_a_kernel_larger_than_x(gpu, rng):
    x, weights = floats(rng, 3, 4), floats(rng, 7, 9)
    want, weight = correlated(x, weights, "same")
    assert_within(compute(gpu, "convolve2d", (3, 4), x, weights, mode="same"), want, weight, 63)


@pytest.mark.filterwarnings("ignore:Using padding")  # about a copy that PyTorch makes
def test_agrees_with_pytorch(gpu, rng):
    torch = pytest.importorskip("torch")
    x, weights = floats(rng, 3, 20, 43), floats(rng, 6, 3, 4, 3)
    for mode in ("valid", "same"):
        args = torch.from_numpy(x.astype("f8"))[None], torch.from_numpy(weights.astype("f8"))
        want = torch.nn.functional.conv2d(*args, padding=mode)[0].numpy()
        got = compute(gpu, "convolve2d", want.shape, x, weights, mode=mode)
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-4)


def test_more_taps_than_a_cpu_adapter_loops(gpu):
    """110 000 ones, over channels and a large kernel."""
    x, weights = np.ones((11, 101, 102), np.float32), np.ones((2, 11, 100, 100), np.float32)
    got = compute(gpu, "convolve2d", (2, 2, 3), x, weights)
    assert (got == 110_000).all()


def test_a_small_budget_takes_more_dispatches(gpu, rng):
    limits = replace(gpu.limits, trips=20)
    x, weights = floats(rng, 3, 12, 13), floats(rng, 2, 3, 4, 5)
    want, weight = correlated(x, weights, "same")
    dispatches = convolve2d.dispatches(x.shape, weights.shape, want.shape, True, limits, PLAIN)
    assert len(dispatches) == 4
    assert_within(planned(gpu, dispatches, want.shape, x, weights), want, weight, 60)


def test_channels_beyond_a_binding_come_in_bands(gpu, rng):
    limits = replace(gpu.limits, binding=16 << 10)
    x, weights = floats(rng, 2, 34, 34), floats(rng, 70, 2, 3, 3)
    want, weight = correlated(x, weights, "valid")
    dispatches = convolve2d.dispatches(x.shape, weights.shape, want.shape, False, limits, PLAIN)
    assert len(dispatches) > 1
    assert_within(planned(gpu, dispatches, want.shape, x, weights), want, weight, 18)
    with pytest.raises(KernelError, match="convolve2d: x has 40000 bytes, and this adapter binds 16384"):
        convolve2d.dispatches((100, 100), (3, 3), (98, 98), False, limits, PLAIN)


@pytest.mark.parametrize("mode", ["valid", "same"])
def test_nan_stays_near_and_is_told(gpu, mode):
    x, weights = np.ones((20, 80), np.float32), np.ones((3, 3), np.float32)
    x[10, 25] = np.nan
    want, _ = correlated(x, weights, mode)
    gpu.take_status()
    got = compute(gpu, "convolve2d", want.shape, x, weights, mode=mode, guarded=True)
    assert gpu.take_status() == 1
    row, column = (10, 25) if mode == "same" else (9, 24)
    near = np.zeros(want.shape, bool)
    near[row - 1 : row + 2, column - 1 : column + 2] = True
    assert np.array_equal(np.isnan(got), near)


def test_no_channels_give_zeros(gpu):
    nothing = np.empty((0, 5, 6), np.float32), np.empty((2, 0, 3, 3), np.float32)
    assert (compute(gpu, "convolve2d", (2, 3, 4), *nothing) == 0).all()


def test_refusals(gpu, rng):
    for x, weights, shape in (
        ((8, 9), (3, 2), (8, 9)),
        ((2, 9), (3, 2), (0, 8)),
        ((8, 9), (0, 2), (9, 8)),
        ((2, 8, 9), (4, 3, 3, 3), (4, 6, 7)),
        ((2, 8, 9), (4, 2, 3, 3), (3, 6, 7)),
        ((8, 9), (1, 1, 3, 3), (6, 7)),
    ):
        out = unwritten(gpu, shape)
        run = kernel(gpu, "convolve2d", np.empty(x), np.empty(weights), mode="valid")
        assert run(Array.of(gpu, floats(rng, *x)), Array.of(gpu, floats(rng, *weights)), out) == -1, (x, weights)
        assert np.isnan(out.numpy()).all()
    x = Array.of(gpu, floats(rng, 8, 9))
    run = kernel(gpu, "convolve2d", np.empty((8, 9)), np.empty((3, 3)), mode="same")
    assert run(x, Array.of(gpu, floats(rng, 3, 3)), x) == -1
