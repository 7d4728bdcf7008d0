"""attention_ragged of wgpu: each sequence as PyTorch computes it alone, and offsets that are not checked."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("wgpu")
pytest.importorskip("torch")
from trueno.errors import KernelError
from trueno_wgpu.device.array import Array
from trueno_wgpu.kernels.attention import ragged
from trueno_wgpu.kernels.attention.plan import Sizes
from unit.core.test_ragged import SEQUENCES, one_by_one, problem
from unit.wgpu.products import kernel, unwritten

ALLOWED = 6e-6


def attend(gpu, q, k, v, of_q, of_k, limits=None, guarded=False, scale=0.0, softcap=0.0, monkeypatch=None, **static):
    static = {"causal": False, "window": 0} | static
    result = unwritten(gpu, (*q.shape[:2], v.shape[-1]))
    x = [Array.of(gpu, a) for a in (q, k, v, of_q, of_k)]
    if limits is not None:
        monkeypatch.setattr(gpu, "limits", limits)
    call = kernel(gpu, "attention_ragged", q, k, v, of_q, of_k, guarded=guarded, **static)
    assert call(*x, scale, softcap, result) == 0
    return result.numpy()


def narrow(wide):
    return [x.astype(np.float32) for x in wide[:3]] + [*wide[3:]]


@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize("heads", [(4, 2, 32, 32), (3, 1, 7, 40)], ids=str)
@pytest.mark.parametrize("trips", [None, 0])
def test_against_pytorch(gpu, rng, monkeypatch, name, heads, trips):
    """Also as on a GPU, where few blocks take the keys in splits."""
    x = narrow(problem(rng, SEQUENCES[name], *heads, before=3, behind=2))
    limits = None if trips is None else replace(gpu.limits, trips=trips)
    for given in ({}, {"causal": True, "window": 33}, {"window": 20, "softcap": 3.0, "scale": 0.4}):
        y = attend(gpu, *x, limits=limits, monkeypatch=monkeypatch, **given)
        np.testing.assert_allclose(y, one_by_one(*x, **given), rtol=0, atol=ALLOWED)


def test_plans(gpu):
    few = Sizes(4, 4000, 2, 1, 64, 64)
    plan = ragged.planned(few, 3, True, 0, False, False, replace(gpu.limits, trips=0))
    assert plan.parts > 1 and len(plan.passes) == 1
    many = Sizes(60_000, 60_000, 8, 1, 64, 64)
    plan = ragged.planned(many, 2, True, 0, False, False, replace(gpu.limits, trips=0))
    assert plan.parts == 1 and len(plan.passes) > 1, "a long dispatch would keep a slow GPU too busy"
    with pytest.raises(KernelError, match="attention_ragged: operands of 122880000 bytes, and this adapter binds 1000"):
        ragged.planned(many, 2, True, 0, False, False, replace(gpu.limits, binding=1000))
    with pytest.raises(KernelError, match="attention_ragged: 99999 sequences are more than loops"):
        ragged.planned(many, 100_000, True, 0, False, False, replace(gpu.limits, trips=60_000))


def test_several_dispatches(gpu, rng, monkeypatch):
    monkeypatch.setattr(ragged, "WORK", 1 << 18)
    x = narrow(problem(rng, SEQUENCES["mixed"], 2, 1, 16, 16))
    y = attend(gpu, *x, limits=replace(gpu.limits, trips=0), monkeypatch=monkeypatch, causal=True)
    np.testing.assert_allclose(y, one_by_one(*x, causal=True), rtol=0, atol=ALLOWED)


def test_unchecked_offsets_stay_inside(gpu, rng):
    """What is out of range is cut, and what falls is an empty sequence: every row is written, the others are right."""
    q, k, v, *_ = narrow(problem(rng, [(50, 50)], 2, 1, 16, 16))
    of_q, of_k = np.array([0, 20, 10, 2**40]), np.array([-(2**40), 30, -1, 2**33 + 7])
    y = attend(gpu, q, k, v, of_q, of_k, causal=True)
    want = one_by_one(q, k, v, np.array([0, 20, 20, 50]), np.array([0, 30, 30, 50]), causal=True)
    np.testing.assert_allclose(y, want, rtol=0, atol=ALLOWED)


def test_a_guard_hears_of_nan(gpu, rng):
    x = narrow(problem(rng, SEQUENCES["mixed"], 2, 1, 16, 16))
    gpu.take_status()
    attend(gpu, *x, guarded=True)
    assert gpu.take_status() == 0
    x[2][3, 0, 5] = np.nan
    y = attend(gpu, *x, guarded=True)
    assert np.isnan(y[0, :, 5]).all() and np.isfinite(y[1:]).all() and gpu.take_status() == 1


def test_refusals_and_empty_arrays(gpu):
    def zeros(*shape):
        return np.zeros(shape, np.float32)

    shapes = [
        ((3, 4, 8), (5, 3, 8), (5, 3, 6), 2, 2),
        ((3, 4, 8), (5, 2, 7), (5, 2, 6), 2, 2),
        ((3, 4, 8), (5, 2, 8), (4, 2, 6), 2, 2),
        ((3, 4, 8), (5, 2, 8), (5, 2, 6), 2, 3),
        ((3, 4, 8), (5, 2, 8), (5, 2, 6), 0, 0),
    ]
    for *of, n, m in shapes:
        result, x = unwritten(gpu, (3, 4, 6)), [*(zeros(*shape) for shape in of), np.zeros(n, int), np.zeros(m, int)]
        call = kernel(gpu, "attention_ragged", *x, causal=False, window=0)
        assert call(*(Array.of(gpu, a) for a in x), 0.0, 0.0, result) == -1, of
        assert np.isnan(result.numpy()).all()
    y = attend(gpu, zeros(2, 2, 4), zeros(0, 1, 4), zeros(0, 1, 5), np.array([0, 2]), np.array([0, 0]))
    assert (y == 0).all()
