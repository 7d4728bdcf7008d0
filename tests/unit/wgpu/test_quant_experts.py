"""quant_experts of wgpu against float64 on the decoded weights, and to the bit against the product of each expert."""

from dataclasses import replace

import gguf
import numpy as np
import pytest

pytest.importorskip("wgpu")
import trueno
from trueno.backend import FORMATS
from trueno.errors import KernelError, ParameterError
from trueno_wgpu.device.array import Array
from trueno_wgpu.kernels.quant import experts
from trueno_wgpu.kernels.stacked import stack
from unit.wgpu.products import assert_within, floats, kernel, unwritten

pytestmark = pytest.mark.usefixtures("chosen")

OUTPUTS, COUNT, K = 20, 5, 512


def matrix(rng, form):
    """Blocks, and their numbers as the gguf package decodes them."""
    q = trueno.quantize(floats(rng, COUNT * OUTPUTS, K), form)
    kind = getattr(gguf.GGMLQuantizationType, form.upper())
    return q, gguf.dequantize(q.bytes, kind).astype(np.float64).reshape(COUNT, OUTPUTS, K)


def compute(gpu, q, x, ids, shape, form, activations, outputs=OUTPUTS, guarded=False):
    out = unwritten(gpu, (*shape, outputs))
    static = {"outputs": outputs, "format": form, "activations": activations}
    call = kernel(gpu, "quant_experts", q.bytes, x, ids, guarded=guarded, **static)
    assert call(Array.of(gpu, q.bytes), Array.of(gpu, x), Array.of(gpu, ids), out) == 0
    return out.numpy()


@pytest.mark.parametrize("form", ["q4_0", "q5_1", "q8_0", "q4_k", "q6_k", "iq4_xs", "mxfp4"])
def test_floats_against_float64(gpu, rng, form):
    q, numbers = matrix(rng, form)
    for t, u in ((1, 1), (1, 4), (7, 2), (21, 2)):
        x, ids = floats(rng, t, 1, K), rng.integers(0, COUNT, (t, u))
        got = compute(gpu, q, x, ids, (t, u), form, "f32")
        want = np.einsum("tuok,tk->tuo", numbers[ids], x[:, 0].astype(np.float64))
        weight = np.einsum("tuok,tk->tuo", np.abs(numbers[ids]), np.abs(x[:, 0]).astype(np.float64))
        assert_within(got, want, weight, K + 8)


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("form", ["q4_0", "q4_k", "q6_k"])
@pytest.mark.parametrize("activations", ["q8", "f32"])
def test_each_row_is_the_product_with_its_expert(gpu, rng, form, activations, guarded):
    """Broadcast or not: the same numbers as quant_matvec on the rows of that expert, but for the order of the sum."""
    q, _ = matrix(rng, form)
    x, ids = floats(rng, 3, 4, K), rng.integers(0, COUNT, (3, 4))
    gpu.take_status()
    got = compute(gpu, q, x, ids, (3, 4), form, activations, guarded=guarded)
    assert gpu.take_status() == 0
    with trueno.use("reference"):
        for at in np.ndindex(3, 4):
            rows = q[OUTPUTS * ids[at] : OUTPUTS * (ids[at] + 1)]
            want = trueno.quant_matvec(rows, x[at], activations=activations)
            np.testing.assert_allclose(got[at], want, rtol=0, atol=2e-5 * np.abs(want).max())
    same = compute(gpu, q, x[:, :1].copy(), ids, (3, 4), form, activations)
    repeated = compute(gpu, q, np.repeat(x[:, :1], 4, 1), ids, (3, 4), form, activations)
    np.testing.assert_array_equal(same, repeated)
    np.testing.assert_array_equal(compute(gpu, q, x[0, 0], ids[0, 0], (), form, activations), same[0, 0])


@pytest.mark.parametrize("activations", ["q8", "f32"])
def test_an_expert_outside_gives_nan(gpu, rng, activations):
    """The host checks indices where it can; on the device a wrong one reads nothing, whatever its low word says."""
    q, _ = matrix(rng, "q8_0")
    x, ids = floats(rng, 6, K), np.array([0, COUNT, -1, 2**32, 2**32 + 1, 4])
    gpu.take_status()
    got = compute(gpu, q, x, ids, (6,), "q8_0", activations, guarded=True)
    assert gpu.take_status() == 1
    assert np.isnan(got[1:5]).all()
    right = compute(gpu, q, x, np.clip(ids, 0, 4), (6,), "q8_0", activations)
    np.testing.assert_array_equal(got[[0, 5]], right[[0, 5]])


@pytest.mark.parametrize("n", [2, 40])
def test_a_guard_hears_of_nan_and_inf(gpu, rng, n):
    """Only from an expert that is named, alone or together: one scale of the last is Inf."""
    q, _ = matrix(rng, "q8_0")
    q.bytes[-1, :2] = np.frombuffer(np.float16("inf").tobytes(), np.uint8)
    for expert in (0, COUNT - 1):
        gpu.take_status()
        got = compute(gpu, q, floats(rng, n, K), np.full(n, expert), (n,), "q8_0", "f32", guarded=True)
        bits = int(np.isnan(got).any()) | 2 * int(np.isinf(got).any())
        assert gpu.take_status() == bits
        assert (bits > 0) == (expert > 0)


@pytest.mark.parametrize("activations", ["q8", "f32"])
@pytest.mark.parametrize("lead", [(40, 1), (1, 40), (8, 5)], ids=str)
def test_rows_that_share_experts_are_computed_together(gpu, rng, activations, lead):
    """Eight at a time, in any order; an expert without a row, and rows without an expert, are among them."""
    q, _ = matrix(rng, "q4_k")
    x, ids = floats(rng, *lead, K), rng.choice([0, 1, 2, 4, 5, -1, 2**32 + 1], (8, 5) if lead == (8, 5) else 40)
    shape = np.broadcast_shapes(lead, ids.shape)
    gpu.counts.reset()
    got = compute(gpu, q, x, ids, shape, "q4_k", activations)
    assert gpu.counts.kernels == (3 if activations == "q8" else 2)
    xs, named = np.broadcast_to(x, (*shape, K)), np.broadcast_to(ids, shape)
    for at in np.ndindex(shape[:1]):
        few = np.ascontiguousarray(xs[at][:8]), np.ascontiguousarray(named[at][:8])
        one = compute(gpu, q, *few, few[1].shape, "q4_k", activations)
        np.testing.assert_allclose(got[at][:8], one, rtol=0, atol=2e-5 * np.nanmax(np.abs(one), initial=1))


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("groups", [65535, 7])
def test_experts_beyond_a_binding(gpu, rng, monkeypatch, groups, times):
    """Rows alone, and together."""
    f = FORMATS["q8_0"]
    q = trueno.quantize(floats(rng, COUNT * 64, K), "q8_0")
    n = 8 * times
    x, ids = floats(rng, n, K), np.tile([0, 1, 2, 3, 4, 4, 9, -1], times)
    want = compute(gpu, q, x, ids, (n,), "q8_0", "f32", 64)
    limits = replace(gpu.limits, binding=80 << 10, groups=groups)
    monkeypatch.setattr(gpu, "limits", limits)
    there, out = [Array.of(gpu, a) for a in (q.bytes, x, ids)], unwritten(gpu, (n, 64))
    gpu.counts.reset()
    planned = stack((n,), ((n,), (n,)), (1, 1))
    experts.multiply(gpu, f, "f32", (*there, out), 64, planned)
    assert gpu.counts.kernels >= 3
    np.testing.assert_array_equal(out.numpy(), want)
    more = Array.empty(gpu, (50, K), np.float32)
    with pytest.raises(KernelError, match="quant_experts: an array has 102400 bytes, and this adapter binds 81920"):
        experts.multiply(gpu, f, "f32", (there[0], more, there[2], out), 64, planned)


def test_refusals(gpu, rng):
    q, _ = matrix(rng, "q8_0")
    static = {"outputs": OUTPUTS, "format": "q8_0", "activations": "q8"}
    call = kernel(gpu, "quant_experts", q.bytes, np.zeros((3, K)), np.zeros(3), **static)
    for w, x, ids, out in (
        (q.bytes[:-1], (3, K), (3,), (3, OUTPUTS)),
        (q.bytes, (3, 256), (3,), (3, OUTPUTS)),
        (q.bytes, (3, K), (2,), (3, OUTPUTS)),
        (q.bytes, (3, K), (3,), (3, OUTPUTS + 1)),
        (q.bytes, (3, K), (3,), (2, 3, OUTPUTS)),
    ):
        operands = Array.of(gpu, w), Array.empty(gpu, x, np.float32), Array.of(gpu, np.zeros(ids, np.int64))
        assert call(*operands, unwritten(gpu, out)) == -1


def test_in_a_batch_and_from_the_host(gpu, rng):
    q, _ = matrix(rng, "q4_k")
    x, ids = floats(rng, 2, 1, K), np.array([[0, 3], [4, 1]])
    with trueno.use("wgpu"):
        want = trueno.quant_experts(q, x, ids, outputs=OUTPUTS)
        with pytest.raises(ParameterError, match="quant_experts: ids"):
            trueno.quant_experts(q, x, ids + 3, outputs=OUTPUTS)
    there = trueno.quant_experts(trueno.to(q, "wgpu"), *(trueno.to(a, "wgpu") for a in (x, ids)), outputs=OUTPUTS)
    np.testing.assert_array_equal(trueno.numpy(there), want)
    with trueno.Batch("wgpu") as b:
        named = b.upload(ids)
        rows = b.quant_experts(b.upload(q), b.upload(np.repeat(x, 2, 1)), named, outputs=OUTPUTS)
        b.execute()
        np.testing.assert_array_equal(b.read(rows), want)
        b.update(named, ids[::-1].copy())
        b.execute()
        assert not np.array_equal(b.read(rows), want)
        assert "general path" not in str(b)
