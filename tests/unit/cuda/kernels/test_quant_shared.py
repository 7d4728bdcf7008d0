"""Products of one matrix of activations as one call: a launch of `rows` for few rows of it, tensor cores for more.

Each kept result is judged by the bound of its member, which for blocks is that of products with x as they see it.
"""

from typing import Any

import numpy as np
import pytest
import trueno
from trueno.judge.structured import judge_structured
from trueno.ops.shared import SharedOp
from trueno_cuda.kernels import KERNELS
from unit.cuda.kernels.products import DEVICE, fresh

BACKEND = "cuda_emulated"
F, K = np.float32, 512
FEW, MANY = [1, 2, 4], [5, 8, 12]
MIXED = {"alike": ("q4_k", "q4_k"), "by_grain": ("q4_k", "q6_k"), "by_partner": ("q5_1", "iq4_xs")}


def matrix(rng: Any, name: str, n: int, k: int = K) -> trueno.QuantizedMatrix:
    return trueno.quantize(rng.standard_normal((n, k)).astype(F), name)


def numbers(rng: Any, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(F)


def host(x: Any) -> Any:
    return getattr(x, "elements", x)


def judged(b: Any, members: int, after: int = 0) -> Any:
    """Run it, judge all results of its first step, and give that, which has so many members; after: further steps."""
    b.execute()
    step, *rest = b._schedule().steps
    assert len(rest) == after
    assert isinstance(step.op, SharedOp) and len(step.op.members) == members
    operands = [np.asarray(host(b._replay._array(v, b._uploads.arrays))).reshape(shape) for v, shape in step.reads]
    results = [np.asarray(host(b._found(v))) for v, _ in step.makes]
    verdict = judge_structured(step.op, operands, dict(step.call.static), F, results, step.params)
    assert verdict.ok, str(verdict)
    return step


@pytest.mark.parametrize("m", [*FEW, *MANY, 70])
def test_queries_keys_and_values(m: int) -> None:
    """With biases, and all else that may stand beside: as the result, one number for each of its rows, one number."""
    rng = fresh()
    some = [matrix(rng, *shape) for shape in (("q4_k", 40), ("q6_k", 9), ("q5_0", 17))]
    with trueno.Batch(BACKEND) as b:
        x = b.upload(numbers(rng, m, K))
        q, k, v = (b.quant_matmul(x, b.upload(w)) for w in some)
        results = [
            b.add(q, b.upload(numbers(rng, 40))),
            b.mul(b.bias_activation(k, b.upload(numbers(rng, 9)), activation="silu"), b.upload(numbers(rng, m, 1))),
            b.add(b.scale(v, 3.0), b.upload(numbers(rng, m, 17))),
        ]
        assert len(judged(b, 3).makes) == len(results)


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("formats", MIXED.values(), ids=MIXED)
@pytest.mark.parametrize("m", [2, 4, 5, 8])
def test_gate_and_up(m: int, formats: tuple[str, str], kept: bool) -> None:
    """Up's epilogue reads gate, which few rows have in registers, and more rows in memory: their own, or scratch."""
    rng = fresh()
    with trueno.Batch(BACKEND) as b:
        x = b.upload(numbers(rng, m, K))
        gate, up = (b.quant_matmul(x, b.upload(matrix(rng, name, 37))) for name in formats)
        if kept:
            b.keep(gate)
        hidden = b.swiglu(gate, up)
        assert len(judged(b, 2).makes) == 1 + kept and hidden.shape == (m, 37)


@pytest.mark.parametrize("activations, m", [("f32", 3), ("f32", 17), ("bf16", 2), ("bf16", 20), ("q8", 321)])
def test_other_activations(activations: str, m: int) -> None:
    """Two launches of two and of one row, or bands: with biases, an unkept result, and another product behind."""
    rng = fresh()
    with trueno.Batch(BACKEND) as b:
        x = b.upload(numbers(rng, m, 256))
        gate, up, more = (
            b.quant_matmul(x, b.upload(matrix(rng, name, n, 256)), activations=activations)
            for name, n in (("q4_k", 21), ("q5_k", 21), ("q8_0", 8))
        )
        gate, up = b.add(gate, b.upload(numbers(rng, 21))), b.add(up, b.upload(numbers(rng, 21)))
        results = b.swiglu(gate, up), b.scale(more, 2.0)
        if activations != "bf16":
            assert len(judged(b, 3).makes) == len(results)
            return
        b.keep(gate), b.keep(up)  # an op that reads two products in bfloat16 has a kernel of its own
        assert len(judged(b, 3, after=1).makes) == 3
        g, u = (b.read(h).astype(np.float64) for h in (gate, up))
        np.testing.assert_allclose(b.read(results[0]), g / (1 + np.exp(-g)) * u, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("m", [2, 8])
def test_bits_are_those_of_single_products(m: int) -> None:
    """Partners and places in scratch are no part of a result."""
    rng = fresh()
    x, some = numbers(rng, m, K), [matrix(rng, name, 19) for name in ("q4_k", "q6_k", "q5_k", "q5_1", "q8_0", "q4_0")]
    with trueno.Batch(BACKEND) as b:
        h = b.upload(x)
        results = [b.quant_matmul(h, b.upload(w)) for w in some]
        judged(b, len(some))
        got = [b.read(r) for r in results]
    with trueno.use(BACKEND):
        for one, w in zip(got, some, strict=True):
            np.testing.assert_array_equal(one, trueno.quant_matmul(x, w))


@pytest.mark.parametrize("m", [0, 2, 8])
@pytest.mark.parametrize("k", [0, 256])
def test_empty_matrices(m: int, k: int) -> None:
    """A matrix without rows beside one that has some, rows of x that are not there, and sums of nothing."""
    rng = fresh()
    with trueno.Batch(BACKEND) as b:
        x = b.upload(numbers(rng, m, k))
        none, some = (b.quant_matmul(x, b.upload(matrix(rng, "q4_k", n, k))) for n in (0, 7))
        b.execute()
        assert b.read(none).shape == (m, 0) and b.read(some).shape == (m, 7)
        assert np.isfinite(b.read(some)).all() and (k > 0 or not b.read(some).any())


@pytest.mark.parametrize("m", [2, 8])
@pytest.mark.parametrize("first", [False, True])
def test_a_nan_is_reported(m: int, first: bool) -> None:
    """Of either product, by the name of the whole."""
    rng = fresh()
    with trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP), trueno.Batch(BACKEND) as b:
        x = b.upload(numbers(rng, m, K))
        bad, good = (b.quant_matmul(x, b.upload(matrix(rng, "q4_k", 20))) for _ in range(2))
        if not first:
            bad, good = good, bad
        results = b.sqrt(b.sub(bad, 1e6)), b.relu(good)
        with pytest.raises(trueno.GuardError, match=r"quant_matmul.*quant_matmul"):
            b.execute()
        assert [r.shape for r in results] == [(m, 20)] * 2


@pytest.mark.parametrize("m", [2, 8])
def test_a_result_in_an_operands_place_is_refused(m: int) -> None:
    """Another product may still read that operand, if only as what stands beside it."""
    rng = fresh()
    with trueno.Batch(BACKEND) as b:
        x, beside = b.upload(numbers(rng, m, 256)), b.upload(numbers(rng, m, 8))
        results = [b.add(b.quant_matmul(x, b.upload(matrix(rng, "q8_0", 8, 256))), beside) for _ in range(2)]
        (step,) = b._schedule().steps
        assert len(results) == 2
    operands = [DEVICE.to_device(np.zeros(s, np.uint8) if s == (8, 272) else numbers(rng, *s)) for _, s in step.reads]
    there = operands[[s for _, s in step.reads].index((m, 8))]
    other, want = DEVICE.empty((m, 8), np.dtype(F)), DEVICE.to_host(there)
    kernel = KERNELS.kernel(step.call, DEVICE)
    assert kernel(*operands, there, other) == kernel(*operands, other, other) == -1
    np.testing.assert_array_equal(DEVICE.to_host(there), want)
    assert kernel(*operands, DEVICE.empty((m, 8), np.dtype(F)), other) == 0


@pytest.mark.parametrize("m", [4, 8])
def test_long_rows_of_several_parts_fit_shared_memory(m: int) -> None:
    """Eight products whose rows are taken in chunks."""
    rng = fresh()
    with trueno.Batch(BACKEND) as b:
        x = b.upload(numbers(rng, m, 18944))
        results = [b.quant_matmul(x, b.upload(matrix(rng, "q8_0", 3, 18944))) for _ in range(8)]
        judged(b, len(results))
