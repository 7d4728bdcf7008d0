"""A libcuda that has no GPU (`libcuda.c`), and a CuPy that has no CUDA (`fake_cupy.py`)."""

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from trueno.settings import settings
from trueno_cuda.device.hardware import driver as cuda
from trueno_cuda.device.hardware.contexts import Context
from trueno_cuda.device.hardware.driver import Driver
from unit.cuda.hardware import fake_cupy

HERE = Path(__file__).parent
NAMES = ("runtime", "gpu", "opened", "links")


class Launch(ctypes.Structure):
    """What the stub writes down of a launch."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("attributes", ctypes.c_uint), ("attribute", ctypes.c_int), ("value", ctypes.c_int),
        ("stream", ctypes.c_uint64), ("function", ctypes.c_uint64), ("params", ctypes.c_ubyte * 512),
    )  # fmt: skip


class Stub:
    """The stub's library: its counters as attributes, and what it saw."""

    def __init__(self, path):
        self.path = str(path)
        self.library = ctypes.CDLL(self.path)

    def __getattr__(self, name):
        return ctypes.c_int.in_dll(self.library, name).value

    def set(self, **values):
        for name, value in values.items():
            ctypes.c_int.in_dll(self.library, name).value = value

    def takes(self, *sizes):
        """Bytes of each parameter of the next launches."""
        (ctypes.c_int * 64).in_dll(self.library, "param_sizes")[: len(sizes)] = sizes
        self.set(params=len(sizes))

    def fail(self, name, code, times=1):
        """The next calls of a function give a result code."""
        (ctypes.c_char * 64).in_dll(self.library, "failing").value = name.encode()
        self.set(fail_code=code, fail_times=times)

    @property
    def order(self):
        """What went to streams, and from which GPU's context, a line each; then it is forgotten."""
        held = (ctypes.c_char * 4096).in_dll(self.library, "order")
        lines, held.value = held.value.decode().splitlines(), b""
        return lines

    def current(self):
        """The number of the GPU whose context is this thread's; None for no context."""
        context = ctypes.c_void_p()
        self.library.cuCtxGetCurrent(ctypes.byref(context))
        return context.value - 0x1000 if context.value else None

    def launch(self, index=-1):
        return (Launch * 4096).in_dll(self.library, "launches")[index % self.launched]


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("no C compiler for the stub of libcuda")
    path = tmp_path_factory.mktemp("libcuda") / "libcuda.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-w", "-o", path, HERE / "libcuda.c"], check=True)
    return path


@pytest.fixture
def stub(library, tmp_path):
    """A copy of its own for each test: the loader gives it its own state."""
    return Stub(shutil.copy(library, tmp_path / "libcuda-stub.so"))


@pytest.fixture
def driver(stub):
    return Driver(stub.path)


@pytest.fixture
def context(driver):
    return Context(driver, 0, alone=True)


@pytest.fixture
def cupy(monkeypatch):
    """The fake in CuPy's place; the modules that import it are imported again."""
    import trueno_cuda.device.hardware as package

    fake_cupy.reset()
    for name, module in fake_cupy.MODULES.items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in NAMES:
        monkeypatch.delitem(sys.modules, f"trueno_cuda.device.hardware.{name}", raising=False)
        monkeypatch.delattr(package, name, raising=False)
    yield fake_cupy
    opened = sys.modules.get("trueno_cuda.device.hardware.opened")
    for gpu in opened._all() if opened is not None else ():
        gpu.close()
    for name in NAMES:
        sys.modules.pop(f"trueno_cuda.device.hardware.{name}", None)
        if hasattr(package, name):
            delattr(package, name)


@pytest.fixture
def machine(stub, cupy, monkeypatch, tmp_path):
    """A process with the stub as its driver, and the fake as its CuPy: `machine.gpu()` opens the device."""
    from trueno_cuda.device.hardware import probing

    monkeypatch.setattr(cuda, "_open", lambda path: ctypes.CDLL(stub.path))
    monkeypatch.setattr(cuda, "_opened", None)
    monkeypatch.setattr(probing, "_installed", lambda name: name == "cupy-cuda13x")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    settings.override("TRUENO_CACHE_DIR", str(tmp_path / "cache"))
    cupy.KNOBS.current = lambda: stub.current() or cupy.KNOBS.device  # as CuPy's arrays are made
    from trueno_cuda.device.hardware import opened

    yield SimpleNamespace(gpu=opened.gpu, stub=stub, cupy=cupy, opened=opened)
    settings.override("TRUENO_CACHE_DIR", None)
