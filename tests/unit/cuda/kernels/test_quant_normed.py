"""Products that begin with the norm of their operand: in the kernels of few rows of x, and before tensor cores.

Each result is judged by what a correct norm leaves to the product: of an element near the middle between two codes
either one.  With weights and numbers chosen so that every code is exact the float64 result is met closely.
"""

from typing import Any

import numpy as np
import pytest
import trueno
from trueno.judge.structured import judge_structured
from trueno.ops.shared import SharedOp
from trueno_cuda.kernels.quant import products
from trueno_cuda.kernels.quant.task import Norm, Task
from trueno_cuda.kernels.quant.tiling import Tiled
from unit.cuda.kernels.products import DEVICE, fresh

BACKEND = "cuda_emulated"
F = np.float32


def matrix(rng: Any, name: str, n: int, k: int) -> trueno.QuantizedMatrix:
    return trueno.quantize(rng.standard_normal((n, k)).astype(F), name)


def numbers(rng: Any, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(F)


def record(b: Any, x: Any, weight: Any, some: Any, eps: float = 1e-5) -> list[Any]:
    y = b.rms_norm(b.upload(x), b.upload(weight), eps=eps)
    return [b.quant_matvec(b.upload(w), y) if x.ndim == 1 else b.quant_matmul(y, b.upload(w)) for w in some]


def judged(b: Any, members: int) -> None:
    """Run it and judge what its only step gives, which has so many members."""
    b.execute()
    (step,) = b._schedule().steps
    assert isinstance(step.op, SharedOp) and [m.op.name for m in step.op.members][0] == "rms_norm"  # noqa: RUF015
    assert len(step.op.members) == members
    operands = [np.asarray(host(b._replay._array(v, b._uploads.arrays))).reshape(shape) for v, shape in step.reads]
    results = [np.asarray(host(b._found(v))) for v, _ in step.makes]
    verdict = judge_structured(step.op, operands, {}, F, results, step.params)
    assert verdict.ok, str(verdict)
    assert verdict.free < 0.1


def host(x: Any) -> Any:
    return getattr(x, "elements", x)


@pytest.mark.parametrize("names", ["q4_k", "q6_k", "q2_k", "iq4_xs", "q4_k q6_k q5_k"])
@pytest.mark.parametrize("m", [0, 4, 9])
def test_formats(m: int, names: str) -> None:
    rng = fresh()
    k = 768
    with trueno.Batch(BACKEND) as b:
        x, weight = numbers(rng, *(m, k)[m == 0 :]), numbers(rng, k)
        results = record(
            b, x, weight, [matrix(rng, name, n, k) for name, n in zip(names.split(), (19, 7, 4), strict=False)]
        )
        judged(b, 1 + len(results))


@pytest.mark.parametrize("m", [0, 5])
def test_a_gated_layer_behind_a_residual(m: int) -> None:
    """Two launches: the product before adds the residual, and this one normalizes its result."""
    rng, k = fresh(), 512
    shape = (m, k)[m == 0 :]
    with trueno.Batch(BACKEND) as b:
        out, gate, up = (matrix(rng, name, n, k) for name, n in (("q4_k", k), ("q4_k", 21), ("q6_k", 21)))
        before = b.upload(numbers(rng, *shape))
        y = b.quant_matmul(before, b.upload(out)) if m else b.quant_matvec(b.upload(out), before)
        x = b.add(y, b.upload(numbers(rng, *shape)))
        y = b.rms_norm(x, b.upload(numbers(rng, k)))
        g, u = (b.quant_matmul(y, b.upload(w)) if m else b.quant_matvec(b.upload(w), y) for w in (gate, up))
        b.keep(x)
        hidden = b.swiglu(g, u)
        first, second = b._schedule().steps
        assert [len(first.ops), len(second.op.members)] == [2, 3]
        b.execute()
        state = b.read(x)
        operands = [np.asarray(host(b._replay._array(v, b._uploads.arrays))).reshape(s) for v, s in second.reads]
        assert judge_structured(second.op, operands, {}, F, [b.read(hidden)], second.params)
        np.testing.assert_array_equal(operands[0].reshape(shape), state)


@pytest.mark.parametrize("count", [1, 2])
def test_a_vector_that_begins_anywhere_is_read_one_by_one(count: int) -> None:
    rng, k, n = fresh(), 1280, 21
    x, weight, w = numbers(rng, count, k), numbers(rng, k), np.asarray(matrix(rng, "q5_k", n, k).bytes)
    given, out = [DEVICE.to_device(a) for a in (x, weight, w)], DEVICE.empty((count, n), x.dtype)
    results = []
    for wide in (True, False):
        section = (products.Part("q5_k", 16, 16),)
        form = products.form_of((section,), "q8", count, k, wide, False, norm=True)
        products.prepared(DEVICE, form, k, [n])([a.data.ptr for a in (*given, out)], [1e-5])
        results.append(DEVICE.to_host(out).copy())
    np.testing.assert_array_equal(*results)
    assert results[0].any()


def test_rows_that_begin_anywhere_are_read_one_by_one() -> None:
    rng, k, n, m = fresh(), 768, 21, 5
    x, weight, w = numbers(rng, m, k), numbers(rng, k), np.asarray(matrix(rng, "q5_k", n, k).bytes)
    given, out = [DEVICE.to_device(a) for a in (x, weight, w)], DEVICE.empty((m, n), x.dtype)
    results = []
    for wide in (True, False):
        task = Task("q5_k", None, 2, (), 0, n, slice(1, 1), 0)
        tiled = Tiled(DEVICE, [(0, task)], m, k, wide, norm=Norm(1, 0))
        pointers, memory = [a.data.ptr for a in given], DEVICE.scratch(tiled.nbytes)
        tiled.run(memory.data.ptr, pointers[0], pointers, [out.data.ptr], [1e-5])
        results.append(DEVICE.to_host(out).copy())
    np.testing.assert_array_equal(*results)
    assert results[0].any()


def test_rows_longer_than_a_block_has_threads_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "THREADS", {1: 32, 2: 32})
    rng, k = fresh(), 2048
    with trueno.Batch(BACKEND) as b:
        results = record(b, numbers(rng, 4, k), numbers(rng, k), [matrix(rng, "q4_k", 9, k)])
        judged(b, 1 + len(results))


@pytest.mark.parametrize("m", [0, 4])
def test_against_float64(m: int) -> None:
    """Where all numbers of a row are alike but for their signs, each code is 127 or -127, and nothing is rounded."""
    rng, k, n = fresh(), 512, 33
    shape = (m, k)[m == 0 :]
    sign = rng.choice([-1.0, 1.0], shape).astype(F)
    x, weight, w = sign * F(3.5), np.full(k, 2.0, F), matrix(rng, "q6_k", n, k)
    with trueno.Batch(BACKEND) as b:
        (y,) = record(b, x, weight, [w], eps=0.25)
        b.execute()
        got = b.read(y)
    want = (sign * 7.0 / np.sqrt(3.5**2 + 0.25)).astype(np.float64) @ trueno.dequantize(w).astype(np.float64).T
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("m", [0, 4])
@pytest.mark.parametrize("what, found", [("nan", "NaN"), ("inf", "NaN"), ("zeros", "zeros"), ("nothing", "NaN")])
def test_edges(m: int, what: str, found: str) -> None:
    """A row with a NaN or an Inf is NaN; a row of zeros gives zeros, and NaN where eps is 0."""
    rng, k = fresh(), 512
    x = numbers(rng, *(m, k)[m == 0 :])
    last = x[-1] if m else x
    if what in ("zeros", "nothing"):
        last[:] = 0
    else:
        last[300] = np.nan if what == "nan" else -np.inf
    with trueno.Batch(BACKEND) as b:
        (y,) = record(b, x, numbers(rng, k), [matrix(rng, "q4_k", 17, k)], eps=0.0 if what == "nothing" else 1e-6)
        b.execute()
        got = b.read(y)
    row = got[-1] if m else got
    assert np.isnan(row).all() if found == "NaN" else not row.any()
    assert m == 0 or np.isfinite(got[:-1]).all()


@pytest.mark.parametrize("activations", ["f32", "bf16"])
def test_other_activations_have_norms_of_their_own(activations: str) -> None:
    rng, k = fresh(), 256
    with trueno.Batch(BACKEND) as b:
        y = b.rms_norm(b.upload(numbers(rng, 3, k)), b.upload(numbers(rng, k)))
        z = b.quant_matmul(y, b.upload(matrix(rng, "q4_k", 9, k)), activations=activations)
        assert [step.op.name for step in b._schedule().steps] == ["rms_norm", "quant_matmul"] and z.shape == (3, 9)


def test_the_setting_switches_it_off() -> None:
    rng, k = fresh(), 256
    x, weight, w = numbers(rng, 4, k), numbers(rng, k), matrix(rng, "q4_k", 9, k)
    with trueno.Batch(BACKEND) as b:
        (y,) = record(b, x, weight, [w])
        b.execute()
        one = b.read(y)
        trueno.settings.override("TRUENO_FUSION", "off")
        try:
            b.execute()
            assert len(b._schedule().steps) == 2
            np.testing.assert_allclose(b.read(y), one, rtol=0, atol=0.02 * np.abs(one).max())
        finally:
            trueno.settings.override("TRUENO_FUSION", None)
