"""Calls where one thread must not wait (Pyodide): on a device whose reads are awaited, and which is opened so."""

import asyncio

import numpy as np
import pytest
import trueno
from seeds import fresh_seed
from trueno import aio
from trueno.aio import threads, turns
from trueno.discovery import registry
from trueno.errors import DeviceError


@pytest.fixture
def page(fake, monkeypatch):
    """The fake device as a page has one; the list has what was awaited."""
    awaited: list[str] = []
    kind = type(registry.load("fake"))
    read = kind.to_host

    async def open_async(self):
        await asyncio.sleep(0)
        awaited.append("open")
        return registry.entries()["fake"].devices

    async def to_host_async(self, x):
        await asyncio.sleep(0)
        awaited.append("read")
        return read(self, x)

    def to_host(self, x, out=None):
        raise DeviceError("fake: await it")

    monkeypatch.setattr(kind, "open_async", open_async, raising=False)
    monkeypatch.setattr(kind, "to_host_async", to_host_async, raising=False)
    monkeypatch.setattr(kind, "to_host", to_host)
    monkeypatch.setattr(threads, "possible", lambda: False)
    monkeypatch.setattr(turns, "sync_available", lambda: False)
    monkeypatch.setattr("trueno.context.sync_available", lambda: False)
    return awaited


@pytest.fixture
def x():
    print(f"seed {(seed := fresh_seed())}")
    return np.random.default_rng(seed).standard_normal((5, 7)).astype(np.float32)


def test_a_device_s_arrays(page, x):
    async def main():
        with await aio.device("fake") as d:
            y = d.relu(d.upload(x))
            with pytest.raises(DeviceError, match="await it"):
                d.read(y)
            return await aio.numpy(y), await aio.numpy(await aio.add(y, y)), await aio.numpy(x)

    y, z, same = asyncio.run(main())
    np.testing.assert_array_equal(y, np.maximum(x, 0))
    np.testing.assert_array_equal(z, 2 * y)
    assert page == ["open", "read", "read"] and same is not None and (same == x).all()


def test_numpy_s_arrays_under_use(page, x):
    """They go to the device that is named; results come back as everywhere: arrays, numbers, `out`, or several."""

    async def main():
        with trueno.use("fake"):
            out = np.empty_like(x)
            assert await aio.neg(x, out=out) is out
            return out, await aio.sum(x, axis=None), await aio.topk(x, k=2), await aio.add(x, x[0].tolist())

    out, total, (values, places), added = asyncio.run(main())
    np.testing.assert_array_equal(out, -x)
    assert isinstance(total, np.floating) and abs(total - x.sum(dtype=float)) < 1e-4
    np.testing.assert_array_equal(places, np.argsort(-x, axis=1, kind="stable")[:, :2])
    np.testing.assert_array_equal(values, np.take_along_axis(x, places, 1))
    np.testing.assert_array_equal(added, x + x[0])
    assert set(page) == {"open", "read"}


def test_without_a_name_calls_stay_on_the_host(page, x):
    np.testing.assert_array_equal(asyncio.run(aio.neg(x)), -x)
    assert page == []


def test_matrices_in_blocks(page, x):
    q = trueno.quantize(np.tile(x.ravel()[:32], (3, 8)), "q8_0")

    async def main():
        there = await aio.to(q, "fake")
        return await aio.numpy(there)

    assert asyncio.run(main()).bytes.tolist() == q.bytes.tolist()


def test_a_batch(page, x):
    with trueno.Batch("fake") as b:
        h = b.neg(b.upload(x))
        s = b.sum(h, axis=None)

        async def main():
            await b.execute_async()
            with pytest.raises(DeviceError, match="await it"):
                b.read(h)
            reading = asyncio.ensure_future(b.read_async(h))
            await asyncio.sleep(0)
            with pytest.raises(trueno.BatchError, match="being executed"):
                b.read(h)
            return await reading, await b.read_async(s)

        y, total = asyncio.run(main())
        assert b.counts.downloads == 2
    np.testing.assert_array_equal(y, -x)
    assert isinstance(total, np.floating)


@pytest.mark.parametrize("name", [None, "fake"])
def test_elsewhere_read_async_is_read(fake, x, name):
    with trueno.Batch(name) as b:
        h = b.neg(b.upload(x))

        async def main():
            await b.execute_async()
            return await b.read_async(h)

        np.testing.assert_array_equal(asyncio.run(main()), -x)
        with pytest.raises(trueno.BatchError, match="not executed yet"):
            asyncio.run(b.read_async(b.abs(h)))


def test_errors_come_before_a_device_is_opened(page):
    for call in (lambda: aio.device("nothing"), lambda: aio.to(np.ones(3), "nothing"), lambda: aio.to(np.ones(3), 3)):
        with pytest.raises((trueno.UnknownBackend, trueno.ParameterError)):
            asyncio.run(call())
    assert page == []
