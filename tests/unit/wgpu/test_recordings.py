"""Recordings: what a batch replays on the device."""

import numpy as np
import pytest

pytest.importorskip("wgpu")
from trueno.errors import KernelError
from trueno_wgpu.device import recordings
from trueno_wgpu.device.array import Array


def arrays(gpu, *data):
    return [Array.of(gpu, np.asarray(x, np.float32)) for x in data]


def recorded(gpu, scale, x, y, z):
    """z = 6 · x by way of y and of a scratch array that dies, and y a copy of x in the end."""
    with gpu.recording() as made:
        scratch = Array.empty(gpu, x.shape, np.float32)
        scale(gpu, x, scratch, 2.0)
        scale(gpu, scratch, y, 3.0)
        gpu.copy(y.buffer, z.buffer, y.nbytes)
        gpu.copy(x.buffer, y.buffer, y.nbytes)
    return made


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_replay_computes_from_what_the_arrays_hold_now(gpu, scale, rng, monkeypatch, wrapped):
    """Nothing runs while it is made; arrays that were made inside live as long; held work comes first."""
    if wrapped:  # a wgpu whose functions are elsewhere
        monkeypatch.setattr(recordings, "direct", lambda: None)
    x, y, z = arrays(gpu, rng.standard_normal(1000), np.zeros(1000), np.zeros(1000))
    made = recorded(gpu, scale, x, y, z)
    assert not y.numpy().any() and gpu.counts.kernels == 0
    for i in range(4):
        new = rng.standard_normal(1000).astype(np.float32)
        if i % 2:
            x.write(new)
        else:
            scale(gpu, *arrays(gpu, new), x, 1.0)  # held back
        others = [Array.of(gpu, np.full(1000, 7, np.float32)) for _ in range(3)]
        made.replay()
        assert np.array_equal(z.numpy(), 6 * new) and np.array_equal(y.numpy(), new)
        assert all((o.numpy() == 7).all() for o in others)
    assert gpu.counts.kernels == 2 * 4 + 2 and gpu.counts.bind_groups <= 4


def test_in_a_batch_it_runs_in_its_place(gpu, scale):
    x, y, z = arrays(gpu, np.ones(64), np.zeros(64), np.zeros(64))
    made = recorded(gpu, scale, x, y, z)
    with gpu.batch():
        scale(gpu, z, x, 1.0)
        made.replay()
        scale(gpu, z, x, 2.0)
    assert not x.numpy().any()
    with pytest.raises(KernelError, match="nothing is replayed inside a recording"), gpu.recording():
        made.replay()


def test_what_is_not_recorded_is_an_error(gpu, scale):
    """It drops the recording, and the device goes on."""
    x, y = arrays(gpu, np.ones(64), np.zeros(64))

    def spoilt(made, call):
        with gpu.recording() as recording:
            made.append(recording)
            scale(gpu, x, y, 2.0)
            call()

    for call in (x.numpy, lambda: x.write(np.ones(64)), gpu.wait, lambda: gpu.recording().__enter__()):
        made = []
        with pytest.raises(KernelError, match="inside"):
            spoilt(made, call)
        with pytest.raises(KernelError, match="not finished, or failed"):
            made[0].replay()
    with pytest.raises(KernelError, match="inside a batch"), gpu.batch(), gpu.recording():
        pass
    with pytest.raises(KernelError, match="no guarded kernel"), gpu.recording():
        gpu.run(_noted(), (gpu.status,), b"", (1, 1, 1))
    scale(gpu, x, y, 3.0)
    assert (y.numpy() == 3).all()


def _noted():
    from trueno_wgpu.device.shader import Shader

    text = "@group(0) @binding(1) var<storage, read_write> s: array<u32>;\n@compute @workgroup_size(1) fn main() {}"
    return Shader("noted", text, (True,))


def test_it_goes_with_its_last_reference(gpu, scale):
    x, y, z = arrays(gpu, np.ones(64), np.zeros(64), np.zeros(64))
    before = len(gpu._tapes)
    made = recorded(gpu, scale, x, y, z)
    made.replay()
    assert len(gpu._tapes) == before + 1
    del made
    assert len(gpu._tapes) == before and (z.numpy() == 6).all()


RECORDED = """
with gpu.recording() as made:
    scale(2.0)
made.replay()
made.replay()
"""


def test_lost_or_closed(child):
    """Commands that were finished before are not submitted: that would end the process."""
    for end, error in (("gpu.device.destroy()", "DeviceLost"), ("gpu.close()", "KernelError")):
        child(
            f"{RECORDED}\n{end}\nfor _ in range(2): raises(errors.{error}, made.replay)\ndel made, x, y\ngc.collect()"
        )


@pytest.mark.skipif("not hasattr(__import__('os'), 'fork')", reason="this platform does not fork")
def test_after_a_fork(child):
    child(f"""{RECORDED}
pid = os.fork()
if pid == 0:
    import signal
    signal.alarm(20)
    raises(errors.DeviceLost, made.replay, "forked")
    del made
    gc.collect()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
x.write(np.full(1000, 5, np.float32))
made.replay()
assert (y.numpy() == 10).all()
""")


def test_threads_replay_the_same(gpu, scale):
    from concurrent.futures import ThreadPoolExecutor

    x, y, z = arrays(gpu, np.ones(4096), np.zeros(4096), np.zeros(4096))
    made = recorded(gpu, scale, x, y, z)

    def work(_):
        for _ in range(20):
            made.replay()
            if not (z.numpy() == 6).all():
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_what_is_made_of_an_array_is_made_once_until_it_is_written(gpu, scale):
    """By a kernel, a copy, or the host; and among commands that are not submitted yet."""
    x, y = arrays(gpu, np.ones(64), np.full(64, 2))
    calls = []

    def made(key="twice"):
        def make():
            twice = Array.empty(gpu, x.shape, np.float32)
            scale(gpu, x, twice, 2.0)
            calls.append(key)
            return twice

        return gpu.once(x.buffer, key, make)

    writes = (
        lambda: scale(gpu, y, x, 1.5), lambda: gpu.copy(y.buffer, x.buffer, x.nbytes), lambda: x.write(np.full(64, 7)),
        gpu.wait,
    )  # fmt: skip
    for within in (gpu.batch, gpu.recording):
        calls.clear()
        with within():
            assert made() is made() and made("other") is not made() and len(calls) == 2
            scale(gpu, x, y, 2.0)  # reads it
            made()
            for i, write in enumerate(writes if within == gpu.batch else writes[:2]):
                write()
                assert made() is made() and len(calls) == 3 + i
    x.write(np.ones(64))
    assert (made().numpy() == 2).all()
    x.write(np.full(64, 3))
    assert (made().numpy() == 6).all()


@pytest.mark.usefixtures("chosen")
def test_a_batch_replays():
    """The core's: the numbers of the first execution, also after updates."""
    import trueno

    rng = np.random.default_rng(3)
    a, x = rng.standard_normal((40, 64), np.float32), rng.standard_normal(64, np.float32)
    with trueno.Batch("wgpu") as b:
        h = b.upload(x)
        y = b.tanh(b.matvec(b.upload(a), h))
        results = []
        for factor in (1, 2, 3, 1):
            b.update(h, x * factor)
            b.execute()
            results.append(b.read(y))
    assert np.array_equal(results[0], results[3]) and not np.array_equal(results[0], results[1])
    assert np.allclose(results[2], np.tanh(a.astype(float) @ (3.0 * x)), atol=1e-5)
