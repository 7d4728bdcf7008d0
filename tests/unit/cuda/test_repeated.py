"""Repeated calls of a kernel: the same answers and refusals as the first time, whatever changed in between."""

import numpy as np
import pytest
from trueno.discovery.protocol import Call
from trueno.errors import KernelError
from trueno.ops import TABLE
from trueno_cuda.device import repeated
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.kernels import KERNELS
from trueno_cuda.rows.rowprogram import kernel
from unit.cuda.rows.calls import Inside, key

F = np.float32
SEED = 20260


class Part(Inside):
    """As a view of a GPU's array is."""

    _c_contiguous = True


@pytest.fixture
def device():
    return Emulator("sm_90")


@pytest.fixture
def rng():
    return np.random.default_rng(SEED)


@pytest.fixture
def bindings(monkeypatch):
    """How often a launch was made for fixed addresses."""
    made, real = [], repeated._written

    def counted(*sizes):
        def around(known, slow, alike):
            def seen(call_key, *given):
                made.append(call_key)
                return slow(call_key, *given)

            return real(*sizes)(known, seen, alike)

        return around

    monkeypatch.setattr(repeated, "_written", counted)
    return made


def there(device, *arrays):
    return [device.to_device(a) for a in arrays]


def test_the_third_call_is_a_launch(device, rng, bindings):
    x, y = rng.standard_normal((2, 3, 40)).astype(F)
    a, b, out = there(device, x, y, np.zeros_like(x))
    add = kernel(device, key("add"))
    for i in range(5):
        out.elements[...] = 7
        assert add(a, b, out) == 0
        np.testing.assert_array_equal(device.to_host(out), x + y)
        assert len(bindings) == min(i + 1, 2)
    device.write(y, a)  # other values at the same place
    assert add(a, b, out) == 0
    np.testing.assert_array_equal(device.to_host(out), y + y)


def test_other_shapes_at_the_same_addresses(device, rng):
    x, y = rng.standard_normal((2, 4, 6)).astype(F)
    a, b, out = there(device, x, y, np.zeros_like(x))
    add = kernel(device, key("add"))
    for _ in range(3):
        assert add(a, b, out) == 0
    turned = [z.reshape((6, 4)) for z in (a, b, out)]
    for _ in range(3):
        assert add(*turned) == 0
        assert add(a, b, turned[2]) == -1
        assert add(turned[0], b, out) == -1
    np.testing.assert_array_equal(device.to_host(out), x + y)
    softmax = kernel(device, key("softmax"))
    for _ in range(3):
        for seen, mean in ((a, x), (turned[0], x.reshape(6, 4))):
            assert softmax(seen, out.reshape(seen.shape)) == 0
            e = np.exp(mean.astype("f8"))
            np.testing.assert_allclose(device.to_host(out).reshape(mean.shape), e / e.sum(-1, keepdims=True), rtol=1e-5)


def test_a_result_over_a_part_of_an_operand_is_refused_every_time(device, rng):
    whole = device.to_device(rng.standard_normal((4, 8)).astype(F))
    before = device.to_host(whole)
    one, other = (Part((3, 8), F, whole.data.ptr + 32 * i) for i in range(2))
    neg = kernel(device, key("neg"))
    for _ in range(4):
        assert neg(one, other) == -1
    np.testing.assert_array_equal(device.to_host(whole), before)


def test_floats_are_given_each_time(device, rng):
    x = rng.standard_normal((2, 16)).astype(F)
    a, out = there(device, x, np.zeros_like(x))
    scale = kernel(device, key("scale"))
    for s in (2.0, -1.5, 0.25, 8.0):
        assert scale(a, s, out) == 0
        np.testing.assert_array_equal(device.to_host(out), x * F(s))


def test_shapes_that_are_known(device, rng):
    x = rng.standard_normal((2, 16)).astype(F)
    a, out = there(device, x, np.zeros_like(x))
    neg = kernel(device, key("neg"))
    again = [neg.bind(((2, 16), (2, 16))) for _ in range(2)]
    flat = kernel(device, key("neg", rank=1)).bind(((32,), (32,)))
    for _ in range(3):
        for call in again:
            out.elements[...] = 7
            assert call(a, out) == 0
            np.testing.assert_array_equal(device.to_host(out), -x)
        out.elements[...] = 7
        assert flat(a, out) == 0
        np.testing.assert_array_equal(device.to_host(out), -x)
    gaps = Part((2, 16), F, a.data.ptr)
    gaps._c_contiguous = False
    assert flat(gaps, out) == -1
    with pytest.raises(KernelError, match="1 operands and 1 results has no 3 shapes"):
        neg.bind(((2, 16),) * 3)


def test_no_more_arrays_are_known_than_fit(device, monkeypatch, bindings):
    monkeypatch.setattr(repeated, "READY", 4)
    neg = kernel(device, key("neg", rank=1))
    arrays = [there(device, np.full(8, i, F), np.zeros(8, F)) for i in range(10)]
    for _ in range(3):
        for i, (a, out) in enumerate(arrays):
            out.elements[...] = 7
            assert neg(a, out) == 0 and neg(a, out) == 0 and neg(a, out) == 0
            assert (device.to_host(out) == -F(i)).all()
    assert len(bindings) > 2 * len(arrays)  # some were forgotten


def test_where_another_gpu_may_have_the_array_it_is_looked_at_each_time(device):
    device.alone = False
    assert not hasattr(kernel(device, key("neg")), "bind")


@pytest.mark.parametrize("name", ["transpose", "outer", "matmul", "matvec", "vecmat"])
def test_kernels_written_by_hand(device, rng, name, bindings):
    vectors = {"outer": (1, 1), "matvec": (2, 1), "vecmat": (1, 2)}.get(name, (2, 2))[: len(TABLE[name].operands)]
    operands = [rng.standard_normal((24, 24)[:ndim]).astype(F) for ndim in vectors]
    mean = {"transpose": np.transpose, "outer": np.outer}.get(name, np.matmul)
    there_, out = there(device, *operands), device.to_device(np.zeros_like(mean(*operands)))
    call = Call(TABLE[name], np.dtype(F), "", vectors[0], (10,) * len(vectors), (), "cuda_emulated")
    run = KERNELS.kernel(call, device)
    for _ in range(5):
        operands = [rng.standard_normal(x.shape).astype(F) for x in operands]
        for x, y in zip(operands, there_, strict=True):
            device.write(x, y)
        out.elements[...] = 7
        assert run(*there_, out) == 0
        np.testing.assert_allclose(device.to_host(out), mean(*operands), rtol=1e-4, atol=1e-4)
    assert len(bindings) == 2
    if vectors[0] == 2:
        assert run(*there_, there_[0]) == -1 and run(*there_[:-1], out, out) == -1
    again = run.bind((*(x.shape for x in operands), out.shape))
    for _ in range(3):
        out.elements[...] = 7
        assert again(*there_, out) == 0
        np.testing.assert_allclose(device.to_host(out), mean(*operands), rtol=1e-4, atol=1e-4)
