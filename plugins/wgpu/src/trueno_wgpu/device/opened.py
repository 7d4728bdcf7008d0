"""The process's one device, opened at first use."""

import os
from threading import Lock

from trueno_wgpu.device.gpu import Gpu

_lock = Lock()
_gpu: Gpu | None = None


def gpu() -> Gpu:
    """The process's device, opened at first use; BackendUnavailable if no adapter is suitable."""
    global _gpu
    current = _gpu
    if current is None or current.closed:
        with _lock:
            current = _gpu
            if current is None or (current.closed and not current.lost):
                current = _gpu = Gpu()
    return current


def is_open() -> bool:
    """Whether there is a device that can be used."""
    return _gpu is not None and not _gpu.closed


def _after_fork() -> None:
    global _lock, _gpu
    _lock, _gpu = Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
