"""The floating-point environment in which everything here computes: IEEE 754's default.

Rounding is to nearest even and subnormals are kept; traps stay the caller's.  A caller's thread may have other modes
(`fesetround`, `torch.set_flush_denormal`, a library linked with `-ffast-math`), and NumPy, Python and LLVM
use the modes of the current thread.  So calls compute inside `ieee()`, and so does everything computed once and cached:
constants of traced bodies, printed kernels, machine code on disk.  Afterwards the thread has the caller's modes again.
A backend whose kernels set the modes themselves says so (`own_environment`); docs/adr/0014 says why, and what it costs.
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, Final

# Read from memory at each check, so that Python folds none of it into a constant; no mode changes these literals.
_ONE = float.fromhex("1.0")
_QUARTER = float.fromhex("0x1p-54")
_MOST = float.fromhex("0x3p-54")
_STEP = float.fromhex("0x1p-52")
_LEAST = float.fromhex("0x1p-1022")
_HALF = float.fromhex("0x1p-1")


def standard() -> bool:
    """Whether this thread rounds to nearest and keeps subnormals; 40 ns.

    A quarter of 1's last place is rounded off, three quarters are rounded up: upwards both would give 1 + ε, downwards
    and towards zero both 1.  Half of the least normal number is 0 where subnormals are flushed, as results or as
    operands of the comparison.
    """
    return _ONE + _MOST - (_ONE + _QUARTER) == _STEP and _LEAST * _HALF != 0.0


def ieee() -> AbstractContextManager[None]:
    """Give this thread the default environment inside the `with`, and restore the previous one afterwards."""
    return _NOTHING if standard() else _Default()


def steady(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `kernel` to compute in the default environment whatever its caller set; 80 ns per call."""

    def steadied(*args: Any) -> Any:
        if _ONE + _MOST - (_ONE + _QUARTER) == _STEP and _LEAST * _HALF != 0.0:  # `standard`, without a call
            return kernel(*args)
        with _Default():
            return kernel(*args)

    bind = getattr(kernel, "bind", None)
    steadied.__dict__ |= getattr(kernel, "__dict__", {})
    if bind is not None:
        steadied.bind = lambda shapes: steady(bind(shapes))  # type: ignore[attr-defined]
    return steadied


_NOTHING: Final = nullcontext()


class _Default:
    """Sets the default environment and restores the previous one, with the C library."""

    __slots__ = ("_kept",)

    def __enter__(self) -> None:
        self._kept: Any = None
        functions = _library()
        if functions is not None:
            get, put, default, room = functions
            kept = room()
            if get(kept) == 0:
                self._kept = kept
                put(default)

    def __exit__(self, *_: object) -> None:
        if self._kept is not None:
            functions = _library()
            assert functions is not None
            functions[1](self._kept)


@cache
def _library() -> "tuple[Any, Any, Any, Any] | None":
    """The C library's fegetenv and fesetenv, the default environment, a buffer for the current one; None if unknown.

    `FE_DFL_ENV` is a macro: the address −1 under glibc and musl, an object on macOS.  On Windows, where neither is
    known, the caller's environment stays.
    """
    import ctypes

    try:
        names = ("libm.so.6", None) if sys.platform == "linux" else (None,)
        for name in names:
            try:
                library = ctypes.CDLL(name)
                get, put = library.fegetenv, library.fesetenv
                break
            except (OSError, AttributeError):
                continue
        else:
            return None
        if sys.platform == "linux":
            default: Any = ctypes.c_void_p(-1)
        else:
            default = ctypes.byref(ctypes.c_char.in_dll(library, "_FE_DFL_ENV"))
    except (OSError, AttributeError, ValueError, TypeError):
        return None
    return get, put, default, ctypes.c_char * 256
