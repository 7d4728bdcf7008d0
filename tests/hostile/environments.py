"""The floating-point environment of a thread, by way of the C library: rounding and flushed subnormals."""

import ctypes
import ctypes.util
import platform

X86 = platform.machine().lower() in ("x86_64", "amd64")
ARM = platform.machine().lower() in ("aarch64", "arm64")
WHERE, ITEM = (28, 4) if X86 else (0, 4)
"""Where fenv_t holds the register of SSE (MXCSR), or of ARM (FPCR)."""
MODES = (
    {"up": 0x4000, "down": 0x2000, "zero": 0x6000, "flush": 0x8000, "daz": 0x40, "both": 0x8040, "up, both": 0xC040}
    if X86
    else {"up": 1 << 22, "down": 2 << 22, "zero": 3 << 22, "flush": 1 << 24, "up, flush": 5 << 22}
)
"""Bits to set, by name."""
CONTROL = 0xFFC0 if X86 else 0xFFFFFFFF
"""Bits that steer; the others only tell what has happened."""
_LIBM = ctypes.CDLL(ctypes.util.find_library("m") or None)


def available() -> bool:
    return (X86 or ARM) and hasattr(_LIBM, "fesetenv") and platform.system() == "Linux"


def control() -> int:
    """The bits in force in this thread."""
    held = ctypes.create_string_buffer(64)
    _LIBM.fegetenv(held)
    return int.from_bytes(held[WHERE : WHERE + ITEM], "little") & CONTROL


def change(mode: str) -> None:
    """Put a mode in force; "" for what a process begins with."""
    held = ctypes.create_string_buffer(64)
    _LIBM.fegetenv(held)
    every = 0
    for bits in MODES.values():
        every |= bits
    word = int.from_bytes(held[WHERE : WHERE + ITEM], "little") & ~every
    held[WHERE : WHERE + ITEM] = (word | (MODES[mode] if mode else 0)).to_bytes(ITEM, "little")
    _LIBM.fesetenv(held)
