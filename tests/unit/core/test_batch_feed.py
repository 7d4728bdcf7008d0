"""Batches that go from step to step: results fed to uploads, live uploads, results fetched while a device goes on."""

import numpy as np
import pytest
import trueno
from trueno.batch.live import ROOM
from trueno.errors import BatchError, KernelError, ParameterError, ShapeError

F = np.float32
DEVICES = ("fake", "cuda_emulated")
BACKENDS = ("scalar", *DEVICES)


@pytest.fixture(params=BACKENDS)
def backend(request, fake):
    return request.param


def sums(backend, ahead=False):
    """h + n, fed to h, with n from 0 to 5: what h + n is each time."""
    x, n = np.zeros(3, F), np.zeros(3, F)
    with trueno.Batch(backend) as b:
        h, live = b.upload(x), b.upload(n, live=True)
        y = b.add(h, live)
        b.feed(h, y)
        later = []
        for i in range(6):
            n[:] = i
            b.execute(wait=not ahead)
            later.append(b.fetch(y))
        found = [wait() for wait in later]
        assert x.max() == 0, "the caller's array"
        n[:] = 1
        b.update(h, np.full(3, 100, F))
        for _ in range(2):
            b.execute()
        assert b.read(h)[0] == b.read(y)[0] == 102
        return [row[0] for row in found]


@pytest.mark.parametrize("ahead", [False, True])
def test_a_result_is_what_the_next_execution_starts_from(backend, ahead):
    assert sums(backend, ahead) == [0, 1, 3, 6, 10, 15]


def test_an_array_of_the_device_is_not_written_to(backend):
    x = trueno.to(np.ones(4, F), backend)
    with trueno.Batch(backend) as b:
        h = b.upload(x)
        y = b.scale(h, 2.0)
        b.feed(h, y)
        for _ in range(3):
            b.execute()
        assert trueno.numpy(x)[0] == 1 and b.read(y)[0] == 8
        b.update(h, x)
        b.execute()
        assert trueno.numpy(x)[0] == 1 and b.read(y)[0] == 2


@pytest.mark.parametrize("name", DEVICES)
def test_small_live_uploads_take_one_transfer_and_none_if_nothing_changed(fake, name):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(n).astype(F) for n in (1, 7, 64, ROOM)]
    with trueno.Batch(name) as b:
        handles = [b.upload(x, live=True) for x in arrays]
        results = [b.neg(h) for h in handles]
        b.execute()
        before = b.counts
        b.execute()
        assert b.counts.uploads == before.uploads
        for x in arrays[:3]:
            x += 1
        b.execute()
        assert b.counts.uploads - before.uploads == (1 if name == "cuda_emulated" else 3)
        arrays[3][0] = 7
        b.execute()
        for y, x in zip(results, arrays, strict=True):
            np.testing.assert_array_equal(b.read(y), -x)
        other = np.full(7, 5, F)
        b.update(handles[1], other)
        b.execute()
        other[0] = 6  # which is live now
        b.execute()
        assert b.read(results[1]).tolist() == [-6, *[-5] * 6]


def test_a_feed_after_an_execution_counts_no_buffer_twice(backend):
    """The first plan's buffers go before those of the second are there; until then its results can be read."""
    x = np.ones(1000, F)
    with trueno.Batch(backend) as b:
        h = b.upload(x)
        y = b.add(h, 1.0)
        b.execute()
        b.feed(h, y)
        assert b.read(y)[0] == 2
        for _ in range(2):
            b.execute()
        assert b.read(y)[0] == 3 and x[0] == 1
        assert b.counts.peak_bytes == 2 * x.nbytes, "of h, in which the batch writes, and of y"


@pytest.mark.parametrize("name", DEVICES)
def test_a_live_upload_is_live_again_after_an_array_of_the_device(fake, name):
    small, large = (np.full(n, 1, F) for n in (3, ROOM))
    there = [trueno.to(np.full(x.shape, 5, F), name) for x in (small, large)]
    with trueno.Batch(name) as b:
        handles = [b.upload(x, live=True) for x in (small, large)]
        results = [b.neg(h) for h in handles]

        def found():
            b.execute()
            return [b.read(y)[-1] for y in results]

        assert found() == [-1, -1]
        for h, x in zip(handles, there, strict=True):
            b.update(h, x)
        small[:] = large[:] = 2  # which no longer count
        assert found() == found() == [-5, -5]
        for h, x in zip(handles, (small, large), strict=True):
            b.update(h, x)
        assert found() == [-2, -2]
        for i in range(3):
            small[:] = large[:] = 7 + i
            assert found() == [-7 - i, -7 - i]
        assert [trueno.numpy(x)[0] for x in there] == [5, 5], "the caller's arrays"


def test_a_device_is_not_waited_for(fake):
    with trueno.Batch("fake") as b:
        h = b.upload(np.ones(4, F))
        y = b.neg(h)
        for _ in range(3):
            b.execute()
        before = fake.LEDGER.synchronizes
        b.execute(wait=False)
        assert fake.LEDGER.synchronizes == before
        b.execute()
        assert fake.LEDGER.synchronizes == before + 1
        assert b.read(y)[0] == -1


def test_a_failed_run_feeds_nothing_and_may_run_again(fake):
    with trueno.Batch("fake") as b:
        h = b.upload(np.ones(4, F))
        y = b.add(h, h)
        b.feed(h, y)
        for _ in range(3):
            b.execute()
        fake.control.fail(1, kind="kernel")
        with pytest.raises(KernelError):
            b.execute()
        assert b.read(h)[0] == 8
        b.execute()
        assert b.read(y)[0] == 16


def test_wrong_calls_say_what_is_wrong(backend):
    with trueno.Batch(backend) as b:
        x = np.ones(4, F)
        h, live = b.upload(x), b.upload(x.copy(), live=True)
        y = b.neg(b.add(h, live))
        for call, error, words in (
            (lambda: b.feed(y, y), ParameterError, "not an upload"),
            (lambda: b.feed(h, h), ParameterError, "result is an upload"),
            (lambda: b.feed(h, b.sum(y)), ShapeError, "float32 of shape"),
            (lambda: b.upload([1.0, 2.0], live=True), ParameterError, "cannot be live"),
            (lambda: b.fetch(y), BatchError, "not executed"),
        ):
            with pytest.raises(error, match=words):
                call()
        if backend != "scalar":
            with pytest.raises(ParameterError, match="live"):
                b.feed(live, y)


@pytest.mark.parametrize("ahead", [0, 2, 9])
def test_a_cache_counts_the_tokens_of_results_that_were_given(backend, ahead):
    rng = np.random.default_rng(3)
    cache = trueno.KVCache(1, 1, 32, capacity=12, page=4, dtype="float32", device=backend)
    rows = rng.standard_normal((12, 1, 1, 32)).astype(F)
    x = np.zeros((1, 1, 32), F)
    with trueno.Batch(backend) as b:
        step = cache.record(b, 1)
        h = b.upload(x, live=True)
        y = step.attend(0, h, h, h)
        s = cache.new()
        step_rows = step.runs([s], 5, y, before=lambda i: np.copyto(x, rows[i]), ahead=ahead)
        given = [next(step_rows) for _ in range(3)]
        step_rows.close()
        assert cache.length(s) == 3
        given += list(step.runs([s], 2, y, before=lambda i: np.copyto(x, rows[3 + i]), ahead=ahead))
        for i, value in enumerate(given):
            want = trueno.attention(rows[i], rows[: i + 1, 0], rows[: i + 1, 0])
            np.testing.assert_allclose(value, want, rtol=0, atol=1e-5)
        many = step.runs([s], 9, y, before=lambda i: np.copyto(x, rows[i]), ahead=ahead)
        some = []
        with pytest.raises(trueno.OutOfMemory, match="capacity is 12"):
            some.extend(many)
        assert cache.length(s) == 12, "what was begun before the error was given"
