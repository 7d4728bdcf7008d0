"""symmetric_eigen of the CUDA backend, on the emulator: by the equations that results must satisfy, and LAPACK."""

import numpy as np
import pytest
from trueno.judge.structured import judge_structured
from trueno.ops import TABLE
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.kernels import eigen
from unit.cuda.kernels.moves import call, part, random, unwritten


@pytest.fixture(scope="module")
def device():
    return Emulator("sm_90")


def decomposed(device, a, guarded=False):
    kernel = eigen.symmetric_eigen(device, call("symmetric_eigen", a.dtype, a, guarded=guarded))
    outs = unwritten(device, a.shape[:1], a.dtype), unwritten(device, a.shape, a.dtype)
    assert kernel(device.to_device(a), *outs) == 0
    return [x.elements.copy() for x in outs]


def assert_right(a, results):
    verdict = judge_structured(TABLE["symmetric_eigen"], [a], {}, a.dtype, results)
    assert verdict.ok, str(verdict)
    vectors = results[1]
    assert (vectors[np.abs(vectors).argmax(0), np.arange(len(a))] > 0).all()


def symmetric(rng, n, dtype):
    a = rng.standard_normal((n, n))
    return ((a + a.T) / 2).astype(dtype)


@pytest.mark.parametrize("n", [1, 2, 3, 15, 16, 17])
def test_matrices_of_every_side(device, n):
    a = symmetric(random(), n, "f4")
    lower = a + np.triu(np.full_like(a, np.nan), 1)  # the upper triangle is not read
    results = decomposed(device, lower)
    assert_right(a, results)


def test_blocks_and_both_dtypes(device, monkeypatch):
    monkeypatch.setattr(eigen, "SIDES", (16,))
    rng = random()
    for n, dtype in ((33, "f4"), (6, "f8")):
        a = symmetric(rng, n, dtype)
        assert_right(a, decomposed(device, a))


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_values_that_are_equal_zero_or_far_apart(device, scale):
    rng = random()
    basis = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    for values in (np.ones(12), np.zeros(12), np.repeat([3.0, -1.0], 6), np.logspace(0, -12, 12)):
        a = ((basis * values) @ basis.T * scale).astype("f4")
        assert_right(np.tril(a) + np.tril(a, -1).T, decomposed(device, a))
    assert_right(np.eye(5, dtype="f4"), decomposed(device, np.eye(5, dtype="f4")))


def test_what_does_not_converge_is_nan(device, monkeypatch):
    rng = random()
    monkeypatch.setattr(eigen, "SWEEPS", {eigen.f32: 1, eigen.f64: 1})
    monkeypatch.setattr(eigen, "SIDES", (16,))
    for results in (decomposed(device, symmetric(rng, 20, "f4"), guarded=True),):
        assert all(np.isnan(x).all() for x in results) and device.take_status() == 1


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_not_finite_ends(device, wrong):
    a = symmetric(random(), 20, "f4")
    a[7, 3] = wrong
    values, vectors = decomposed(device, a)
    assert np.isnan(values).all() and np.isnan(vectors).all()


def test_what_is_refused(device):
    for a, values, vectors in (((3, 4), (3,), (3, 4)), ((3, 3), (2,), (3, 3)), ((3, 3), (3,), (3, 2))):
        kernel = eigen.symmetric_eigen(device, call("symmetric_eigen", "f4", np.zeros(a)))
        outs = unwritten(device, values, "f4"), unwritten(device, vectors, "f4")
        assert kernel(device.to_device(np.zeros(a, "f4")), *outs) == -1 and np.isnan(outs[0].elements).all()
    kernel = eigen.symmetric_eigen(device, call("symmetric_eigen", "f4", np.zeros((3, 3))))
    whole = device.to_device(np.zeros(40, "f4"))
    assert kernel(part(whole, (3, 3), 0), part(whole, (3,), 20), part(whole, (3, 3), 8)) == -1
    empty = [part(whole, s, 0) for s in ((0, 0), (0,), (0, 0))]
    assert kernel(*empty) == 0
