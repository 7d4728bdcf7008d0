"""`trueno.aio`: the same results and errors, an event loop that stays free, and nothing left behind."""

import asyncio
import gc
import inspect
import os
import subprocess
import sys
import threading
import time
import warnings
import weakref

import numpy as np
import pytest
import trueno
from trueno import aio
from trueno.aio import calls, inline, threads
from trueno.discovery import registry
from trueno.dispatch.function import function
from trueno.ops import ALIASES, TABLE
from trueno.testing.asynchronous import check_aio


class Gate:
    """Holds up every kernel of the fake device until it is opened."""

    def __init__(self, fake):
        self.event = threading.Event()
        self.held = threading.Semaphore(0)
        self.fake = fake

    def wait(self):
        self.held.release()
        assert self.event.wait(60), "nobody opened the gate"

    def close(self):
        self.event.clear()
        self.fake.control.wait = self.wait

    def open(self):
        self.event.set()

    async def reached(self):
        """Until one more kernel waits."""
        while not self.held.acquire(blocking=False):
            await asyncio.sleep(0.001)


@pytest.fixture
def gate(fake):
    made = Gate(fake)
    yield made
    made.open()
    vars(fake.control).pop("wait", None)


async def turn(times=20):
    """Let the event loop go on."""
    for _ in range(times):
        await asyncio.sleep(0.001)


async def counted(awaitable):
    """What it gives, and how often the loop turned meanwhile."""
    turns, task = 0, asyncio.ensure_future(awaitable)
    while not task.done():
        await asyncio.sleep(0.002)
        turns += 1
    return task.result(), turns


def workers():
    return [t for t in threading.enumerate() if t.name.startswith("trueno-aio")]


# ---- the same as without ------------------------------------------------------------------------------


@pytest.mark.parametrize("op", TABLE)
@pytest.mark.parametrize("backend", ["reference", "scalar", "fake"])
def test_every_op_gives_what_it_gives_without(fake, op, backend):
    check_aio(TABLE[op], backend, np.float32, 0)


def test_signatures_are_true():
    for op in TABLE.values():
        twin, sync = getattr(aio, op.name), function(op.name)
        assert inspect.iscoroutinefunction(twin) and twin.__doc__ == sync.__doc__ and twin.op is op
        got, wanted = (list(inspect.signature(f).parameters.values()) for f in (twin, sync))
        assert [(p.name, p.kind, repr(p.default)) for p in got] == [(p.name, p.kind, repr(p.default)) for p in wanted]
    assert all(getattr(aio, alias) is getattr(aio, name) for alias, name in ALIASES.items())
    assert {*TABLE, *ALIASES, "to", "numpy", "device"} <= set(dir(aio))
    with pytest.raises(AttributeError, match='did you mean "relu"'):
        aio.rellu  # noqa: B018
    with pytest.raises(TypeError, match="missing"):
        aio.add(1)
    assert builtins_are_hidden_nowhere()


def builtins_are_hidden_nowhere():
    """An op named as a builtin must not replace it inside the module."""
    aio.sum, aio.max, aio.abs  # noqa: B018
    return not {"sum", "max", "abs"} & set(vars(aio))


def test_errors_are_those_of_the_sync_call():
    x = np.ones(4, np.float32)
    for args, kw in (((x, np.ones(3, np.float32)), {}), ((x, x.astype(int)), {}), ((x, x), {"out": np.ones(2)})):
        with pytest.raises(trueno.TruenoError) as wanted:
            trueno.add(*args, **kw)
        with pytest.raises(trueno.TruenoError) as got:
            asyncio.run(aio.add(*args, **kw))
        assert type(got.value) is type(wanted.value) and str(got.value) == str(wanted.value)


def test_moving(fake):
    x = np.ones(8, np.float32)

    async def main():
        a = await aio.to(x, "fake")
        assert type(a) is fake.Array
        b = await aio.add(a, a)
        assert type(b) is fake.Array
        with await aio.device("fake") as d:
            c = await asyncio.to_thread(d.add, a, b)
        return await aio.numpy(c)

    assert asyncio.run(main()).tolist() == [3] * 8


# ---- the loop stays free ------------------------------------------------------------------------------


def test_the_loop_turns_while_a_device_computes(gate):
    x = np.ones(8, np.float32)

    async def main():
        gate.close()
        with trueno.use("fake"):
            task = asyncio.create_task(aio.add(x, x))
            await gate.reached()
            await turn(100)
            assert not task.done()
            gate.open()
            return await task

    assert asyncio.run(main()).tolist() == [2] * 8


@pytest.mark.parametrize("backend", ["scalar", "simd"])
def test_the_loop_turns_while_a_host_kernel_runs(backend):
    if backend not in registry.entries():
        pytest.skip(f"{backend} is not installed")
    x = np.full((1500, 1500), 0.5, np.float32)

    async def main():
        with trueno.use(backend):
            await aio.matmul(x, x)
            return await counted(asyncio.gather(*(aio.matmul(x, x) for _ in range(8))))

    results, turns = asyncio.run(main())
    assert len(results) == 8 and all(r[0, 0] == 375 for r in results)
    assert turns >= 3


def test_small_calls_run_at_once_and_the_first_does_not(monkeypatch):
    x, y = np.ones(1024, np.float32), np.full(1024, 2, np.float32)
    hops = []
    submit = threads.submit
    monkeypatch.setattr(threads, "submit", lambda *a, **k: hops.append(1) or submit(*a, **k))

    async def main():
        from trueno.dispatch.state import forget_plans

        forget_plans()
        with trueno.use("scalar"):
            await aio.add(x, y)
            assert len(hops) == 1  # there was no plan
            for _ in range(50):
                assert (await aio.add(x, y))[0] == 3
            assert inline.kind(TABLE["add"], (x, 1.5), {}) is None  # another layout, and no plan of it
            few = len(hops)
            assert few < 50  # a busy machine may have taken the kind's privilege away
            await aio.add(x.tolist(), y)
            assert len(hops) == few + 1  # a list is converted elsewhere
            with trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP):
                await aio.add(x, y)
                await aio.add(x, y)
            assert len(hops) == few + 3
            many = np.ones(4_000_000, np.float32)
            await aio.add(many, many)
            await aio.add(many, many)
            assert len(hops) == few + 5  # predicted to take longer than a hop

    asyncio.run(main())


def test_devices_are_never_waited_for_at_once(fake):
    x = np.ones(8, np.float32)

    async def main():
        with trueno.use("fake"):
            await aio.add(x, x)
            assert inline.kind(TABLE["add"], (x, x), {}) is None
        a = trueno.to(x, "fake")
        await aio.add(a, a)
        assert inline.kind(TABLE["add"], (a, a), {}) is None

    asyncio.run(main())


def test_a_kind_that_breaks_the_promise_goes_to_a_thread():
    kind = inline.Kind(None, None, True)
    for _ in range(inline.STRIKES):
        assert kind.fast
        kind.late(2 * inline.PROMISE)
    assert not kind.fast
    kind = inline.Kind(None, None, True)
    kind.late(1.0)
    assert not kind.fast


def test_many_small_calls_in_a_row_let_others_run():
    x = np.ones(1024, np.float32)

    async def main():
        async def row():
            for _ in range(3000):
                await aio.add(x, x)

        with trueno.use("scalar"):
            await aio.add(x, x)
            _, turns = await counted(row())
        return turns

    assert asyncio.run(main()) >= 2


# ---- context ------------------------------------------------------------------------------------------


def test_the_callers_use_guard_and_trace_hold(fake):
    x = np.ones(8, np.float32)
    bad = np.full(8, -1, np.float32)
    guard = trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP)

    async def one(backend):
        with trueno.use(backend), trueno.trace() as events:
            await aio.add(x, x)
            await aio.add([1.0] * 8, x)
        return {e.backend for e in events if e.kind == "run"}

    async def main():
        assert await asyncio.gather(*map(one, ["scalar", "fake", "reference"])) == [{"scalar"}, {"fake"}, {"reference"}]
        with guard, pytest.raises(trueno.GuardError):
            await aio.sqrt(bad)
        assert np.isnan(await aio.sqrt(bad)).all()

    asyncio.run(main())


# ---- cancelling ---------------------------------------------------------------------------------------


def test_a_timeout_comes_at_once_and_the_backend_goes_on(fake, gate):
    x = np.ones(8, np.float32)

    async def main():
        with trueno.use("fake"):
            await aio.add(x, x)
            gate.close()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await aio.add(x, x)
            assert not gate.event.is_set()  # the kernel still computes
            gate.open()
            assert (await aio.mul(x, 3.0)).tolist() == [3] * 8

    asyncio.run(main())


def test_a_cancelled_call_with_out_has_ended_when_the_caller_goes_on(fake, gate):
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)

    async def call():
        try:
            await aio.add(x, x, out=out)
        finally:
            assert out.tolist() == [2] * 8  # all of it was written before
            out[:] = -5  # the caller's again: nobody writes over this

    async def main():
        with trueno.use("fake"):
            gate.close()
            task = asyncio.create_task(call())
            await gate.reached()
            for _ in range(3):  # impatience changes nothing
                task.cancel()
                await turn()
                assert not task.done()
            gate.open()
            with pytest.raises(asyncio.CancelledError):
                await task
            await aio.add(x, x)
        assert out.tolist() == [-5] * 8

    asyncio.run(main())


def test_a_call_that_has_not_begun_never_does(fake, gate, monkeypatch):
    monkeypatch.setattr(threads, "_pool", None)
    monkeypatch.setattr(threads, "most", lambda: 1)
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)

    async def main():
        with trueno.use("fake"):
            fake.LEDGER.reset()
            gate.close()
            first = asyncio.create_task(aio.add(x, x))
            await gate.reached()
            rest = [asyncio.create_task(aio.add(x, x, out=out)) for _ in range(20)]
            await turn()
            for task in rest:
                task.cancel()
            gone = await asyncio.gather(*rest, return_exceptions=True)
            assert {type(g) for g in gone} == {asyncio.CancelledError}
            assert not first.done()
            gate.open()
            assert (await first).tolist() == [2] * 8

    asyncio.run(main())
    assert fake.LEDGER.kernels == 1 and not out.any()
    threads._pool.shutdown()


@pytest.mark.parametrize("out", [None, np.zeros(8, np.float32)], ids=["fresh", "out"])
def test_errors_of_cancelled_calls_are_dropped(fake, gate, out):
    x = np.ones(8, np.float32)

    async def main():
        with trueno.use("fake"):
            await aio.add(x, x)
            gate.close()
            fake.control.fail(1, "error", "download")
            task = asyncio.create_task(aio.add(x, x, out=out))
            await gate.reached()
            task.cancel()
            await turn()
            gate.open()
            with pytest.raises(asyncio.CancelledError):
                await task
            while not fake.control.seen:
                await turn(1)
            fake.control.reset()
            assert (await aio.add(x, x)).tolist() == [2] * 8

    asyncio.run(main())
    assert out is None or not out.any()


def test_a_device_that_fails_says_so_here(fake):
    x = np.ones(8, np.float32)

    async def main():
        with trueno.use("fake"):
            fake.control.fail(1, "memory", "alloc")
            with pytest.raises(trueno.OutOfMemory, match="add: fake failed"):
                await aio.add(x, x)
            assert (await aio.add(x, x)).tolist() == [2] * 8

    asyncio.run(main())


# ---- many, and nothing left ---------------------------------------------------------------------------


def test_a_thousand_at_once(fake):
    a, b = np.arange(1000, dtype=np.float32), np.ones(16, np.float32)

    async def main():
        with trueno.use("fake"):
            return await asyncio.gather(*(aio.scale(b, float(v)) for v in a))

    results = asyncio.run(main())
    assert [r[0] for r in results] == a.tolist()
    assert 1 <= len(workers()) <= threads.most() + 1  # one more where a test had a pool of its own
    del results
    gc.collect()
    assert fake.LEDGER.live == 0


def test_no_task_and_no_thread_is_left():
    x = np.ones(8, np.float32)

    async def main():
        await aio.add([1.0], [2.0])
        before = len(workers())
        for _ in range(50):
            await asyncio.gather(*(aio.add([1.0], [float(i)]) for i in range(20)))
            await aio.add(x, x)
        assert len(asyncio.all_tasks()) == 1
        return before

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = asyncio.run(main())
        gc.collect()
    assert before <= len(workers()) <= threads.most() + 1


def test_a_failed_call_keeps_no_operand():
    """Reference counts alone free them: an array may be large, and the collector comes when it likes."""

    async def main():
        x = np.ones(1000, np.float32)
        with pytest.raises(trueno.ShapeError):
            await aio.add(x, np.ones(3, np.float32))
        return weakref.ref(x)

    gc.collect()
    gc.disable()
    try:
        x = asyncio.run(main())
        for _ in range(100):  # the worker thread lets go when it has told
            time.sleep(0.01 * (x() is not None))
        assert x() is None
    finally:
        gc.enable()


def test_several_loops_one_after_another_and_at_once():
    async def main(k):
        return [(await aio.add([float(i)], [float(k)]))[0] for i in range(50)]

    assert asyncio.run(main(1)) == asyncio.run(main(1))
    seen = {}
    crowd = [threading.Thread(target=lambda k=k: seen.update({k: asyncio.run(main(k))})) for k in range(4)]
    for t in crowd:
        t.start()
    for t in crowd:
        t.join()
    assert seen == {k: [float(i + k) for i in range(50)] for k in range(4)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")
def test_a_forked_child_has_threads_of_its_own():
    program = """
import asyncio, os, sys
import trueno
async def main():
    return (await trueno.aio.add([1.0], [2.0]))[0]
assert asyncio.run(main()) == 3
child = os.fork()
if not child:
    os._exit(0 if asyncio.run(main()) == 3 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_interpreter_ends_while_calls_wait():
    program = """
import asyncio
import numpy as np
import trueno
x = np.ones(2_000_000, np.float32)
async def main():
    tasks = [asyncio.create_task(trueno.aio.exp(x)) for _ in range(200)]
    await tasks[0]
    raise SystemExit(7)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 7 and not done.stderr, done.stderr


def test_where_there_are_no_threads_calls_run_at_once(monkeypatch):
    monkeypatch.setattr(threads, "possible", lambda: False)
    monkeypatch.setattr(threads, "submit", lambda *_: pytest.fail("a thread was asked for"))
    assert asyncio.run(aio.add([1.0], [2.0])).tolist() == [3]


def test_importing_trueno_leaves_asyncio_alone():
    program = """
import sys
import trueno
assert not {"asyncio", "trueno.aio"} & set(sys.modules)
trueno.aio
assert "asyncio" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_sync_available(monkeypatch):
    assert trueno.sync_available() is True

    async def inside():
        return trueno.sync_available()

    assert asyncio.run(inside()) is True
    monkeypatch.setattr(sys, "platform", "emscripten")
    assert trueno.sync_available() is False
    assert not threads.possible()


assert calls.PROMISE == inline.PROMISE
