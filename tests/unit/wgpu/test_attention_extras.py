"""Sinks and masks of wgpu's attention against PyTorch in float64, in every form and cut."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("wgpu")
pytest.importorskip("torch")
from trueno.errors import KernelError
from trueno_wgpu.device.array import Array
from trueno_wgpu.device.shader import shared_bytes
from trueno_wgpu.kernels.attention import few, tile
from trueno_wgpu.kernels.attention.kernel import numbers, run
from trueno_wgpu.kernels.attention.plan import Extra, Sizes, steps
from trueno_wgpu.kernels.attention.text import Form
from trueno_wgpu.kernels.stacked import stack
from trueno_wgpu.kernels.store import PARTIAL
from unit.attention import by_torch
from unit.wgpu.products import floats, kernel, unwritten

ALLOWED = 6e-6
SHAPES = [(1, 700, 6, 2, 64, 64), (3, 65, 4, 1, 33, 7), (70, 90, 3, 1, 40, 130), (130, 20, 2, 2, 16, 16)]
WAYS = [{}, {"causal": True, "window": 33, "softcap": 3.0}]


def operands(rng, t, s, hq, hk, d, e, lead=()):
    return floats(rng, *lead, t, hq, d), floats(rng, *lead, s, hk, d), floats(rng, *lead, s, hk, e)


def mask_of(rng, *shape):
    return np.where(rng.random(shape) < 0.2, -np.inf, 2 * rng.normal(size=shape)).astype(np.float32)


def attend(gpu, q, k, v, extra, guarded=False, softcap=0.0, scale=0.0, causal=False, window=0):
    """The kernel's result; extra: sinks, if they have one axis, or a mask."""
    name = "attention_sinks" if extra.ndim == 1 else "attention_masked"
    lead = np.broadcast_shapes(q.shape[:-3], () if extra.ndim == 1 else extra.shape[:-3])
    result = unwritten(gpu, (*lead, *q.shape[-3:-1], v.shape[-1]))
    x = [Array.of(gpu, a) for a in (q, k, v, extra)]
    call = kernel(gpu, name, q, k, v, extra, guarded=guarded, causal=causal, window=window)
    assert call(*x, scale, softcap, result) == 0
    return result.numpy()


def planned(gpu, limits, q, k, v, extra, causal=False, window=0, softcap=0.0, scale=0.0):
    """The result under other limits, and the steps."""
    (t, hq, d), (s, hk, e) = q.shape[-3:], v.shape[-3:]
    leads, each = [x.shape[:-3] for x in (q, k, v)], [t * hq * d, s * hk * d, s * hk * e]
    kind, named = Extra(sinks=True), "sinks"
    if extra.ndim > 1:
        kind, named = Extra(mask=extra.shape[-3:]), "mask"
        leads.append(extra.shape[:-3])
        each.append(int(np.prod(extra.shape[-3:])))
    lead = np.broadcast_shapes(*leads)
    todo = steps(Sizes(t, s, hq, hk, d, e), stack(lead, leads, each), causal, window, softcap > 0, False, limits, kind)
    out, x = unwritten(gpu, (*lead, t, hq, e)), [Array.of(gpu, a) for a in (q, k, v)]
    assert run(gpu, todo, *x, numbers(scale, softcap, d), out, False, **{named: Array.of(gpu, extra)}) == 0
    return out.numpy(), todo


def assert_near(y, want):
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, want, rtol=0, atol=ALLOWED)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sinks_against_pytorch(gpu, rng, shape):
    x = operands(rng, *shape)
    for sinks in (floats(rng, shape[2]), np.full(shape[2], 9, np.float32), np.full(shape[2], -np.inf, np.float32)):
        for given in WAYS:
            assert_near(attend(gpu, *x, sinks, **given), by_torch(*x, **given, sinks=sinks))
            y, todo = planned(gpu, replace(gpu.limits, trips=0), *x, sinks, **given)
            assert shape[1] < 128 or todo[0].parts > 1
            assert_near(y, by_torch(*x, **given, sinks=sinks))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_masks_against_pytorch(gpu, rng, shape):
    t, s, hq = shape[:3]
    x = operands(rng, *shape)
    for of in ((1, 1, s), (hq, 1, s), (1, t, s), (hq, t, s)):
        mask = mask_of(rng, *of)
        mask[:, -1] = mask[:, -1] if t < 3 or of[1] == 1 else -np.inf  # a query that sees no key
        for given in WAYS:
            assert_near(attend(gpu, *x, mask, **given), by_torch(*x, **given, mask=mask))
            y, _ = planned(gpu, replace(gpu.limits, trips=0), *x, mask, **given)
            assert_near(y, by_torch(*x, **given, mask=mask))


@pytest.mark.parametrize("t", [2, 20])
def test_leading_axes_of_a_mask(gpu, rng, t):
    q, k, v = operands(rng, t, 40, 4, 2, 16, 8, lead=(3,))
    for of in ((3, 1, 1, 40), (1, 4, t, 40), (3, 4, t, 40)):
        mask = mask_of(rng, *of)
        assert_near(attend(gpu, q, k, v, mask), by_torch(q, k, v, mask=mask))
    mask = mask_of(rng, 3, 1, t, 40)
    want = by_torch(*(np.broadcast_to(x[0], x.shape) for x in (q, k, v)), mask=mask)
    assert_near(attend(gpu, q[0], k[0], v[0], mask), want)


@pytest.mark.parametrize("trips", [0, 60_000])
def test_in_bands(gpu, rng, trips):
    """Queries and keys in bands, and problems in bands: what a mask's places count is the whole problem."""
    x, limits = operands(rng, 200, 300, 2, 1, 64, 64), replace(gpu.limits, binding=48 << 10, trips=trips)
    for extra in (mask_of(rng, 2, 1, 300), floats(rng, 2)):
        y, todo = planned(gpu, limits, *x, extra, causal=True, window=150)
        named = {"sinks" if extra.ndim == 1 else "mask": extra}
        assert len(todo) > 1
        assert_near(y, by_torch(*x, causal=True, window=150, **named))
    x, mask = operands(rng, 20, 30, 2, 1, 64, 32, lead=(9,)), mask_of(rng, 9, 2, 20, 30)
    y, todo = planned(gpu, limits, *x, mask)
    assert len(todo) > 2
    assert_near(y, by_torch(*x, mask=mask))
    with pytest.raises(KernelError, match=r"attention_masked: a mask of shape \(1, 200, 300\) has 240000 bytes"):
        planned(gpu, limits, *operands(rng, 200, 300, 2, 1, 8, 8), mask_of(rng, 1, 200, 300))


def test_refusals_and_empty_arrays(gpu, rng):
    x = [floats(rng, 3, 4, 8), floats(rng, 5, 2, 8), floats(rng, 5, 2, 6)]
    for name, of in (("attention_sinks", (2,)), ("attention_masked", (2, 3, 5)), ("attention_masked", (1, 2, 5)),
                     ("attention_masked", (1, 3, 4)), ("attention_masked", (3, 5))):  # fmt: skip
        result, extra = unwritten(gpu, (3, 4, 6)), np.zeros(of, np.float32)
        call = kernel(gpu, name, *x, extra, causal=False, window=0)
        assert call(*(Array.of(gpu, a) for a in (*x, extra)), 0.0, 0.0, result) == -1, (name, of)
        assert np.isnan(result.numpy()).all()
    none = [np.zeros(shape, np.float32) for shape in ((2, 2, 4), (0, 1, 4), (0, 1, 5))]
    assert (attend(gpu, *none, np.ones(2, np.float32)) == 0).all()
    assert (attend(gpu, *none, np.ones((1, 1, 0), np.float32)) == 0).all()


@pytest.mark.parametrize("t", [1, 40])
def test_a_guard_hears_of_nan(gpu, rng, t):
    x = operands(rng, t, 70, 2, 1, 16, 8)
    gpu.take_status()
    for extra in (floats(rng, 2), mask_of(rng, 1, t, 70)):
        named = {"sinks" if extra.ndim == 1 else "mask": extra}
        assert_near(attend(gpu, *x, extra, guarded=True), by_torch(*x, **named))
        assert gpu.take_status() == 0
        extra = extra.copy()
        extra[..., -1] = np.nan
        y = attend(gpu, *x, extra, guarded=True)
        assert np.isnan(y[..., -1, :]).all() and gpu.take_status() == 1


def test_every_text_keeps_to_16_kib(gpu):
    for form in (Form(4, 4, masked=True), Form(1, 1, True, masked=True), Form(4, 1, store=PARTIAL, masked=True)):
        for rows in (16, 64):
            assert shared_bytes(tile.shader(tile.tile_for(rows, 32, 256), form)) <= 16 << 10
        assert shared_bytes(few.shader(few.lanes_for(8, 64, 64, form), form)) <= 16 << 10
