"""The device over a fake CuPy and a stub of the driver: memory, recordings, status words, threads, the end, a fork."""

import gc
import os
import sys
from contextlib import suppress
from threading import Thread

import numpy as np
import pytest
from trueno.errors import BackendUnavailable, DeviceError, DeviceLost, KernelError, OutOfMemory
from trueno.settings import Setting, settings
from trueno_cuda.device.hardware import staging, transfers
from trueno_cuda.device.hardware.launches import OFTEN
from unit.cuda.hardware import fake_cupy, kernels

ADD = kernels.add.build(arch="sm_90a")


def in_thread(work):
    """Run in a new thread; its result, or its error."""
    seen = []

    def run():
        try:
            seen.append(work())
        except Exception as error:
            seen.append(error)

    thread = Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(seen[0], Exception):
        raise seen[0]
    return seen[0]


def test_facts(machine):
    gpu = machine.gpu()
    assert machine.gpu() is gpu
    assert (gpu.name, gpu.arch, gpu.sms, gpu.shared, gpu.software) == ("Stub GPU", "sm_90a", 132, 232448, False)
    assert repr(gpu) == "<GPU 0: Stub GPU, sm_90a, 132 multiprocessors>"
    assert gpu.memory() == (1000, 1 << 30)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5), (2, 0, 4)])
@pytest.mark.parametrize("dtype", ["f4", "f8", ">f4", "i8", "f2"])
def test_there_and_back(machine, shape, dtype):
    gpu, rng = machine.gpu(), np.random.default_rng(3)
    x = (rng.standard_normal(shape) * 100).astype(dtype)
    there = gpu.to_device(x)
    assert there.dtype == np.dtype(dtype).newbyteorder("=") and there.shape == shape
    back = gpu.to_host(there)
    assert back.shape == shape and np.array_equal(back, x)
    out = np.zeros(shape, dtype)
    assert gpu.to_host(there, out) is out and np.array_equal(out, x)


def test_strided_arrays_of_the_host(machine):
    gpu = machine.gpu()
    x = np.arange(24.0).reshape(4, 6)[::2, ::3]
    there = gpu.to_device(x)
    out = np.zeros((2, 6))
    assert np.array_equal(gpu.to_host(there, out[:, ::3]), x)
    gpu.write(x[::-1], there)
    assert np.array_equal(gpu.to_host(there), x[::-1])


@pytest.mark.parametrize("pieces", [1, 3, 40])
@pytest.mark.parametrize("more", [0, 1, -3])
def test_large_transfers_in_pieces(machine, monkeypatch, pieces, more):
    monkeypatch.setattr(staging, "_cpus", lambda: 3)
    gpu, rng = machine.gpu(), np.random.default_rng(pieces)
    gpu._transfers = transfers.Transfers(gpu._context, least=1)
    gpu._transfers._staging._slot = 4096
    x = rng.integers(0, 256, 4096 * pieces + more, np.uint8)
    there = gpu.to_device(x)
    assert np.array_equal(there.values, x)
    assert np.array_equal(gpu.to_host(there), x)
    assert machine.stub.pinned_now == 3
    assert in_thread(lambda: np.array_equal(gpu.to_host(there), x))
    gpu._transfers.close()
    assert machine.stub.pinned_now == 0


def test_an_error_in_a_large_transfer_arrives(machine, monkeypatch):
    monkeypatch.setattr(staging, "_cpus", lambda: 3)
    gpu = machine.gpu()
    gpu._transfers = transfers.Transfers(gpu._context, least=1)
    gpu._transfers._staging._slot = 4096
    x = np.zeros(40960, np.uint8)
    machine.stub.fail("cuMemcpyHtoDAsync_v2", 700)
    with pytest.raises(DeviceLost, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        gpu.to_device(x)
    assert np.array_equal(gpu.to_host(gpu.to_device(x)), x)  # all slots are free again


def test_shapes_must_agree(machine):
    gpu = machine.gpu()
    there = gpu.to_device(np.zeros((2, 3), np.float32))
    with pytest.raises(KernelError, match=r"shape \(3, 2\) does not go into one of \(2, 3\)"):
        gpu.write(np.zeros((3, 2), np.float32), there)
    with pytest.raises(KernelError, match=r"\(2, 3\) float32 cannot be copied to \(2, 3\) float64"):
        gpu.copy(there, gpu.empty((2, 3), np.dtype("f8")))


def test_copy(machine):
    gpu = machine.gpu()
    x, out = gpu.to_device(np.arange(6.0)), gpu.empty((6,), np.dtype("f8"))
    gpu.copy(x, out)
    assert np.array_equal(gpu.to_host(out), np.arange(6.0))
    gpu.copy(gpu.empty((0,), np.dtype("f8")), gpu.empty((0,), np.dtype("f8")))


def test_strided_operands_are_gathered(machine):
    gpu = machine.gpu()
    x = fake_cupy.ndarray((3, 2), "f4", np.zeros((2, 3), "f4").T)
    made = gpu.contiguous(x)
    assert made is not x and made.shape == (3, 2) and made.flags.c_contiguous
    assert machine.stub.launched == 1
    gpu.copy(x, made)
    assert machine.stub.launched == 2


def test_strided_results_are_refused(machine):
    gpu = machine.gpu()
    out = fake_cupy.ndarray((3, 2), "f4", np.zeros((2, 3), "f4").T)
    x = gpu.empty((3, 2), np.dtype("f4"))
    assert gpu.contiguous(x) is x
    for act in (lambda: gpu.copy(x, out), lambda: gpu.write(np.zeros((3, 2), "f4"), out)):
        with pytest.raises(KernelError, match=r"lies not in C order; give one that does, as cupy\.ascontiguousarray"):
            act()


def test_full_memory(machine):
    gpu = machine.gpu()
    fake_cupy.KNOBS.room = 1000
    with pytest.raises(OutOfMemory) as caught:
        gpu.empty((251,), np.dtype("f4"))
    assert str(caught.value) == (
        "cuda: no room for 1004 bytes ((251,) float32), 1024 of 1073741824 are free on Stub GPU; free arrays, or work "
        "on smaller pieces"
    )
    assert gpu.empty((250,), np.dtype("f4")).nbytes == 1000


@pytest.mark.parametrize("shape", [(1 << 62, 4), (1 << 40, 1 << 40), (2**63,)])
def test_more_bytes_than_64_bits_count(machine, shape):
    gpu = machine.gpu()
    made = fake_cupy.KNOBS.made
    with pytest.raises(OutOfMemory, match=r"no room for \d+ bytes"):
        gpu.empty(shape, np.dtype("f4"))
    assert fake_cupy.KNOBS.made == made


def test_a_lost_gpu_while_allocating(machine):
    gpu = machine.gpu()
    fake_cupy.KNOBS.error = 700
    with pytest.raises(DeviceLost, match=r"an array of \(2,\) float32: CUDA_ERROR_ILLEGAL_ADDRESS.*restart"):
        gpu.empty((2,), np.dtype("f4"))


def test_arrays_of_another_gpu(machine):
    machine.stub.set(devices=2)
    gpu = machine.gpu()
    x = fake_cupy.ndarray((2,), "f4", device=1)
    mine = gpu.empty((2,), np.dtype("f4"))
    for act in (
        lambda: gpu.contiguous(x), lambda: gpu.to_host(x), lambda: gpu.copy(x, mine), lambda: gpu.copy(mine, x),
        lambda: gpu.write(np.zeros(2, "f4"), x),
    ):  # fmt: skip
        with pytest.raises(DeviceError, match=r"lives on GPU 1, and this is GPU 0 \(Stub GPU\); copy it"):
            act()


def test_launches_go_to_the_threads_current_stream(machine):
    gpu = machine.gpu()
    launch = gpu.prepare(ADD, (1, 1, 1), (5,))
    launch((1, 2, 3))
    fake_cupy.STATE.stream = 0x77
    launch((1, 2, 3))
    in_thread(lambda: launch((1, 2, 3)))
    assert [machine.stub.launch(i).stream for i in range(3)] == [0, 0x77, 0]


def test_threads_left_open_want_a_block(machine):
    gpu, source = machine.gpu(), kernels.mixed.build(arch="sm_90a")
    with pytest.raises(KernelError, match="mixed leaves its threads open: give block="):
        gpu.prepare(source, (1, 1, 1), (0,) * 4)
    gpu.prepare(source, (1, 1, 1), (0,) * 4, block=(64, 1, 1))((1,), (1.0, 2.0, 3.0))
    assert tuple(machine.stub.launch().block) == (64, 1, 1)


def test_a_recording_is_kept_and_replayed(machine):
    gpu, stub = machine.gpu(), machine.stub
    launch, x = gpu.prepare(ADD, (1, 1, 1), (5,)), gpu.to_device(np.zeros(3, "f4"))
    with gpu.recording() as made:
        launch((1, 2, 3))
        launch((1, 2, 3))
        with pytest.raises(KernelError, match="not finished"):
            made.replay()
        inside = gpu.empty((4,), np.dtype("f4"))
        gpu.write(np.ones(3, "f4"), x)
        for act in (gpu.wait, lambda: gpu.to_host(x)):
            with pytest.raises(KernelError, match="inside a recording, where nothing has run yet"):
                act()
        with pytest.raises(KernelError, match="inside another one"), gpu.recording():
            pass
        in_thread(lambda: launch((7, 8, 9)))  # others go on
    assert (stub.captured, stub.launched, stub.replayed) == (2, 1, 0)
    assert made.held == [inside]
    launch((1, 2, 3))
    made.replay()
    made.replay()
    assert (stub.captured, stub.launched, stub.replayed) == (2, 2, 2)
    assert np.array_equal(gpu.to_host(x), np.ones(3, "f4"))


def test_an_error_inside_drops_a_recording(machine):
    gpu, stub = machine.gpu(), machine.stub
    launch = gpu.prepare(ADD, (1, 1, 1), (5,))
    with suppress(ZeroDivisionError), gpu.recording() as made:
        launch((1, 2, 3))
        raise ZeroDivisionError
    with pytest.raises(KernelError, match="not finished, or failed"):
        made.replay()
    launch((1, 2, 3))
    assert (stub.captured, stub.launched) == (1, 1)
    stub.fail("cuGraphInstantiateWithFlags", 901)
    with pytest.raises(KernelError, match=r"cannot be made a graph.*record again"), gpu.recording():
        launch((1, 2, 3))
    with gpu.recording() as made:
        launch((1, 2, 3))
    made.replay()
    assert stub.replayed == 1


def test_graphs_go_with_their_recordings(machine, monkeypatch):
    gpu = machine.gpu()
    destroyed, call = [], gpu.driver.call
    monkeypatch.setattr(gpu.driver, "call", lambda name, *a, **k: (destroyed.append(name), call(name, *a, **k)))
    with gpu.recording() as made:
        pass
    del made
    gc.collect()
    assert destroyed.count("cuGraphExecDestroy") == 1


def test_what_is_launched_often_goes_as_a_graph_of_one_kernel(machine):
    gpu, stub = machine.gpu(), machine.stub
    launch = gpu.prepare(ADD, (7, 1, 1), (5,))
    fixed = launch.bound((1, 2, 3))
    for _ in range(OFTEN):
        fixed()
    assert (stub.launched, stub.captured, stub.replayed) == (OFTEN, 1, 0)
    for _ in range(3):
        fixed()
    in_thread(lambda: (fixed(), fixed()))  # the first one finds no context there, and brings it
    assert (stub.launched, stub.replayed) == (OFTEN + 1, 4)
    fake_cupy.STATE.stream = 0x77  # which somebody may capture
    fixed()
    with gpu.recording():
        fixed()
    fake_cupy.STATE.stream = 0
    assert (stub.launched, stub.captured, stub.replayed) == (OFTEN + 2, 2, 4)
    stub.fail("cuGraphLaunch", 700)
    fixed()
    assert stub.launched == OFTEN + 3
    gpu.close()
    with pytest.raises(DeviceLost, match="closed"):
        fixed()


def test_a_graph_is_launched_by_one_thread_at_a_time(machine):
    gpu, stub = machine.gpu(), machine.stub
    fixed = gpu.prepare(ADD, (7, 1, 1), (5,)).bound((1, 2, 3))
    for _ in range(OFTEN):
        fixed()
    (recorded,) = gpu._singles
    with recorded.lock:  # as if another thread were at it
        fixed()
    assert (stub.launched, stub.replayed) == (OFTEN + 1, 0)
    fixed()
    assert (stub.launched, stub.replayed) == (OFTEN + 1, 1)
    stub.fail("cuGraphLaunch", 2)  # no room to upload it: the launch itself still works
    fixed()
    assert (stub.launched, stub.replayed) == (OFTEN + 2, 1)


def test_not_every_launch_becomes_a_graph(machine, monkeypatch):
    gpu, stub = machine.gpu(), machine.stub
    monkeypatch.setattr(sys.modules["trueno_cuda.device.hardware.gpu"], "MOST_SINGLES", 1)
    large, small = (gpu.prepare(ADD, (blocks, 1, 1), (5,)) for blocks in (gpu.sms + 1, gpu.sms))
    first, second = small.bound((1, 2, 3)), small.bound((4, 5, 6))
    for call in (large.bound((1, 2, 3)), first, second):
        for _ in range(OFTEN + 2):
            call()
    assert (stub.launched, stub.captured, stub.replayed) == (3 * OFTEN + 4, 1, 2)
    del call, first
    gc.collect()
    third = small.bound((4, 5, 6))
    stub.fail("cuGraphInstantiateWithFlags", 2)  # no room for a graph: it stays a launch
    for _ in range(OFTEN + 2):
        third()
    assert stub.replayed == 2
    fourth = small.bound((4, 5, 6))
    for _ in range(OFTEN + 2):
        fourth()
    assert stub.replayed == 4


def test_status_words(machine):
    gpu = machine.gpu()
    assert gpu.take_status() == 0
    mine, theirs = gpu.status(), in_thread(gpu.status)
    assert mine != theirs and mine == gpu.status()
    word = gpu._words._here.own.values
    word[0] = 3
    assert in_thread(gpu.take_status) == 0
    assert gpu.take_status() == 3
    assert word[0] == 0 and gpu.take_status() == 0
    gpu.status()
    word[0] = 2
    assert gpu.take_status() == 2


def test_the_status_of_a_recording(machine):
    gpu = machine.gpu()
    with gpu.recording() as made:
        address = gpu.status()
        assert address == gpu.status()
        assert gpu.take_status() == 0
    made.status.values[0] = 2
    assert gpu.take_status() == 0  # it did not run
    made.replay()
    assert gpu.take_status() == 2
    assert gpu.status() != address
    made.replay()
    made.status.values[0] = 1
    assert gpu.take_status() == 1


def test_what_went_wrong_is_said_when_one_waits(machine):
    gpu = machine.gpu()
    machine.stub.fail("cuStreamSynchronize", 700)
    with pytest.raises(DeviceLost, match="a kernel that was launched before failed: CUDA_ERROR_ILLEGAL_ADDRESS"):
        gpu.wait()


def test_closing(machine):
    gpu = machine.gpu()
    launch, x = gpu.prepare(ADD, (1, 1, 1), (5,)), gpu.to_device(np.zeros(3))
    with gpu.recording() as made:
        launch((1, 2, 3))
    gpu.close()
    gpu.close()
    assert gpu.closed
    for act in (
        lambda: launch((1, 2, 3)), made.replay, gpu.wait, lambda: gpu.to_host(x),
        lambda: gpu.empty((1,), np.dtype("f4")), gpu.status, lambda: gpu.prepare(ADD, (1, 1, 1), (5,)),
        lambda: gpu.copy(x, x),
    ):  # fmt: skip
        with pytest.raises(DeviceLost, match="the GPU was closed"):
            act()
    assert machine.gpu() is not gpu
    assert machine.gpu().empty((1,), np.dtype("f4")).shape == (1,)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_after_a_fork_every_use_is_an_error_that_says_so(machine):
    gpu = machine.gpu()
    launch = gpu.prepare(ADD, (1, 1, 1), (5,))
    with gpu.recording() as made:
        launch((1, 2, 3))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        for act in (lambda: launch((1, 2, 3)), made.replay, lambda: gpu.empty((1,), np.dtype("f4")), machine.gpu):
            try:
                act()
                said.append("nothing")
            except (DeviceLost, BackendUnavailable) as error:
                said.append("spawn" if "spawn" in str(error) else str(error))
            except BaseException as error:
                said.append(repr(error))
        gpu.close()
        os.write(write, "|".join(said).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        assert pipe.read() == "spawn|spawn|spawn|spawn"
    os.waitpid(child, 0)
    launch((1, 2, 3))  # the parent goes on
    made.replay()


def test_the_gpu_of_the_setting(machine, monkeypatch):
    machine.stub.set(devices=3)
    settings.declare("TRUENO_CUDA_DEVICE", Setting(str, "", "number of the GPU"))
    monkeypatch.setenv("TRUENO_CUDA_DEVICE", "2")
    settings.reload()
    try:
        assert machine.gpu().number == 2
    finally:
        monkeypatch.delenv("TRUENO_CUDA_DEVICE")
        settings.reload()
