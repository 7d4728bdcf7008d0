"""Several GPUs of one process: which is opened, what they share, copies between them, and launches on each."""

import os
from threading import Thread

import numpy as np
import pytest
from trueno.errors import BackendUnavailable, DeviceError, DeviceLost, KernelError
from trueno_cuda.backend import CudaBackend
from trueno_cuda.device.hardware import peers, probing
from unit.cuda.hardware import fake_cupy, kernels

ADD = kernels.add.build(arch="sm_90a")
F4 = np.dtype(np.float32)


@pytest.fixture
def two(machine):
    """The machine with a second GPU."""
    machine.stub.set(devices=2)
    return machine


def test_a_gpu_of_a_number(two):
    first, second = two.gpu(), two.gpu(1)
    assert (first.number, second.number) == (0, 1)
    assert not first.alone and not second.alone
    assert two.gpu(1) is second and two.gpu() is first is two.opened.in_use()
    assert two.opened.of(0) is first and two.opened.of(1) is second and two.opened.of(2) is None
    assert second.empty((2,), F4).data.device_id == 1 and first.empty((2,), F4).data.device_id == 0
    second.close()
    assert two.opened.of(1) is None and two.gpu(1) is not second and two.gpu() is first
    assert two.gpu(1).memory() == (1000, 1 << 30) and two.gpu(1).free() == 1024


def test_the_one_that_is_chosen_may_be_another(two):
    fake_cupy.KNOBS.device = 1
    assert two.gpu().number == 1 and two.gpu(0).number == 0
    assert two.gpu(0) is not two.gpu()


@pytest.mark.parametrize(
    "devices, number, words",
    [
        (2, 2, "cuda:2 is not there: GPUs have the numbers 0 to 1"),
        (1, 1, "cuda:1 is not there: the only GPU is number 0"),
        (0, 1, "the driver finds no GPU"),
    ],
)
def test_numbers_that_are_not_there(machine, monkeypatch, devices, number, words):
    machine.stub.set(devices=devices)
    with pytest.raises(BackendUnavailable, match=words):
        machine.gpu(number)
    if devices:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
        with pytest.raises(BackendUnavailable, match=r"\(CUDA_VISIBLE_DEVICES is '4'\)$"):
            machine.gpu(number)


def test_a_gpu_that_will_not_do(two):
    two.stub.set(mode=2)
    with pytest.raises(BackendUnavailable, match=r"compute mode prohibited.*nvidia-smi -i 1 -c DEFAULT"):
        two.gpu(1)


def test_a_probe_lists_them(two):
    found = probing.probe(2)
    assert found.ok and [(d.name, d.isa) for d in found.devices] == [("Stub GPU", "sm_90a")] * 2
    two.stub.set(devices=1)
    assert len(probing.probe(2).devices) == 1


# ---- what they share


def test_they_meet_when_both_are_open(two):
    two.gpu()
    assert two.stub.order == []
    two.gpu(1)
    assert two.stub.order == ["peer 1001 1000", "peer 1000 1001"]
    assert two.stub.current() is None  # the thread has its own context again
    peers.meet(two.gpu(1), two.gpu(1))
    assert two.stub.order == []


def test_a_third_one_meets_both(two):
    two.stub.set(devices=3)
    for number in (None, 2, 1):
        two.gpu(number)
    assert two.stub.order == [
        "peer 1002 1000", "peer 1000 1002", "peer 1001 1000", "peer 1000 1001", "peer 1001 1002", "peer 1002 1001",
    ]  # fmt: skip


def test_gpus_without_a_link(two):
    two.stub.set(reach=0)
    first, second = two.gpu(), two.gpu(1)
    assert two.stub.order == []
    x = first.to_device(np.arange(4, dtype="f4"))
    assert second.to_host(second.adopt(x, first)).tolist() == [0, 1, 2, 3]  # by the driver's own way


def test_another_library_has_let_them_meet(two):
    two.gpu()
    two.stub.fail("cuCtxEnablePeerAccess", 704, times=2)
    assert two.gpu(1).number == 1


# ---- copies


@pytest.mark.parametrize("shape", [(), (5,), (3, 4)])
def test_a_copy_is_in_the_order_of_both_streams(two, shape):
    """It begins when the array is written, and the array's memory is used again when it is copied."""
    first, second = two.gpu(), two.gpu(1)
    fake_cupy.STATE.of.update({0: 0x50, 1: 0x61})
    v = np.random.default_rng(1).standard_normal(shape).astype("f4")
    x = first.to_device(v)
    assert two.stub.order == ["peer 1001 1000", "peer 1000 1001"]
    y = second.adopt(x, first)
    assert (y.data.device_id, y.shape, y.dtype) == (1, shape, v.dtype) and np.array_equal(second.to_host(y), v)
    assert two.stub.order == ["record 1000 50", "wait 1001 61", "copy 1000 61", "record 1001 61", "wait 1000 50"]
    assert two.stub.current() is None


def test_copies_of_nothing_and_of_strided_arrays(two):
    first, second = two.gpu(), two.gpu(1)
    assert two.stub.order
    empty = second.adopt(first.empty((0, 3), F4), first)
    assert empty.shape == (0, 3) and two.stub.order == []
    strided = fake_cupy.ndarray((3, 2), "f4", np.zeros((2, 3), "f4").T, device=0)
    assert second.adopt(strided, first).flags.c_contiguous
    assert two.stub.launched == 1 and two.stub.order[0].startswith("record 1000")


def test_what_is_not_adopted(two):
    first, second = two.gpu(), two.gpu(1)
    x = first.to_device(np.ones(3, "f4"))
    with (
        pytest.raises(KernelError, match="an array cannot be copied from another GPU inside a recording"),
        second.recording(),
    ):
        second.adopt(x, first)
    with pytest.raises(
        DeviceError, match=r'lives on GPU 0, and this is GPU 1 \(Stub GPU\); copy it: trueno.to\(x, "cuda:1"\)'
    ):
        second.contiguous(x)
    two.stub.fail("cuMemcpyPeerAsync", 700)
    with pytest.raises(DeviceLost):
        second.adopt(x, first)


# ---- launches


def test_a_launch_enters_its_own_context(two):
    """Whatever is current: no call of the driver is refused, and the thread gets its own context back."""
    first, second = two.gpu(), two.gpu(1)
    launches = [gpu.prepare(ADD, (1, 1, 1), (5,)) for gpu in (first, second)]
    with first.current():
        launches[0]((1, 2, 3))
        assert (two.stub.launched, two.stub.refused) == (1, 0)
        launches[1]((1, 2, 3))
        assert (two.stub.launched, two.stub.refused) == (2, 0)
        for _ in range(3):
            launches[1]((1, 2, 3))
            launches[0]((1, 2, 3))
        assert (two.stub.launched, two.stub.refused) == (8, 0)
        assert two.stub.current() == 0
    launches[1]((1, 2, 3))
    assert two.stub.refused == 0 and two.stub.current() is None


def test_launches_with_fixed_pointers(two):
    first, second = two.gpu(), two.gpu(1)
    fixed = [gpu.prepare(ADD, (1, 1, 1), (5,)).bound((1, 2, 3)) for gpu in (first, second)]
    for _ in range(50):  # which one GPU alone would make a graph
        for launch in fixed:
            launch()
    assert (two.stub.launched, two.stub.captured, two.stub.replayed) == (100, 0, 0)
    assert two.stub.refused == 0 and two.stub.current() is None


def test_each_thread_launches_on_both(two):
    fixed = [two.gpu(n).prepare(ADD, (1, 1, 1), (5,)) for n in (None, 1)]
    errors = []

    def work():
        try:
            for _ in range(100):
                for launch in fixed:
                    launch((1, 2, 3))
        except Exception as error:
            errors.append(error)

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and two.stub.launched == 800


def test_an_error_leaves_the_threads_context(two):
    second = two.gpu(1)
    launch = second.prepare(ADD, (1, 1, 1), (5,))
    for _ in range(2):
        two.stub.fail("cuLaunchKernelEx", 701)
        with pytest.raises(KernelError, match="smaller block"):
            launch((1, 2, 3))
        assert two.stub.current() is None
        launch((1, 2, 3))


def test_a_launch_after_the_end(two):
    second = two.gpu(1)
    launch = second.prepare(ADD, (1, 1, 1), (5,))
    launch((1, 2, 3))
    second.close()
    with pytest.raises(DeviceLost, match="closed"):
        launch((1, 2, 3))
    assert two.gpu().empty((1,), F4).shape == (1,)  # the other one goes on


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_after_a_fork(two):
    first, second = two.gpu(), two.gpu(1)
    two.opened._after_fork()  # as in the child
    for act in (lambda: first.empty((1,), F4), lambda: second.empty((1,), F4)):
        with pytest.raises(DeviceLost, match="spawn"):
            act()
    for number in (None, 0, 1):
        with pytest.raises(BackendUnavailable, match="spawn"):
            two.gpu(number)
    assert two.opened.of(1) is None


def test_a_fork_where_only_a_further_one_was_used(two):
    two.gpu(1)
    two.opened._after_fork()
    with pytest.raises(BackendUnavailable, match="spawn"):
        two.gpu()


# ---- the backend


def test_the_backend_of_a_number(two):
    backend = CudaBackend()
    assert backend.numbered(0) is backend and backend.name == "cuda"
    second = backend.numbered(1)
    assert second.name == "cuda:1" and second.device is two.gpu(1) and second.numbered(1) is second
    assert [(d.name, d.isa) for d in second.probe(2).devices] == [("Stub GPU", "sm_90a")]
    with pytest.raises(BackendUnavailable, match="cuda:2 is not there"):
        backend.numbered(2)


def test_whose_array_it_is(two):
    backend = CudaBackend()
    x = [two.gpu(n).empty((2,), F4) for n in (None, 1)]
    assert [backend.number(one) for one in x] == [None, 1]
    assert [CudaBackend(1).number(one) for one in x] == [0, None]


def test_the_backend_adopts_arrays_of_gpus(two):
    backend = CudaBackend()
    assert backend.adopt(np.ones(3)) is None
    theirs = fake_cupy.ndarray(
        (3,), "f4", np.arange(3, dtype="f4"), device=1
    )  # another library's: we have not opened it
    assert two.opened.of(1) is None
    there = backend.adopt(theirs)
    assert there.data.device_id == 0 and two.gpu().to_host(there).tolist() == [0, 1, 2] and two.opened.of(1) is not None
    again = CudaBackend(1).adopt(there)
    assert again.data.device_id == 1 and two.gpu(1).to_host(again).tolist() == [0, 1, 2]
