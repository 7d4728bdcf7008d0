"""The whole product in one sitting: read it from top to bottom.

An op, a plan, a batch, a quantized product, a guard, a fallback, and a kernel on the emulator.  What is computed is
compared with NumPy in float64, or with ggml's own encoder, which know nothing of ours.
"""

import gguf
import numpy as np
import pytest
import trueno
import trueno_cuda
from trueno import Action, Condition
from trueno.discovery import registry
from trueno_cuda.ptx import f32, kernel, ptr, u32

X = np.linspace(-3, 3, 48, dtype=np.float32).reshape(4, 12)
BIAS = np.linspace(1, 2, 12, dtype=np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_an_op_is_a_function_of_arrays() -> None:
    np.testing.assert_allclose(trueno.softmax(X), softmax(X), rtol=1e-6)
    out = np.empty_like(X)
    assert trueno.add(X, BIAS, out=out) is out, "operands broadcast, results go where they are wanted"
    np.testing.assert_array_equal(out, X + BIAS)


def test_every_backend_gives_it_and_the_choice_is_explained() -> None:
    for name in ("reference", "scalar", "simd"):
        with trueno.use(name):
            np.testing.assert_allclose(trueno.softmax(X), softmax(X), rtol=1e-6)
    decision = trueno.explain("softmax", X)
    assert decision.chosen in trueno.backends()
    assert {c.name for c in decision.candidates} >= {"reference", "scalar", "simd"}


def test_a_plan_is_the_bare_kernel() -> None:
    y = np.empty_like(X)
    kernel = trueno.softmax.plan(X, backend="scalar")
    assert kernel(X, y) == 0
    np.testing.assert_allclose(y, softmax(X), rtol=1e-6)


def test_a_batch_runs_a_chain_as_one_kernel() -> None:
    with trueno.Batch("scalar") as batch:
        x = batch.upload(X)
        y = batch.mul(batch.relu(batch.add(x, batch.upload(BIAS))), 0.5)
        batch.execute()
        np.testing.assert_allclose(batch.read(y), np.maximum(X.astype(np.float64) + BIAS, 0) * 0.5, rtol=1e-6)


def test_a_product_reads_a_matrix_from_its_blocks() -> None:
    rng = np.random.default_rng(0)
    w, x = rng.standard_normal((32, 256), np.float32), rng.standard_normal(256, np.float32)
    q = trueno.quantize(w, "q8_0")
    kind = gguf.GGMLQuantizationType.Q8_0
    np.testing.assert_array_equal(q.bytes, gguf.quantize(w, kind), err_msg="the bytes are ggml's")
    exact = gguf.dequantize(q.bytes, kind).astype(np.float64)
    with trueno.use("scalar"):
        y = trueno.quant_matvec(q, x, activations="f32")
    np.testing.assert_allclose(y, exact @ x, rtol=1e-5, atol=1e-4)


def test_a_guard_stops_the_line() -> None:
    guard = trueno.JidokaGuard().on(Condition.NAN, Action.STOP)
    x = np.array([4.0, -1.0], np.float32)
    with guard, pytest.raises(trueno.GuardError, match="sqrt"):
        trueno.sqrt(x, out=x)
    np.testing.assert_array_equal(x, [4, -1], err_msg="an operand that was to be overwritten is as it was")


def test_another_backend_computes_where_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self, call):
        raise RuntimeError("LLVM says no")

    monkeypatch.setattr(type(registry.load("simd")), "kernel", fails)
    trueno.reset_quarantine()
    try:
        with trueno.prefer("simd"), pytest.warns(trueno.TruenoWarning, match="LLVM says no"):
            got = trueno.softmax(X)
        np.testing.assert_allclose(got, softmax(X), rtol=1e-6)
    finally:
        monkeypatch.undo()
        trueno.reset_quarantine()


@kernel(threads=32)
def scaled(k, x: ptr(f32), y: ptr(f32), n: u32, *, FACTOR: float):
    """y = FACTOR · x."""
    i = k.ctaid * k.threads + k.tid
    y.store(i, x.load(i, where=i < n) * FACTOR, where=i < n)


def test_a_kernel_is_ptx_and_runs_without_a_gpu() -> None:
    x = np.arange(100, dtype=np.float32)
    on_device, y = (trueno.to(v, "cuda_emulated") for v in (x, np.zeros_like(x)))
    built = scaled.build(FACTOR=3.0, loc=True)
    trueno_cuda.prepared(built, 4, (100,), backend="cuda_emulated")(on_device, y)
    np.testing.assert_array_equal(trueno.numpy(y), 3 * x)
    beyond = trueno_cuda.prepared(built, 4, (101,), backend="cuda_emulated")
    with pytest.raises(trueno.KernelError, match=r"block \(3, 0, 0\), thread \(4, 0, 0\) .*test_tiny\.py"):
        beyond(on_device, y)
