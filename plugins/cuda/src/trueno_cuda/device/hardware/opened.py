"""The process's GPUs: which one `cuda` means, when each is opened, and the error in a forked child."""

import os
from threading import Lock

from trueno.errors import BackendUnavailable

from trueno_cuda.device.hardware import driver as cuda
from trueno_cuda.device.hardware import runtime
from trueno_cuda.device.hardware.choice import choose, numbered, outdated, wanted
from trueno_cuda.device.hardware.driver import Driver
from trueno_cuda.device.hardware.failures import FORKED, absence
from trueno_cuda.device.hardware.gpu import Gpu
from trueno_cuda.device.hardware.peers import meet

_lock = Lock()
_gpu: Gpu | None = None
_others: dict[int, Gpu] = {}
_forked = False


def gpu(number: int | None = None) -> Gpu:
    """The GPU of this number, or the one that `cuda` means, opened when it is first asked for.

    BackendUnavailable where none will do.
    """
    global _gpu
    current = _gpu if number is None else _others.get(number)
    if current is None or current.closed:
        with _lock:
            current = _gpu if number is None else _others.get(number)
            if current is None or current.closed:
                current = Gpu(*chosen(number))
                if number is None:
                    _gpu = current
                else:
                    _others[number] = current
                for other in _all():
                    meet(current, other)
    return current


def of(number: int) -> Gpu | None:
    """The GPU of this number, if this process uses it."""
    return next((one for one in _all() if one.number == number), None)


def in_use() -> Gpu | None:
    """The GPU that `cuda` means, if it was opened."""
    return None if _gpu is None or _gpu.closed else _gpu


def _all() -> list[Gpu]:
    return [one for one in (_gpu, *_others.values()) if one is not None and not one.closed]


def chosen(number: int | None = None) -> tuple[Driver, int]:
    """The driver, and the number of the GPU that `gpu` opens; BackendUnavailable with the remedy where none will do."""
    if _forked:
        raise BackendUnavailable(FORKED)
    driver = cuda.opened()
    outdated(driver.version, runtime.VERSION)
    if number is not None:
        return driver, numbered(driver, number)
    try:
        current = runtime.current_device()
    except runtime.CudaFailure as error:
        raise absence(error.code, *driver.words(error.code)) from None
    return driver, choose(driver, wanted(), current)


def _after_fork() -> None:
    global _lock, _gpu, _others, _forked
    _lock = Lock()
    for one in (_gpu, *_others.values()):
        if one is not None:
            one.after_fork()
            _forked = True
    _gpu, _others = None, {}


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
