"""NCCL's calls, which a fake in its place writes down and carries out on the host's memory."""

import numpy as np
import pytest
from trueno.errors import BackendUnavailable, KernelError
from unit.cuda.hardware import fake_cupy

F4 = np.dtype(np.float32)


class NcclError(RuntimeError):
    pass


class Fake:
    """`cupy.cuda.nccl`, as far as it is used.  calls: in order, with the GPU whose context was current."""

    available = True
    NcclError = NcclError

    def __init__(self, machine):
        self.calls, self.devices, self.failing, self.destroyed = [], [], "", []
        outer = self

        class NcclCommunicator:
            def __init__(self, number):
                self.number = number

            @staticmethod
            def initAll(devices):
                outer.fail("initAll")
                outer.devices = devices
                return [NcclCommunicator(n) for n in devices]

            def __getattr__(self, name):
                def call(*args):
                    outer.fail(name)
                    outer.calls.append((name, self.number, *args))

                return call

            def destroy(self):
                outer.destroyed.append(self.number)

        self.NcclCommunicator = NcclCommunicator

    def fail(self, name):
        if name == self.failing:
            raise NcclError("NCCL_ERROR_SYSTEM_ERROR: unhandled system error")

    def groupStart(self):
        self.calls.append(("groupStart",))

    def groupEnd(self):
        self.calls.append(("groupEnd",))


@pytest.fixture
def nccl(machine):
    machine.stub.set(devices=2)
    fake = Fake(machine)
    fake_cupy.MODULES["cupy.cuda"].nccl = fake
    return fake


@pytest.fixture
def gpus(machine, nccl):
    fake_cupy.STATE.of.update({0: 0x50, 1: 0x61})
    return [machine.gpu(), machine.gpu(1)]


@pytest.fixture
def links(gpus):
    from trueno_cuda.device.hardware.links import Links

    return Links(gpus)


def arrays(gpus, *shape, dtype=F4):
    return [gpu.empty(shape, np.dtype(dtype)) for gpu in gpus]


def pointers(*listed):
    return [tuple(x.data.ptr for x in pair) for pair in zip(*listed, strict=True)]


def test_one_communicator_a_gpu(links, nccl):
    assert nccl.devices == [0, 1] and nccl.calls == []
    links.close()
    links.close()
    assert nccl.destroyed == [0, 1]


@pytest.mark.parametrize(
    "name, send, result, rest",
    [
        ("allReduce", lambda one, x, y: one.all_reduce(x, y, "sum"), (4, 6), (24, 7, 0)),
        ("allReduce", lambda one, x, y: one.all_reduce(x, y, "prod"), (4, 6), (24, 7, 1)),
        ("allReduce", lambda one, x, y: one.all_reduce(x, y, "max"), (4, 6), (24, 7, 2)),
        ("allReduce", lambda one, x, y: one.all_reduce(x, y, "min"), (4, 6), (24, 7, 3)),
        ("allGather", lambda one, x, y: one.all_gather(x, y), (8, 6), (24, 7)),
        ("reduceScatter", lambda one, x, y: one.reduce_scatter(x, y, "max"), (2, 6), (12, 7, 2)),
        ("broadcast", lambda one, x, y: one.broadcast(x, y, 1), (4, 6), (24, 7, 1)),
    ],
)
def test_messages(links, gpus, nccl, name, send, result, rest):
    """A group, with a call of each GPU on its stream: counts are of the array that NCCL counts."""
    x, y = arrays(gpus, 4, 6), arrays(gpus, *result)
    send(links, x, y)
    (a, c), (b, d) = pointers(x, y)
    assert nccl.calls == [
        ("groupStart",), (name, 0, a, c, *rest, 0x50), (name, 1, b, d, *rest, 0x61), ("groupEnd",)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "dtype, number",
    [("int8", 0), ("uint8", 1), ("int32", 2), ("uint32", 3), ("int64", 4), ("uint64", 5), ("float16", 6),
     ("float32", 7), ("float64", 8), ("bfloat16", 9)],
)  # fmt: skip
def test_dtypes(links, gpus, nccl, dtype, number):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    x = arrays(gpus, 3, dtype=dtype)
    links.all_gather(x, arrays(gpus, 6, dtype=dtype))
    assert [call[5] for call in nccl.calls[1:-1]] == [number] * 2


def test_strided_arrays_are_gathered(links, gpus, nccl, machine):
    strided = fake_cupy.ndarray((3, 2), "f4", np.zeros((2, 3), "f4").T, device=0)
    x = [strided, gpus[1].empty((3, 2), F4)]
    links.all_reduce(x, arrays(gpus, 3, 2), "sum")
    assert machine.stub.launched == 1 and nccl.calls[1][2] != strided.data.ptr


def test_errors_are_sentences(links, gpus, nccl):
    x = arrays(gpus, 4)
    nccl.failing = "allReduce"
    with pytest.raises(KernelError, match=r"cuda: NCCL: NCCL_ERROR_SYSTEM_ERROR.*; NCCL_DEBUG=INFO says more"):
        links.all_reduce(x, arrays(gpus, 4), "sum")
    assert nccl.calls[-1] == ("groupEnd",)
    nccl.failing = ""
    links.all_reduce(x, arrays(gpus, 4), "sum")


def test_communicators_that_cannot_be_made(gpus, nccl):
    from trueno_cuda.device.hardware.links import Links

    nccl.failing = "initAll"
    with pytest.raises(KernelError, match="cuda: NCCL: NCCL_ERROR_SYSTEM_ERROR"):
        Links(gpus)


@pytest.mark.parametrize("there", ["nothing", "a module without a library", "a loader's error"])
def test_without_nccl(gpus, nccl, there):
    from trueno_cuda.device.hardware.links import Links

    cuda = fake_cupy.MODULES["cupy.cuda"]
    if there == "a module without a library":
        nccl.available = False
    else:
        del cuda.nccl
    if there == "a loader's error":

        def missing(name):
            raise OSError("libnccl.so.2: cannot open shared object file")

        cuda.__getattr__ = missing
    with pytest.raises(BackendUnavailable, match=r"cuda: NCCL is not installed.*pip install nvidia-nccl-cu13"):
        Links(gpus)
