"""The backend through the core: arrays that stay, batches, asyncio, guards, failures."""

import asyncio

import numpy as np
import pytest

pytest.importorskip("wgpu")
import trueno
from trueno.discovery import registry
from trueno.discovery.protocol import Call
from trueno.ops import TABLE
from trueno.testing import assert_op
from trueno_wgpu.device import opened


@pytest.fixture(scope="module")
def here(word):
    """The backend in this process, on the adapter of these tests."""
    trueno.settings.override("TRUENO_BLOCK", None)
    registry.entries()
    trueno.settings.override("TRUENO_WGPU_ADAPTER", word or None)
    try:
        yield registry.load("wgpu")
    finally:
        trueno.settings.override("TRUENO_WGPU_ADAPTER", None)


@pytest.fixture
def counts(here):
    here.gpu.wait()
    here.gpu.counts.reset()
    return here.gpu.counts


@pytest.fixture
def x(rng):
    return rng.standard_normal(1000).astype(np.float32)


def test_probe(here):
    assert here.probe(1).ok  # which looks for no adapter: a driver in this process would not survive a fork
    found = here.probe(2)
    assert found.ok and not found.reason
    assert found.devices[0].name == here.gpu.name and found.devices[0].software == here.gpu.software
    assert found.devices[0].isa in ("vulkan", "metal", "d3d12", "opengl")


def test_probe_of_a_device_that_computes_wrong(here, monkeypatch):
    monkeypatch.setattr(here.gpu, "run", lambda *_: None)
    here.gpu.write(here.gpu.alloc(4 * 65), bytes(4 * 65))
    assert "is not two" in here.probe(2).reason


def test_one_call_is_one_submission(here, counts, x):
    with trueno.use("wgpu"):
        y = trueno.relu(x)
    assert_op("relu", [x], y)
    assert (counts.uploads, counts.downloads, counts.kernels, counts.submits) == (1, 1, 1, 1)


def test_arrays_that_stay(here, counts, x):
    with trueno.device("wgpu") as d:
        assert d.adapter_name == here.gpu.name and d.limits["binding"] == here.gpu.limits.binding
        a = d.upload(x)
        y = d.scale(d.relu(a), 2.0)
        assert (counts.uploads, counts.downloads) == (1, 0)
        np.testing.assert_array_equal(d.read(y), 2 * np.maximum(x, 0))
        m = d.upload(np.eye(8, dtype=np.float32) * 3)
        np.testing.assert_array_equal(d.read(d.matmul(m, m)), np.eye(8, dtype=np.float32) * 9)
        out = d.upload(x)
        d.add(a, a, out=out)
        np.testing.assert_array_equal(d.read(out), x + x)
        d.add(out, out, out=out)
        np.testing.assert_array_equal(d.read(out), 4 * x)
        i = d.read(d.argmax(a))
        assert i == x.argmax() and i.dtype == np.int64
    with pytest.raises(trueno.DeviceError, match="closed"):
        d.upload(x)


def test_a_batch_is_one_submission(here, counts, x, rng):
    """Two uploads, one download, one submission of one kernel; and one more, which brings the result."""
    w = rng.standard_normal(1000).astype(np.float32)
    with trueno.use("wgpu"):
        b = trueno.Batch("wgpu")
        y = b.add(b.scale(b.relu(b.upload(x)), 2.0), b.upload(w))
        b.execute()
        found = b.read(y)
    np.testing.assert_allclose(found, 2 * np.maximum(x, 0) + w, rtol=1e-6)
    assert (counts.uploads, counts.downloads, counts.launches, counts.kernels) == (2, 1, 1, 1)
    assert counts.submits == 2 and (b.counts.uploads, b.counts.downloads, b.counts.submits, b.counts.kernels) == (
        2,
        1,
        1,
        1,
    )


def test_asyncio(here, x):
    async def main():
        d = await trueno.aio.device("wgpu")
        a = await trueno.aio.to(x, "wgpu")
        many = await asyncio.gather(*[trueno.aio.scale(a, float(i)) for i in range(16)])
        d.synchronize()
        return [await trueno.aio.numpy(y) for y in many]

    for i, y in enumerate(asyncio.run(main())):
        np.testing.assert_array_equal(y, np.float32(i) * x)


def test_guards(here, x):
    good = np.abs(x)
    bad = good.copy()
    bad[17] = -1
    guard = trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP)
    with trueno.use("wgpu"), guard:
        assert_op("sqrt", [good], trueno.sqrt(good))
        with pytest.raises(trueno.GuardError, match=r"sqrt on wgpu made 1 NaN: the first is y\[17\]"):
            trueno.sqrt(bad)
        assert_op("sqrt", [good], trueno.sqrt(good))


def test_what_it_takes(here):
    def call(name, dtype):
        op = TABLE[name]
        sizes = (5,) * (len(op.operands) if op.structured else 1)
        return Call(op, np.dtype(dtype), op.layout, max(len(op.signature.inputs[0].dims), 1), sizes)

    assert here.supports(call("add", "f4")) is None and here.supports(call("matmul", "f4")) is None
    for name in ("add", "matmul"):
        assert here.supports(call(name, "f8")).code == "unsupported_dtype"
    assert here.supports(call("symmetric_eigen", "f4")).code == "unsupported_op"
    with trueno.use("wgpu"), pytest.raises(trueno.DtypeError, match="wgpu says unsupported_dtype"):
        trueno.add(np.ones(3), np.ones(3))


def test_software_is_never_chosen(here):
    if not here.gpu.software:
        pytest.skip("a real GPU")
    found = trueno.explain("matmul", np.ones((2000, 2000), np.float32), np.ones((2000, 2000), np.float32))
    assert {c.name: c.code for c in found.candidates}["wgpu"] == "software" and found.chosen != "wgpu"


def test_bad_shapes_and_empty_arrays(here, counts, x):
    with trueno.use("wgpu"):
        assert trueno.relu(np.empty((0,), np.float32)).shape == (0,)
        assert trueno.relu(np.empty((3, 0), np.float32)).shape == (3, 0)
        assert counts.kernels == 0
        with pytest.raises(trueno.ShapeError):
            trueno.matmul(np.ones((3, 4), np.float32), np.ones((5, 6), np.float32))
        np.testing.assert_array_equal(
            trueno.relu(np.asfortranarray(x.reshape(10, 100)).T), np.maximum(x.reshape(10, 100).T, 0)
        )
        frozen = x.copy()
        frozen.flags.writeable = False
        np.testing.assert_array_equal(trueno.relu(frozen), np.maximum(x, 0))


def test_too_large(here):
    with trueno.device("wgpu") as d, pytest.raises(trueno.OutOfMemory, match="upload: wgpu failed"):
        d.upload(np.broadcast_to(np.float32(1), (1 << 30,)))


def test_rates_are_of_the_adapter(here):
    op = TABLE["add"]
    rates = here.rates(Call(op, np.dtype("f4"), op.layout, 1, (20,)))
    assert (rates.bytes < 1e10) == here.gpu.software


def test_a_lost_device_ends_the_backend(child, word):
    """Asked for by name it raises; its arrays are gone; the other backends go on."""
    child("""
import trueno
a = trueno.to(np.ones(5, np.float32), "wgpu")
from trueno_wgpu.device import opened
opened.gpu().device.destroy()
raises(trueno.DeviceLost, lambda: trueno.numpy(trueno.relu(a)), "lost")
entry = trueno.backends()["wgpu"]
assert not entry.available and "its device was lost" in entry.reason, entry
raises(trueno.BackendUnavailable, lambda: trueno.to(np.ones(5, np.float32), "wgpu"))
assert (trueno.relu(np.ones(5, np.float32)) == 1).all()
""")


def test_without_an_adapter_others_compute(child):
    child("""
import trueno
trueno.backends()
trueno.settings.override("TRUENO_WGPU_ADAPTER", "riva 128")
assert not trueno.backends()["wgpu"].available
raises(trueno.BackendUnavailable, lambda: trueno.device("wgpu"), "riva 128", "TRUENO_WGPU_ADAPTER")
big = np.ones(200_000, np.float32)
assert (trueno.relu(big) == 1).all()
""")


def test_one_device_a_process(here):
    assert opened.gpu() is here.gpu
