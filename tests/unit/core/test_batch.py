"""What a batch refuses, and when; executing in a worker thread; printing; and its life."""

import asyncio
import copy
import gc
import inspect
import pickle
import threading
import time
import weakref

import numpy as np
import pytest
import trueno
from trueno.ops import ALIASES, TABLE

F = np.float32


@pytest.fixture
def b():
    with trueno.Batch("reference") as batch:
        yield batch


# ---- recording errors ---------------------------------------------------------------------------------


def test_shapes_are_checked_at_once(b):
    h = b.upload(np.ones((3, 4), F))
    with pytest.raises(trueno.ShapeError, match="add: y has 5"):
        b.add(h, b.upload(np.ones(5, F)))
    with pytest.raises(trueno.ShapeError, match="matmul: b"):
        b.matmul(h, h)
    with pytest.raises(trueno.ShapeError, match="rms_norm: w"):
        b.rms_norm(h, b.upload(np.ones(3, F)))
    with pytest.raises(trueno.ShapeError, match="max: x has an empty row"):
        b.max(b.upload(np.ones((2, 0), F)))
    with pytest.raises(trueno.ParameterError, match="axis is 2"):
        b.sum(h, axis=2)
    b.execute()


def test_a_fold_is_no_element_and_an_element_no_fold(b):
    h = b.upload(np.ones((3, 4), F))
    total = b.sum(h)
    with pytest.raises(trueno.ShapeError, match="add"):
        b.add(h, total)  # (3, 4) and (3,)
    with pytest.raises(trueno.ShapeError, match="softmax"):
        b.softmax(b.sum(total))
    with pytest.raises(trueno.DtypeError, match="relu: x is int64"):
        b.relu(b.argmax(h))


def test_dtypes_are_checked_at_once(b):
    h = b.upload(np.ones(3, F))
    with pytest.raises(trueno.DtypeError, match="add: y is float64, but x is float32"):
        b.add(h, b.upload(np.ones(3)))
    with pytest.raises(trueno.DtypeError, match="relu: x is int64"):
        b.relu(b.upload(np.arange(3)))
    with pytest.raises(trueno.DtypeError, match="indices in a batch are int64"):
        b.embedding_lookup(b.upload(np.ones((3, 3), F)), h)


@pytest.mark.parametrize("x", [None, True, "x", b"x", np.ones(2, complex), np.array("a"), [[1], [2, 3]],
                               np.ma.masked_array([1.0], [True]), np.ones(2, "f2"), np.ones(2, bool)])  # fmt: skip
def test_no_upload(b, x):
    with pytest.raises((trueno.DtypeError, trueno.ShapeError), match="upload: x"):
        b.upload(x)


def test_numbers_past_a_dtype(b):
    """No warning, and never a wrong number."""
    assert b.read(b.upload([1e300])).tolist() == [np.inf]
    assert b.read(b.upload(np.array([7], np.uint64))).tolist() == [7]
    with pytest.raises(trueno.ParameterError, match="upload: x holds 9223372036854775809, which is beyond int64"):
        b.upload(np.array([2**63 + 1], np.uint64))


def test_what_has_no_room_says_so(b):
    for shape in ((10**6, 10**6), (10**9, 10**9)):
        with pytest.raises(trueno.OutOfMemory, match="upload: there is no room for x"):
            b.upload(np.broadcast_to(F(1), shape))
    h = b.sum(b.upload(np.empty((0, 10**13), F)), axis=0)
    with pytest.raises(trueno.OutOfMemory, match="Batch: the host failed"):
        b.execute()
    with pytest.raises(trueno.BatchError, match="not executed"):
        b.read(h)


def test_what_others_export_badly_is_an_error_of_ours(b):
    class Away:
        def __dlpack_device__(self):
            return (2, 0)

        def __dlpack__(self, **_):
            raise BufferError("no")

    class Broken:
        def __array__(self, *_, **__):
            raise RuntimeError("broken")

    with pytest.raises(trueno.DeviceError, match=r"upload: x is a Away on DLPack device \(2, 0\)"):
        b.upload(Away())
    with pytest.raises(trueno.DtypeError, match=r"upload: x is a Broken that NumPy cannot take .*broken"):
        b.upload(Broken())
    with pytest.raises(trueno.DtypeError, match=r"upload: x is a Handle .*b\.read\(h\)"):
        b.upload(b.upload([1.0]))


def test_an_op_that_is_refused_leaves_nothing(b):
    h = b.upload(np.ones((3, 3), F))
    before = len(b._graph.values), len(b._handles), len(b._uploads.arrays)
    with pytest.raises(trueno.ShapeError, match="matmul: b"):
        b.matmul(h, 3.0)
    assert (len(b._graph.values), len(b._handles), len(b._uploads.arrays)) == before
    assert b.matmul(h, h).value == 1


def test_hosts_arrays_are_uploaded_first(b):
    h = b.upload(np.ones(3, F))
    with pytest.raises(trueno.DtypeError, match=r"add: y is an array of shape \(3,\).*b\.upload\(y\)"):
        b.add(h, np.ones(3, F))
    with pytest.raises(trueno.DtypeError, match=r"add: y is list.*b\.upload"):
        b.add(h, [1.0, 2.0, 3.0])
    with pytest.raises(trueno.DtypeError, match="no operand is a handle"):
        b.add(1.0, 2.0)


def test_parameters_are_checked_at_once(b):
    h = b.upload(np.ones(3, F))
    with pytest.raises(trueno.ParameterError, match="eps"):
        b.rms_norm(h, h, eps=-1.0)
    with pytest.raises(trueno.ParameterError, match="approximate"):
        b.gelu(h, approximate="no")
    with pytest.raises(trueno.ParameterError, match="bits"):
        b.add(h, 10**400)
    with pytest.raises(TypeError):
        b.relu(h, h)
    with pytest.raises(AttributeError, match='did you mean "relu"'):
        b.rel(h)


def test_handles_outside_of_their_batch(b):
    with pytest.raises(
        trueno.DtypeError, match=r"softmax: x is a handle of a batch; call the batch's method: b\.softmax"
    ):
        trueno.softmax(b.upload(np.ones(3, F)))


def test_handles_of_others(b):
    h = b.upload(np.ones(3, F))
    with trueno.Batch("reference") as other:
        theirs = other.upload(np.ones(3, F))
        with pytest.raises(trueno.BatchError, match="add: y is a handle of another batch"):
            b.add(h, theirs)
    with pytest.raises(trueno.BatchError, match="closed batch"):
        b.add(h, theirs)
    for call in (lambda: other.relu(theirs), other.execute, lambda: other.read(theirs), lambda: other.upload([1.0])):
        with pytest.raises(trueno.BatchError, match="this batch is closed"):
            call()
    other.close()


def test_names():
    with pytest.raises(trueno.UnknownBackend, match="scalar"):
        trueno.Batch("scalr")
    with pytest.raises(trueno.ParameterError, match="is not the name of a backend"):
        trueno.Batch(3)
    with trueno.use("scalar"), trueno.Batch() as b:
        h = b.relu(b.upload([1.0]))
        assert "scalar" in str(b)
        b.execute()
        assert b.read(h) == 1


# ---- executing and reading ------------------------------------------------------------------------------


def test_empty_batches_and_reading_too_early(b):
    b.execute()
    assert b.counts.kernels == 0 == b.counts.submits and "0 ops in 0 kernels" in str(b)
    h = b.upload(np.ones(3, F))
    b.execute()
    assert b.read(h).sum() == 3
    r = b.relu(h)
    with pytest.raises(trueno.BatchError, match="relu, was not executed yet"):
        b.read(r)
    with pytest.raises(trueno.DtypeError, match="read: h is an array"):
        b.read(np.ones(3))


def test_executing_twice_and_recording_on(b):
    h = b.upload(np.array([1.0, -2.0], F))
    r = b.relu(h)
    b.execute()
    b.execute()
    assert b.counts.kernels == 2 and b.read(r).tolist() == [1, 0]
    e = b.exp(r)
    assert b.read(r).tolist() == [1, 0]
    b.execute()
    assert b.read(e)[1] == 1 and b.read(r).tolist() == [1, 0]


def test_keeping_afterwards_forgets_no_result(b):
    h = b.relu(b.upload(np.array([1.0, -2.0], F)))
    e = b.exp(h)
    b.execute()
    b.keep(h)
    assert b.read(e)[1] == 1 and b.read(h).tolist() == [1, 0]
    b.execute()
    kernels = b.counts.kernels
    assert b.read(h).tolist() == [1, 0] and b.counts.kernels == kernels


def test_read_copies_and_fills_out(b):
    x = np.array([1.0, -2.0], F)
    h = b.upload(x)
    r = b.relu(h)
    b.execute()
    b.read(r)[:] = 7
    assert b.read(r).tolist() == [1, 0]
    assert b.read(h) is not x
    out = np.empty(2, F)
    assert b.read(r, out=out) is out and out.tolist() == [1, 0]
    readonly = np.broadcast_to(F(0), 2)
    for bad in (np.empty(3, F), np.empty(2), np.empty(2, ">f4"), [0.0, 0.0], readonly, np.ma.masked_array(out, True)):
        with pytest.raises(trueno.OutError, match="read: out is"):
            b.read(r, out=bad)
    every = np.zeros(4, F)
    b.read(r, out=every[::2])
    assert every.tolist() == [1, 0, 0, 0]
    assert isinstance(b.read(b.keep(h)), np.ndarray)


def test_update_wants_the_same_shape_and_dtype(b):
    h = b.upload(np.ones(3, F))
    r = b.relu(h)
    with pytest.raises(trueno.ShapeError, match="update: x has shape"):
        b.update(h, np.ones(4, F))
    for given in (np.int8, np.int32, np.uint16):  # which an upload makes int64
        with pytest.raises(trueno.DtypeError, match=f"update: x is {np.dtype(given)}, but h is float32"):
            b.update(h, np.ones(3, given))
    with pytest.raises(trueno.DtypeError, match="update: x is float64"):
        b.update(h, np.ones(3))
    with pytest.raises(trueno.ParameterError, match="a result of relu"):
        b.update(r, np.ones(3, F))
    b.execute()
    b.update(h, np.full(6, 5, F)[::2])
    b.execute()
    assert b.read(r).tolist() == [5, 5, 5]


def test_inputs_stay_as_they_are(b):
    x = np.array([1.0, -2.0], F)
    b.upload(x)
    h = b.upload(x)
    r = b.scale(b.relu(h), -3.0)
    b.execute()
    assert x.tolist() == [1, -2] and b.read(r).tolist() == [-3, 0]


def test_a_first_error_names_the_op(b, monkeypatch):
    h = b.upload(np.ones(3, F))
    r = b.relu(h)
    backend = trueno.discovery.registry.load("reference")

    def broken(*_):
        raise ZeroDivisionError("no")

    with monkeypatch.context() as patch:
        patch.setattr(backend, "kernel", lambda call: broken)
        trueno.reset_quarantine()
        with pytest.raises(trueno.KernelError, match=r"relu: reference failed .ZeroDivisionError"):
            b.execute()
    trueno.reset_quarantine()
    with pytest.raises(trueno.BatchError, match="not executed"):
        b.read(r)
    b.execute()
    assert b.read(r).sum() == 3


def test_refusals_go_to_the_next(monkeypatch):
    x = np.ones(3, F)
    backend = trueno.discovery.registry.load("scalar")

    def refuses(*_):
        raise trueno.discovery.protocol.Refused("not for me")

    with monkeypatch.context() as patch, trueno.use("scalar", "reference"), trueno.Batch() as b:
        patch.setattr(backend, "kernel", lambda call: refuses)
        trueno.reset_quarantine()
        h = b.sum(b.matmul(b.upload(np.eye(3, dtype=F)), b.upload(np.eye(3, dtype=F))))
        r = b.relu(b.upload(x))
        b.execute()
        assert b.read(h).tolist() == [1, 1, 1] and b.read(r).sum() == 3
    trueno.reset_quarantine()


def test_life():
    b = trueno.Batch("reference")
    h = b.upload([1.0, 2.0])
    for what in (b, h):
        for act in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError):
                act(what)
    with pytest.raises(TypeError, match=r"b\.read"):
        np.asarray(h)
    with pytest.raises(TypeError, match="truth"):
        bool(h)
    assert "(2,) float32" in repr(h) and "closed" not in repr(b) and h.ndim == 1 and h.size == 2
    b.close()
    b.close()
    assert "closed" in repr(b) == str(b)


def test_nothing_is_kept_once_nobody_holds_it():
    """Reference counts alone free everything: buffers are large, and the collector comes when it likes."""
    x = np.ones((10, 10), F)

    def run(end):
        b = trueno.Batch("reference")
        h = b.softmax(b.matmul(b.upload(x), b.upload(x)), axis=0)
        i = b.upload(np.array([50]))
        b.execute()
        buffer = weakref.ref(b._replay.backs[0])
        if end == "closed":
            b.close()
            return buffer, b, h
        rows = b.embedding_lookup(h, i)

        async def fails():  # the error must not leave asyncio.run, which keeps it in a cycle of its own
            try:
                await b.execute_async() if end == "later" else b.execute()
            except trueno.ParameterError:
                return rows.shape

        assert asyncio.run(fails()) == (1, 10)
        buffer = weakref.ref(b._replay.backs[0])
        return (buffer,)

    gc.collect()
    gc.disable()
    try:
        for end in ("closed", "now", "later"):
            buffer = run(end)[0]
            for _ in range(100):  # a worker thread lets go when it has told
                time.sleep(0.01 * (buffer() is not None))
            assert buffer() is None, end
    finally:
        gc.enable()


def test_methods_have_the_signatures_of_the_ops():
    b = trueno.Batch("reference")
    for name in (*TABLE, *ALIASES):
        own = list(inspect.signature(getattr(b, name)).parameters)
        theirs = [p for p in inspect.signature(getattr(trueno, name)).parameters if p != "out"]
        assert own == theirs and getattr(b, name).__doc__


def test_matrices_and_vectors_are_uploaded(b):
    h = b.matmul(b.upload(trueno.Matrix([[1, 2], [3, 4]])), b.upload([[1, 0], [0, 1]]))
    b.execute()
    assert b.read(h).tolist() == [[1, 2], [3, 4]]


# ---- asynchronous ----------------------------------------------------------------------------------------


@pytest.fixture
def slow(monkeypatch):
    """A batch whose three kernels each take a while: (batch, last handle, names that began)."""
    backend = trueno.discovery.registry.load("reference")
    kernel, began = backend.kernel, []

    def made(call):
        real = kernel(call)

        def sleepy(*args):
            began.append(call.op.name)
            time.sleep(0.1)
            return real(*args)

        return sleepy

    trueno.reset_quarantine()
    with monkeypatch.context() as patch:
        patch.setattr(backend, "kernel", made)
        with trueno.Batch("reference") as b:
            h = b.upload(np.eye(4, dtype=F))
            for _ in range(3):
                h = b.transpose(h)
            yield b, h, began
    trueno.reset_quarantine()


def test_the_loop_stays_free(slow):
    b, h, _ = slow

    async def main():
        ticks = 0
        work = asyncio.ensure_future(b.execute_async())
        while not work.done():
            await asyncio.sleep(0.01)
            ticks += 1
        await work
        return ticks

    assert asyncio.run(main()) >= 5
    np.testing.assert_array_equal(b.read(h), np.eye(4))


def test_cancelled_it_ends_and_can_be_run_again(slow):
    b, h, began = slow
    others = set(threading.enumerate())  # whatever earlier tests and the runner itself left

    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await b.execute_async()
        assert len(began) < 3
        with pytest.raises(trueno.BatchError):
            b.read(h)
        await b.execute_async()
        return b.read(h)

    np.testing.assert_array_equal(asyncio.run(main()), np.eye(4))
    assert all(t.name.startswith("trueno-aio") for t in set(threading.enumerate()) - others)


def test_nobody_else_runs_or_closes_it_meanwhile(slow):
    b, _, _ = slow

    async def main():
        work = asyncio.ensure_future(b.execute_async())
        await asyncio.sleep(0.02)
        for call in (b.close, b.execute):
            with pytest.raises(trueno.BatchError, match="is being executed"):
                call()
        with pytest.raises(trueno.BatchError, match="is being executed"):
            await b.execute_async()
        await work

    asyncio.run(main())


def test_nothing_is_recorded_while_it_runs(slow):
    b, h, _ = slow
    x = b.upload(np.eye(4, dtype=F))

    async def main():
        work = asyncio.ensure_future(b.execute_async())
        await asyncio.sleep(0.02)
        calls = {
            "upload": lambda: b.upload([1.0]),
            "relu": lambda: b.relu(h),
            "keep": lambda: b.keep(h),
            "update": lambda: b.update(x, np.eye(4, dtype=F)),
            "read": lambda: b.read(h),
        }
        for name, call in calls.items():
            with pytest.raises(trueno.BatchError, match=f"{name}: this batch is being executed"):
                call()
        assert "3 kernels" in str(b)
        await work

    asyncio.run(main())
    np.testing.assert_array_equal(b.read(h), np.eye(4))


def test_it_is_busy_until_the_worker_has_ended(slow):
    """Also where everything in the loop is cancelled, as `asyncio.run` does at its end, or thrown away."""
    b, h, began = slow

    async def leaving():
        work = asyncio.ensure_future(b.execute_async())
        await asyncio.sleep(0.02)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)
        assert not work.done() and b._busy.locked()
        with pytest.raises(trueno.BatchError, match="is being executed"):
            b.close()

    asyncio.run(leaving())
    assert not b._busy.locked() and len(began) < 3
    coroutine = b.execute_async()
    loop = asyncio.new_event_loop()
    try:

        async def step():
            coroutine.send(None)  # as far as its first await

        loop.run_until_complete(step())
        coroutine.close()
        with pytest.raises(trueno.BatchError, match="is being executed"):
            b.execute()
        for _ in range(500):
            time.sleep(0.01 * b._busy.locked())
    finally:
        loop.close()
    b.execute()
    np.testing.assert_array_equal(b.read(h), np.eye(4))


def test_an_error_inside_is_not_hidden_by_closing(slow):
    b, _, began = slow

    async def main():
        with b:
            work = asyncio.ensure_future(b.execute_async())
            await asyncio.sleep(0.02)
            try:
                raise ZeroDivisionError("the caller's own")
            finally:
                work.cancel()

    with pytest.raises(ZeroDivisionError):
        asyncio.run(main())
    assert "closed" in repr(b) and not b._uploads.arrays and b._replay is None and len(began) < 3


def test_errors_of_the_worker_are_told(b):
    h = b.upload(np.ones((3, 3), F))
    i = b.upload(np.array([5]))
    b.embedding_lookup(h, i)
    rows = b.embedding_lookup(h, i)
    with pytest.raises(trueno.ParameterError, match="embedding_lookup"):
        asyncio.run(b.execute_async())
    b.update(i, np.array([2]))
    asyncio.run(b.execute_async())
    assert b.read(rows).tolist() == [[1, 1, 1]]
