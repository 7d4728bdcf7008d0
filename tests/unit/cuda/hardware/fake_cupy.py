"""As much of CuPy as `trueno_cuda.device.hardware.runtime` imports, over memory of the host's.  It has no NVRTC."""

import threading
from importlib.machinery import ModuleSpec
from math import prod
from types import ModuleType, SimpleNamespace

import numpy as np


class CUDARuntimeError(RuntimeError):
    def __init__(self, status):
        super().__init__(f"CUDA error {status}")
        self.status = status


class OutOfMemoryError(MemoryError):
    pass


class State(threading.local):
    """Each thread's current stream, and those of single GPUs."""

    stream = 0

    def __init__(self):
        self.of = {}


STATE = State()
KNOBS = SimpleNamespace()


def reset():
    KNOBS.__dict__.update(
        version=13020, device=0, device_error=0, room=1 << 30, error=0, made=0, current=lambda: KNOBS.device
    )
    STATE.stream = 0
    STATE.of.clear()
    MODULES.update(_modules())


class Stream:
    def __init__(self, ptr):
        self.ptr = ptr


class ndarray:
    """An array of "device" memory: addresses are the host's."""

    def __init__(self, shape, dtype, values=None, device=None):
        if KNOBS.error:
            raise CUDARuntimeError(KNOBS.error)
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        if prod(self.shape) * self.dtype.itemsize > KNOBS.room:
            raise OutOfMemoryError("Out of memory allocating")
        self.values = np.full(self.shape, 0, self.dtype) if values is None else values
        self.data = SimpleNamespace(
            ptr=self.values.ctypes.data, device_id=KNOBS.current() if device is None else device
        )
        KNOBS.made += 1

    size = property(lambda self: self.values.size)
    nbytes = property(lambda self: self.values.nbytes)
    itemsize = property(lambda self: self.values.itemsize)
    strides = property(lambda self: self.values.strides)
    _c_contiguous = property(lambda self: self.values.flags.c_contiguous)
    flags = property(lambda self: SimpleNamespace(c_contiguous=self.values.flags.c_contiguous))


def _modules():
    def module(name, **content):
        made = ModuleType(name)
        made.__dict__.update(content)
        made.__spec__ = ModuleSpec(name, None)
        made.__path__ = []
        return made

    def get_device():
        if KNOBS.device_error:
            raise CUDARuntimeError(KNOBS.device_error)
        return KNOBS.device

    runtime = module(
        "cupy.cuda.runtime", runtimeGetVersion=lambda: KNOBS.version, getDevice=get_device,
        CUDARuntimeError=CUDARuntimeError,
    )  # fmt: skip
    memory = module("cupy.cuda.memory", OutOfMemoryError=OutOfMemoryError)

    def get_current_stream(number=-1):
        return Stream(STATE.of.get(number, STATE.stream))

    cuda = module("cupy.cuda", runtime=runtime, memory=memory, get_current_stream=get_current_stream)
    pool = SimpleNamespace(free_bytes=lambda: 24, free_all_blocks=lambda: None)
    cupy = module("cupy", cuda=cuda, ndarray=ndarray, get_default_memory_pool=lambda: pool)
    return {"cupy": cupy, "cupy.cuda": cuda, "cupy.cuda.runtime": runtime, "cupy.cuda.memory": memory}


MODULES: dict[str, ModuleType] = {}
