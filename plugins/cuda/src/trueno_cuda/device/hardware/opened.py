"""The process's one GPU: which it is, when it is opened, and the error in a forked child."""

import os
from threading import Lock

from trueno.errors import BackendUnavailable

from trueno_cuda.device.hardware import driver as cuda
from trueno_cuda.device.hardware import runtime
from trueno_cuda.device.hardware.choice import choose, outdated, wanted
from trueno_cuda.device.hardware.driver import Driver
from trueno_cuda.device.hardware.failures import FORKED, absence
from trueno_cuda.device.hardware.gpu import Gpu

_lock = Lock()
_gpu: Gpu | None = None
_forked = False


def gpu() -> Gpu:
    """The process's GPU, opened when it is first asked for; BackendUnavailable where none will do."""
    global _gpu
    current = _gpu
    if current is None or current.closed:
        with _lock:
            current = _gpu
            if current is None or current.closed:
                current = _gpu = Gpu(*chosen())
    return current


def in_use() -> Gpu | None:
    """The process's GPU, if it was opened."""
    return None if _gpu is None or _gpu.closed else _gpu


def chosen() -> tuple[Driver, int]:
    """The driver, and the number of the GPU that `gpu` opens; BackendUnavailable with the remedy where none will do."""
    if _forked:
        raise BackendUnavailable(FORKED)
    driver = cuda.opened()
    outdated(driver.version, runtime.VERSION)
    try:
        current = runtime.current_device()
    except runtime.CudaFailure as error:
        raise absence(error.code, *driver.words(error.code)) from None
    return driver, choose(driver, wanted(), current)


def _after_fork() -> None:
    global _lock, _gpu, _forked
    _lock = Lock()
    if _gpu is not None:
        _gpu.after_fork()
        _forked = True
    _gpu = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
