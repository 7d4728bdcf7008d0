"""PyTorch tensors in and out: values, memory, dtypes, and the errors of what is not taken."""

import asyncio
import gc
import sys

import numpy as np
import pytest
import trueno
from trueno.cli.samples import sample
from trueno.errors import DeviceError, DtypeError, OutError
from trueno.ops import TABLE

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
BF16 = np.dtype(pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed").bfloat16)
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@pytest.fixture(autouse=True)
def _without_compilation():
    with trueno.use("reference"):
        yield


def numpy(t):
    """A tensor as a NumPy array, bfloat16 by its bits."""
    return t.contiguous().view(torch.int16).numpy().view(BF16) if t.dtype is torch.bfloat16 else t.numpy()


def tensor(x):
    return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16) if x.dtype == BF16 else torch.from_numpy(x)


def layouts(rng):
    """Tensors of random shapes: contiguous, transposed, with steps, with a repeated axis, empty, without axes."""
    a, b, c = (int(n) for n in rng.integers(1, 6, 3))
    plain = torch.from_numpy(rng.standard_normal((a, b, c)))
    return {
        "plain": plain,
        "transposed": plain.transpose(0, 2),
        "steps": torch.from_numpy(rng.standard_normal((a, 3 * b)))[:, ::3],
        "from within": torch.from_numpy(rng.standard_normal((a + 2, b)))[1:-1],
        "repeated": torch.from_numpy(rng.standard_normal((1, b))).expand(a, b),
        "empty": torch.empty((0, b), dtype=torch.float64),
        "one number": torch.tensor(float(rng.standard_normal()), dtype=torch.float64),
    }


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_elementwise_in_every_layout(dtype, rng):
    for name, wide in layouts(rng).items():
        x, y = wide.to(dtype), (wide + 1).to(dtype)
        got = trueno.add(x, y)
        assert type(got) is torch.Tensor and got.dtype is dtype and got.shape == wide.shape, name
        assert torch.equal(got, x + y), name  # a sum of two numbers is rounded once, here and in PyTorch
        np.testing.assert_array_equal(numpy(got), numpy(x) + numpy(y))  # and in ml_dtypes


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_and_reductions_along_any_axis(dtype, rng):
    shape = tuple(int(n) for n in rng.integers(1, 7, 3))
    x = torch.from_numpy(rng.standard_normal(shape)).to(dtype).transpose(0, 1)
    exact = x.double()
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]
    for axis in (-3, -1, 0, 1):
        close = {"rtol": tolerance, "atol": tolerance}
        torch.testing.assert_close(trueno.softmax(x, axis=axis).double(), torch.softmax(exact, axis), **close)
        total = trueno.sum(x, axis=axis, keepdims=True)
        torch.testing.assert_close(total.double(), exact.sum(axis, keepdim=True), rtol=tolerance, atol=10 * tolerance)
        where = trueno.argmax(x, axis=axis)
        assert where.dtype is torch.int64 and where.shape == exact.argmax(axis).shape
        assert torch.equal(x.gather(axis, where.unsqueeze(axis)), x.amax(axis, keepdim=True))
    total = trueno.sum(x, axis=None)
    assert type(total) is torch.Tensor and total.shape == () and total.dtype is dtype


@pytest.mark.parametrize("name", TABLE)
def test_every_op_gives_the_bits_that_it_gives_for_arrays(name, rng):
    op = TABLE[name]
    s = sample(op, np.float32, 64, seed=int(rng.integers(1 << 30)))
    want = getattr(trueno, name)(*s.operands, **s.kwargs)
    got = getattr(trueno, name)(*(torch.from_numpy(np.array(x)) for x in s.operands), **s.kwargs)
    for g, w in zip(
        got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,), strict=True
    ):
        assert type(g) is torch.Tensor
        np.testing.assert_array_equal(g.numpy(), w)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_out_is_written_in_place(dtype, rng):
    x = torch.from_numpy(rng.standard_normal((3, 8))).to(dtype)
    whole = torch.zeros((3, 16), dtype=dtype)
    for out in (torch.empty_like(x), whole[:, ::2], torch.empty((8, 3), dtype=dtype).T):
        address = out.data_ptr()
        assert trueno.relu(x, out=out) is out
        assert out.data_ptr() == address and torch.equal(out, torch.relu(x))
    assert not whole[:, 1::2].any()
    address, want = x.data_ptr(), torch.relu(x)
    assert trueno.relu(x, out=x) is x and x.data_ptr() == address and torch.equal(x, want)


def test_two_results_and_two_outs(rng):
    x = torch.from_numpy(rng.standard_normal((4, 9)))
    values, places = trueno.topk(x, 3)
    assert torch.equal(values, torch.topk(x, 3).values) and torch.equal(places, torch.topk(x, 3).indices)
    outs = torch.empty_like(values), torch.empty_like(places)
    assert trueno.topk(x, 3, out=outs) == outs
    assert torch.equal(outs[0], values) and torch.equal(outs[1], places)


def test_results_share_no_memory_and_operands_do(rng, monkeypatch):
    from trueno.dispatch import host

    x, seen = torch.from_numpy(rng.standard_normal((3, 4)))[:, ::2].bfloat16(), []
    coerce = host.coerce
    monkeypatch.setattr(host, "coerce", lambda op, operands: seen.append(operands) or coerce(op, operands))
    y = trueno.neg(x)
    assert seen[0][0].ctypes.data == x.data_ptr() and seen[0][0].dtype == BF16
    assert y.data_ptr() != x.data_ptr()


def test_bfloat16_keeps_every_bit():
    bits = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)
    every = bits.view(torch.bfloat16)
    out = numpy(trueno.mul(every, 1.0))
    number = ~np.isnan(numpy(every).astype(np.float32))
    np.testing.assert_array_equal(out.view(np.int16)[number], bits.numpy()[number])
    assert np.isnan(out.astype(np.float32)[~number]).all()


def test_numbers_and_lists_stand_beside_tensors(rng):
    x = torch.from_numpy(rng.standard_normal((3, 4)).astype(np.float32))
    for two in (2, 2.0, np.float32(2), torch.tensor(2.0)):
        assert torch.equal(trueno.mul(x, two), 2 * x)
    assert torch.equal(trueno.sub(1.0, x), 1 - x)
    assert torch.equal(trueno.add(x, [1, 2, 3, 4]), x + torch.tensor([1, 2, 3, 4]))
    out = torch.empty(3)
    assert trueno.add([1.0, 2.0, 3.0], 1, out=out) is out and out.tolist() == [2, 3, 4]


def test_numpy_and_tensors_are_not_mixed(rng):
    x = rng.standard_normal((3, 4)).astype(np.float32)
    t = torch.from_numpy(x)
    with pytest.raises(
        DtypeError, match=r"add: x is a PyTorch tensor, but y is a NumPy array; convert one: torch.from_n"
    ):
        trueno.add(t, x)
    with pytest.raises(
        DtypeError, match=r"add: y is a PyTorch tensor, but x is a NumPy array; convert one: .* y\.numpy"
    ):
        trueno.add(x, t)
    with pytest.raises(OutError, match="relu: out is a PyTorch tensor, but x is a NumPy array"):
        trueno.relu(x, out=t)
    with pytest.raises(OutError, match="relu: x is a PyTorch tensor, but out is a NumPy array"):
        trueno.relu(t, out=x)
    with pytest.raises(OutError, match=r"relu: out for y is float32 of shape \(2,\)"):
        trueno.relu(t, out=torch.empty(2))


def test_what_is_not_taken(rng):
    x = torch.from_numpy(rng.standard_normal((3, 4)).astype(np.float32))
    with pytest.raises(DtypeError, match=r"relu: x is a PyTorch tensor of int32; .* convert it with x\.float\(\)"):
        trueno.relu(x.int())
    with pytest.raises(DtypeError, match="complex64"):
        trueno.relu(x.to(torch.complex64))
    with pytest.raises(DtypeError, match=r"float8.*x\.float\(\)"):
        trueno.relu(x.to(torch.float8_e4m3fn))
    with pytest.raises(DtypeError, match=r"layout torch.sparse_coo; give x.to_dense"):
        trueno.relu(x.to_sparse())
    with pytest.raises(DeviceError, match=r"without data; import trueno\.torch"):
        trueno.relu(x.to("meta"))
    with pytest.raises(DtypeError, match="y is float64, but x is float32"):
        trueno.add(x, x.double())


def test_gradients_are_refused_and_not_lost(rng):
    x = torch.from_numpy(rng.standard_normal((3, 4))).requires_grad_()
    with pytest.raises(DtypeError, match=r"relu: x requires a gradient, .* x\.detach\(\), .*no_grad"):
        trueno.relu(x)
    with pytest.raises(DtypeError, match="out requires a gradient"):
        trueno.relu(x.detach(), out=x)
    with torch.no_grad():
        y = trueno.relu(x)
    assert torch.equal(y, torch.relu(x.detach())) and not y.requires_grad
    assert torch.equal(trueno.relu(x.detach()), y)
    layer = torch.nn.Linear(4, 2, dtype=torch.float64)
    with torch.inference_mode():
        torch.testing.assert_close(trueno.matmul(x, layer.weight.T), x @ layer.weight.T)


@pytest.mark.parametrize("q", ["q4_k", "q8_0"])
def test_quantized_products(q, rng):
    w = torch.from_numpy(rng.standard_normal((6, 256)).astype(np.float32))
    x = torch.from_numpy(rng.standard_normal((3, 256)).astype(np.float32))
    matrix = trueno.quantize(w, q)
    assert matrix == trueno.quantize(w.numpy(), q)
    want = trueno.quant_matmul(x.numpy(), matrix)
    blocks = torch.from_numpy(matrix.bytes)
    products = [trueno.quant_matmul(x, matrix), trueno.quant_matmul(x, blocks, format=q), x @ matrix.T, matrix @ x.T]
    for got, turned in zip(products, (0, 0, 0, 1), strict=True):
        assert type(got) is torch.Tensor
        np.testing.assert_array_equal(got.numpy().T if turned else got.numpy(), want)
    assert torch.equal(trueno.dequantize(blocks, format=q), torch.from_numpy(trueno.dequantize(matrix)))


def test_beside_a_vector_or_matrix_results_are_those(rng):
    v = trueno.Vector(rng.standard_normal(4))
    t = torch.from_numpy(rng.standard_normal(4))
    for y in (trueno.add(v, t), trueno.add(t, v), v.add(t)):
        assert isinstance(y, trueno.Vector)
        np.testing.assert_array_equal(y.numpy(), v.numpy() + t.numpy())
    held = trueno.Vector(t.bfloat16())
    assert held.dtype == BF16 and trueno.numpy(t.bfloat16()).dtype == BF16


def test_explain_plan_aio_and_batches_take_tensors(rng):
    x = torch.from_numpy(rng.standard_normal((3, 4)).astype(np.float32))
    for t in (x, x.bfloat16()):
        assert trueno.explain(trueno.softmax, t).chosen == trueno.explain(trueno.softmax, numpy(t)).chosen
    y = np.empty((3, 4), np.float32)
    assert not trueno.softmax.plan(x, backend="reference")(x.numpy(), y)
    np.testing.assert_array_equal(y, trueno.softmax(x).numpy())
    awaited = asyncio.run(trueno.aio.softmax(x))
    assert type(awaited) is torch.Tensor and torch.equal(awaited, trueno.softmax(x))
    with trueno.Batch(backend="reference") as b:
        handle = b.softmax(b.upload(x))
        with pytest.raises(DtypeError, match=r"write b\.upload\(x\)"):
            b.softmax(x)
        b.execute()
        np.testing.assert_array_equal(b.read(handle), y)


def test_nothing_leaks(rng):
    x = torch.from_numpy(rng.standard_normal(5).astype(np.float32))
    half, out = x.bfloat16(), torch.empty(5)
    calls = (
        lambda: trueno.relu(x),
        lambda: trueno.relu(half),
        lambda: trueno.relu(x, out=out),
        lambda: trueno.add(x, x),
    )
    for call in calls:
        call()
    gc.collect()
    before = [sys.getrefcount(t) for t in (x, half, out)], len(gc.get_objects())
    for call in calls:
        for _ in range(1000):
            call()
    gc.collect()
    after = [sys.getrefcount(t) for t in (x, half, out)], len(gc.get_objects())
    assert after[0] == before[0] and after[1] < before[1] + 100


def test_a_backend_that_owns_tensors_keeps_them(rng, monkeypatch):
    from trueno.discovery import registry
    from trueno.interop import kinds

    x = torch.from_numpy(rng.standard_normal(3))
    assert trueno.relu(x).shape == (3,) and kinds.library(torch.Tensor) is not None
    monkeypatch.setattr(registry, "owner", lambda kind: "it" if kind is torch.Tensor else None)
    monkeypatch.setattr(kinds, "_known", {})
    assert kinds.library(torch.Tensor) is None


def test_functions_that_are_not_ops(rng):
    x = torch.from_numpy(rng.standard_normal((3, 4)).astype(np.float32)).bfloat16()
    first, second = trueno.split(x, [1, 2])
    assert torch.equal(first, x[:1]) and torch.equal(second, x[1:]) and second.data_ptr() == x[1:].data_ptr()
    assert torch.equal(trueno.repeat(x, 2, axis=1), x.repeat_interleave(2, 1))
    assert torch.equal(trueno.repeat(x[:1], 3), x[:1].expand(3, 4))
    cache = trueno.KVCache(layers=1, kv_heads=2, head_dim=8, capacity=16, dtype=np.float32)
    sequence = cache.new()
    k, v, q = (torch.from_numpy(rng.standard_normal((5, 2, 8)).astype(np.float32)) for _ in "kvq")
    cache.append(0, k, v, sequence)
    y = cache.attend(0, q, sequence)
    assert type(y) is torch.Tensor
    heads = [t.transpose(0, 1) for t in (q, k, v)]
    want = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True).transpose(0, 1)
    torch.testing.assert_close(y, want, rtol=1e-4, atol=1e-5)


def test_tensors_that_torch_traces_are_named(rng):
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode(), pytest.raises(DeviceError, match=r"without data; import trueno\.torch"):
        trueno.relu(torch.empty(3))
    with pytest.raises(DtypeError, match=r"relu: x is a PyTorch tensor of torch.float64 that NumPy cannot take"):
        torch.vmap(trueno.relu)(torch.from_numpy(rng.standard_normal((2, 3))))


def test_a_batch_reads_into_a_tensor(rng):
    x = torch.from_numpy(rng.standard_normal((3, 4)).astype(np.float32))
    with trueno.Batch("reference") as b:
        h = b.relu(b.upload(x))
        b.execute()
        out = torch.empty(3, 4)
        assert b.read(h, out) is out and torch.equal(out, torch.relu(x))
        for wrong in (torch.empty(4, 3), torch.empty(3, 4, dtype=torch.float64)):
            with pytest.raises(OutError, match=r"it must be a writeable array of float32 and shape \(3, 4\)"):
                b.read(h, wrong)
