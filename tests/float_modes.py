"""A thread's floating-point modes, for tests that change them: the C library's rounding, PyTorch's flushing."""

import ctypes
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

LINUX = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
needs_modes = pytest.mark.skipif(not LINUX, reason="the numbers of fesetround's modes are known for Linux here")

# <fenv.h>: x86 keeps the mode in MXCSR's order, ARM in FPCR's.
_ROUNDING = (
    {"up": 0x800, "down": 0x400, "zero": 0xC00}
    if platform.machine() == "x86_64"
    else {"up": 0x400000, "down": 0x800000, "zero": 0xC00000}
)
ROUNDING = tuple(_ROUNDING)
MODES = (*ROUNDING, "flush")


def rounding() -> int:
    return int(ctypes.CDLL("libm.so.6").fegetround())


def set_mode(mode: str) -> None:
    """Set one of MODES in this thread, or "nearest": the default again."""
    if mode == "flush":
        import torch

        assert torch.set_flush_denormal(True)
        return
    if "torch" in sys.modules:
        sys.modules["torch"].set_flush_denormal(False)
    assert ctypes.CDLL("libm.so.6").fesetround(_ROUNDING.get(mode, 0)) == 0


@contextmanager
def in_mode(mode: str) -> Iterator[None]:
    """Inside, this thread rounds or flushes so."""
    set_mode(mode)
    try:
        yield
    finally:
        set_mode("nearest")
