"""Prepared launches: what reaches the driver, bit by bit, from any thread."""

import struct
from threading import Thread

import numpy as np
import pytest
from trueno.errors import DeviceLost, KernelError
from trueno_cuda.device.hardware.contexts import Context
from trueno_cuda.device.hardware.launches import Streams, prepared
from unit.cuda.hardware import kernels

STREAM = 0x7F12_3456_789A


class Here:
    """Which stream a thread's launches go to."""

    stream, unusual, other = STREAM, (), 0x99

    def current(self):
        return self.stream

    def ask(self):
        return self.other


@pytest.fixture
def here():
    return Here()


@pytest.fixture
def ready(driver, context, here):
    """A kernel as a prepared launch."""

    def make(source, grid=(1, 1, 1), numbers=(), block=None, shared=0, arch="sm_90", around=context, unusual=()):
        built = source.build(arch=arch)
        with around:
            module = driver.load(built.text.encode(), built.name)
            function = driver.handle("cuModuleGetFunction", module, built.name.encode())
        threads = built.threads or block
        streams = Streams(here.current, unusual, here.ask)
        return prepared(around, streams, built, function, grid, numbers, threads, shared)

    return make


def test_pointers_and_numbers(ready, stub):
    stub.takes(8, 8, 8, 4)
    launch = ready(kernels.add, grid=(7, 5, 3), numbers=(2**32 - 1,), shared=1024)
    launch((1, 2**64 - 1, 3))
    seen = stub.launch()
    assert (tuple(seen.grid), tuple(seen.block), seen.shared, seen.stream) == ((7, 5, 3), (256, 1, 1), 1024, STREAM)
    assert seen.attributes == 0
    assert struct.unpack("<3QI", bytes(seen.params[:28])) == (1, 2**64 - 1, 3, 2**32 - 1)
    launch([np.int64(4), 5, 6])
    assert struct.unpack("<3QI", bytes(stub.launch().params[:28])) == (4, 5, 6, 2**32 - 1)


def test_every_size_of_parameter(ready, stub):
    sizes = "<QHqiQfde"
    stub.takes(8, 2, 8, 4, 8, 4, 8, 2)
    launch = ready(kernels.mixed, numbers=(60000, -(2**63), -7, 2**64 - 1), block=(512, 1, 1))
    launch((9,), (1.5, -2.25, 0.5))
    assert struct.unpack(sizes, bytes(stub.launch().params[: struct.calcsize(sizes)])) == (
        9, 60000, -(2**63), -7, 2**64 - 1, 1.5, -2.25, 0.5,
    )  # fmt: skip


def test_floats_that_are_too_large_are_infinite(ready, stub):
    stub.takes(8, 2, 8, 4, 8, 4, 8, 2)
    launch = ready(kernels.mixed, numbers=(0, 0, 0, 0), block=(1, 1, 1))
    launch((9,), (-1e39, 1e300, 1e6))
    *_, x, y, z = struct.unpack("<QHqiQfde", bytes(stub.launch().params[:44]))
    assert (x, y, z) == (-np.inf, 1e300, np.inf)


def test_a_tensor_map_is_given_as_its_bytes(ready, stub):
    stub.takes(128, 8)
    made = bytes(np.random.default_rng(7).integers(0, 256, 128, np.uint8))
    ready(kernels.mapped)((made, 77))
    seen = bytes(stub.launch().params[:136])
    assert seen[:128] == made and struct.unpack("<Q", seen[128:]) == (77,)


def test_fixed_pointers(ready, stub, here):
    stub.takes(8, 8, 8, 4)
    unusual = {}
    launch = ready(kernels.add, grid=(3, 1, 1), numbers=(77,), unusual=unusual)
    fixed, other = launch.bound([1, 2, 2**64 - 1]), launch.bound((4, 5, 6))
    for _ in range(2):
        for call, pointers in ((fixed, (1, 2, 2**64 - 1)), (launch, (7, 8, 9)), (other, (4, 5, 6))):
            call() if call is not launch else launch(pointers)
            assert struct.unpack("<3QI", bytes(stub.launch().params[:28])) == (*pointers, 77)
            assert (stub.launch().stream, stub.launch().grid[0]) == (STREAM, 3)
    here.stream = 0x55
    fixed()
    assert (stub.launch().stream, stub.launch().params[0]) == (0x55, 1)
    unusual[1] = None  # some thread records
    fixed()
    assert stub.launch().stream == 0x99
    unusual.clear()
    here.stream = STREAM
    fixed()
    assert stub.launch().stream == STREAM
    assert struct.unpack("<3QI", bytes(stub.launch().params[:28])) == (1, 2, 2**64 - 1, 77)


def test_fixed_pointers_of_a_kernel_with_floats(ready, stub):
    with pytest.raises(KernelError, match="mixed takes floats"):
        ready(kernels.mixed, numbers=(0,) * 4, block=(1, 1, 1)).bound((1,))


def test_fixed_pointers_in_a_thread_without_a_context(ready, driver, stub):
    fixed = ready(kernels.add, grid=(7, 1, 1), numbers=(1,)).bound((1, 2, 3))
    driver.call("cuCtxSetCurrent", 0)
    fixed()
    thread = Thread(target=fixed)
    thread.start()
    thread.join()
    assert stub.launched == 2
    stub.fail("cuLaunchKernelEx", 701)
    with pytest.raises(KernelError, match="grid 7x1x1"):
        fixed()


@pytest.mark.parametrize("given", [b"", b"x" * 127, b"x" * 129, 5])
def test_what_is_no_tensor_map(ready, given):
    with pytest.raises(KernelError, match="are not its pointers and floats"):
        ready(kernels.mapped)((given, 77))


def test_a_kernel_that_waits_now_and_then_may_not_begin_early(ready, stub):
    stub.takes(8, 4)
    ready(kernels.half_early, numbers=(3,))((1,))
    assert stub.launch().attributes == 0


def test_a_kernel_that_waits_by_itself_may_begin_early(ready, stub):
    stub.takes(8)
    ready(kernels.early)((1,))
    seen = stub.launch()
    assert (seen.attributes, seen.attribute, seen.value) == (1, 6, 1)


@pytest.mark.parametrize(
    "source, given, words",
    [
        (kernels.add, {"numbers": ()}, "the number n is missing"),
        (kernels.add, {"numbers": (1, 2)}, "takes 1 whole numbers, not 2"),
        (kernels.add, {"numbers": (-1,)}, "n is -1, which is not a u32"),
        (kernels.add, {"numbers": (2**32,)}, "n is 4294967296, which is not a u32"),
        (kernels.add, {"numbers": (1,), "grid": (0, 1, 1)}, r"a grid of \(0, 1, 1\)"),
        (kernels.add, {"numbers": (1,), "grid": (1, 65536, 1)}, r"a grid of \(1, 65536, 1\)"),
        (kernels.add, {"numbers": (1,), "grid": (2**31, 1, 1)}, "a grid of"),
        (kernels.mixed, {"numbers": (0,) * 4, "block": (513, 1, 1)}, "513 threads a block, and it takes 512"),
        (kernels.mixed, {"numbers": (0,) * 4, "block": (1, 1, 65)}, "a block of"),
        (kernels.backwards, {"numbers": (1,)}, "pointers, then whole numbers, then floats"),
        (kernels.paired, {"grid": (3, 1, 1)}, "3 blocks along x are not a whole number of clusters of 2"),
    ],
)
def test_what_cannot_be_prepared(ready, source, given, words):
    with pytest.raises(KernelError, match=words):
        ready(source, **given)


@pytest.mark.parametrize(
    "pointers, floats, words",
    [
        ((1, 2), (), "add takes 3 pointers, not 2"),
        ((1, 2, 3, 4), (), "add takes 3 pointers, not 4"),
        ((1, 2, 3), (1.0,), "add takes 0 floats, not 1"),
        ((1, 2, -3), (), "are not its pointers and floats"),
        ((1, 2, 3.5), (), "are not its pointers and floats"),
        ((1, 2, None), (), "are not its pointers and floats"),
    ],
)
def test_what_cannot_be_launched(ready, stub, pointers, floats, words):
    launch = ready(kernels.add, numbers=(1,))
    with pytest.raises(KernelError, match=words):
        launch(pointers, floats)
    assert stub.launched == 0
    launch((1, 2, 3))  # the lock is free again
    assert stub.launched == 1


def test_missing_floats(ready):
    launch = ready(kernels.mixed, numbers=(0,) * 4, block=(1, 1, 1))
    with pytest.raises(KernelError, match="mixed takes 3 floats, not 0"):
        launch((1,))


@pytest.mark.parametrize("code, kind", [(701, KernelError), (1, KernelError), (700, DeviceLost)])
def test_an_error_names_the_launch(ready, stub, code, kind):
    launch = ready(kernels.add, grid=(7, 1, 1), numbers=(1,), shared=16)
    stub.fail("cuLaunchKernelEx", code)
    with pytest.raises(
        kind, match=r"cuda: add \(grid 7x1x1, block 256x1x1, 16 bytes of dynamic shared memory\): CUDA_"
    ):
        launch((1, 2, 3))


def test_threads_share_a_launch(ready, stub):
    stub.takes(8, 8, 8, 4)
    launch = ready(kernels.add, numbers=(5,))
    errors = []

    def work(base):
        try:
            for i in range(300):
                launch((base + i, base + i, base + i))
        except Exception as error:
            errors.append(error)

    threads = [Thread(target=work, args=(1000 * t,)) for t in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors  # each thread began without a context
    seen = [struct.unpack("<3QI", bytes(stub.launch(i).params[:28])) for i in range(stub.launched)]
    assert all(a == b == c and n == 5 for a, b, c, n in seen)
    assert sorted(a for a, *_ in seen) == [1000 * t + i for t in range(8) for i in range(300)]
    assert stub.entered == 8 + 1  # once a thread, and for loading


def test_a_context_that_somebody_else_took_away(ready, driver, stub):
    launch = ready(kernels.add, numbers=(1,))
    launch((1, 2, 3))
    driver.call("cuCtxSetCurrent", 0)
    launch((1, 2, 3))
    driver.call("cuCtxSetCurrent", 0x1007)
    launch((1, 2, 3))
    assert stub.launched == 3


def test_beside_other_gpus_a_thread_keeps_its_own_context(ready, driver, stub):
    stub.set(devices=2)
    second = Context(driver, 1, alone=False)
    launch = ready(kernels.add, numbers=(1,), around=second)
    driver.call("cuCtxSetCurrent", 0x1000)
    launch((1, 2, 3))
    assert driver.current() == 0x1000
    with second:
        assert driver.current() == 0x1001
    assert driver.current() == 0x1000
    stub.fail("cuLaunchKernelEx", 701)
    with pytest.raises(KernelError):
        launch((1, 2, 3))
    assert driver.current() == 0x1000
