"""Many threads on one device, forks, and asyncio."""

import asyncio
import os
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest

pytest.importorskip("wgpu")
from trueno_wgpu.device.array import Array
from trueno_wgpu.device.shader import Shader
from unit.wgpu.conftest import SLOW

SLOWLY = Shader("slow", SLOW, (True,))


def test_eight_threads(gpu, scale):
    """Each with its own arrays: unbatched, in batches, and with arrays that die at once."""

    def work(seed):
        rng = np.random.default_rng(seed)
        wrong = 0
        for i in range(40):
            n = int(rng.integers(1, 5000))
            x = rng.standard_normal(n).astype(np.float32)
            a, b, c = Array.of(gpu, x), Array.empty(gpu, (n,), np.float32), Array.empty(gpu, (n,), np.float32)
            if i % 3 == 0:
                with gpu.batch():
                    scale(gpu, a, b, float(i))
                    scale(gpu, b, c, 2.0)
            else:
                scale(gpu, a, b, float(i))
                scale(gpu, b, c, 2.0)
            wrong += not np.array_equal(c.numpy(), 2 * (np.float32(i) * x))
        return wrong

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == 0


def test_eight_threads_compile_the_same_shaders(gpu):
    """Racing for one cache, each new to all."""

    def work(thread):
        wrong = 0
        for k in range(12):
            source = f"""@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(1) fn main() {{ y[0] = {k}.5; }}  // {id(gpu)}
"""
            y = gpu.alloc(4)
            gpu.run(Shader("raced", source, (True,)), (y,), b"", (1, 1, 1))
            wrong += np.frombuffer(gpu.read(y, 4), np.float32)[0] != k + 0.5
        return wrong

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == 0
    assert gpu.counts.pipelines >= 12


def test_what_another_thread_made(gpu, rng, scale):
    """Work that one thread's call left held back is there for another's reading."""
    x = rng.standard_normal(100).astype(np.float32)
    with ThreadPoolExecutor(1) as pool:

        def make():
            b = Array.empty(gpu, (100,), np.float32)
            scale(gpu, Array.of(gpu, x), b, 2.0)
            return b

        made = pool.submit(make).result()
    np.testing.assert_array_equal(made.numpy(), 2 * x)


def test_a_batch_is_its_threads_own(gpu, rng, scale):
    x = rng.standard_normal(100).astype(np.float32)
    a, b, c = Array.of(gpu, x), Array.of(gpu, x), Array.of(gpu, x)

    def spoilt():
        with ThreadPoolExecutor(1) as pool, gpu.batch():
            scale(gpu, a, b, 2.0)
            pool.submit(scale, gpu, a, c, 3.0).result()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        spoilt()
    np.testing.assert_array_equal(b.numpy(), x)
    np.testing.assert_array_equal(c.numpy(), 3 * x)


def test_buffers_that_die_anywhere(gpu):
    """A buffer may be collected inside of the lock, by whichever thread: giving it back takes none."""

    def work(_):
        for _ in range(300):
            circle = [gpu.alloc(1000)]
            circle.append(circle)
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


# ---- forks --------------------------------------------------------------------------------------------

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")


@forks
def test_after_a_fork_it_is_an_error(child):
    """The parent's device would hang there, even in being released; the parent itself goes on."""
    child("""
scale(2.0)
pid = os.fork()
if pid == 0:
    import signal
    signal.alarm(20)
    raises(errors.DeviceLost, lambda: x.numpy(), "forked", "spawn")
    for call in (lambda: scale(2.0), lambda: gpu.alloc(4), gpu.wait, lambda: gpu.batch().__enter__()):
        raises(errors.DeviceLost, call, "forked")
    gpu.close()
    del x, y
    gc.collect()
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert (y.numpy() == 2 * x.numpy()).all()
scale(3.0)
assert (y.numpy() == 3 * x.numpy()).all()
""")


@forks
def test_after_a_fork_the_child_may_open_its_own(gpu, child):
    """If its driver lets it: SwiftShader's threads are the parent's for good.

    It leaves as children of `multiprocessing` do: Mesa's llvmpipe hangs in `exit`, joining threads of the parent.
    """
    if "llvmpipe" not in gpu.name:
        pytest.skip(f"nobody promises that {gpu.name} works in the child of a fork")
    child("""
import signal
from trueno_wgpu.device import opened
scale(2.0)
opened.gpu()
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    own = opened.gpu()
    assert own is not gpu and not own.closed
    a, b = Array.of(own, np.ones(9, np.float32)), Array.empty(own, (9,), np.float32)
    own.run(SCALE, (a.buffer, b.buffer), struct.pack("If", 9, 5.0), (1, 1, 1))
    assert (b.numpy() == 5).all()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert (y.numpy() == 2 * x.numpy()).all()
""")


@forks
def test_a_fork_while_a_thread_works(child):
    """An error at once in the child, whatever locks that thread held.  What the driver's own locks do there is
    unknown, so the child opens no other."""
    child("""
import signal, threading
from trueno_wgpu.device import opened
stop = False
def work():
    while not stop:
        scale(2.0)
        y.numpy()
thread = threading.Thread(target=work)
thread.start()
pids = []
for _ in range(5):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        for call in (lambda: x.numpy(), lambda: scale(2.0), gpu.wait, lambda: gpu.alloc(4)):
            raises(errors.DeviceLost, call, "forked")
        os._exit(0)
    pids.append(pid)
codes = [os.waitpid(pid, 0)[1] for pid in pids]
stop = True
thread.join()
assert codes == [0] * 5, codes
""")


# ---- asyncio ------------------------------------------------------------------------------------------


async def ticking(task):
    """How often the event loop came round while a task ran."""
    ticks = 0
    while not task.done():
        await asyncio.sleep(0.001)
        ticks += 1
    return ticks


def busy(gpu):
    """An array that takes a while."""
    y = Array.empty(gpu, (64 * 2048,), np.float32)
    gpu.run(SLOWLY, (y.buffer,), struct.pack("I", 2000), (2048, 1, 1))
    return y


@pytest.mark.parametrize("native", [False, True])
def test_reading_leaves_the_event_loop_free(gpu, monkeypatch, native):
    """By a thread, as on software, and by the promise, as on hardware."""
    if native:
        monkeypatch.setattr(gpu, "software", False)

    async def main():
        y = await asyncio.to_thread(busy, gpu)
        task = asyncio.create_task(gpu.read_async(y.buffer, y.nbytes))
        ticks = await ticking(task)
        return ticks, np.frombuffer(task.result(), np.float32), y

    ticks, found, y = asyncio.run(main())
    np.testing.assert_array_equal(found, y.numpy())
    if gpu.software and not native:  # there is time enough; and where submitting waits, the promise comes too late
        assert ticks > 5


@pytest.mark.parametrize("native", [False, True])
def test_cancelled_and_late_reads_leave_a_device_that_works(gpu, scale, monkeypatch, native):
    if native:
        monkeypatch.setattr(gpu, "software", False)

    async def main():
        y = busy(gpu)
        task = asyncio.create_task(gpu.read_async(y.buffer, y.nbytes))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        y = busy(gpu)
        with suppress(TimeoutError):
            await asyncio.wait_for(gpu.read_async(y.buffer, y.nbytes), 1e-4)
        many = await asyncio.gather(*[gpu.read_async(y.buffer, 64) for _ in range(16)])
        assert len({bytes(m) for m in many}) == 1

    for _ in range(2):  # in another event loop, too
        asyncio.run(main())
    a, b = Array.of(gpu, np.ones(64, np.float32)), Array.empty(gpu, (64,), np.float32)
    scale(gpu, a, b, 2.0)
    assert (b.numpy() == 2).all()


def test_a_plain_call_inside_of_an_event_loop(gpu, scale):
    async def main():
        a, b = Array.of(gpu, np.ones(64, np.float32)), Array.empty(gpu, (64,), np.float32)
        scale(gpu, a, b, 2.0)
        return b.numpy()

    assert (asyncio.run(main()) == 2).all()
    assert sys.version_info >= (3, 11)
