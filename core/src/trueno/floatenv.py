"""The floating-point environment that everything here computes in: IEEE 754's default.

Rounding is to nearest even and subnormals are kept; traps stay the caller's.  A caller's thread may have other modes
(`fesetround`, `torch.set_flush_denormal`, a library that was linked with `-ffast-math`), and NumPy, Python and LLVM
obey the thread that they run in.  So a call computes inside `ieee()`, and so does what is computed once and kept:
constants of traced bodies, printed kernels, machine code on disk.  Afterwards the thread has the caller's modes again.
A backend whose kernels see to it themselves says so (`own_environment`); docs/adr/0014 says why, and what it costs.
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, Final

# Read at each look, so that Python folds none of it into a constant; spelled so that no mode changes them.
_ONE = float.fromhex("1.0")
_QUARTER = float.fromhex("0x1p-54")
_MOST = float.fromhex("0x3p-54")
_STEP = float.fromhex("0x1p-52")
_LEAST = float.fromhex("0x1p-1022")
_HALF = float.fromhex("0x1p-1")


def standard() -> bool:
    """Whether this thread rounds to nearest and keeps subnormals; 40 ns.

    A quarter of 1's last place is rounded away, three quarters are rounded up: upwards both would be 1 + ε, downwards
    and towards zero both 1.  Half of the least normal number is 0 where subnormals are flushed, as results or as
    operands of the comparison.
    """
    return _ONE + _MOST - (_ONE + _QUARTER) == _STEP and _LEAST * _HALF != 0.0


def ieee() -> AbstractContextManager[None]:
    """Inside, this thread has the default environment; afterwards, the one that it had."""
    return _NOTHING if standard() else _Default()


def steady(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """`kernel`, computing in the default environment whatever its caller set; 80 ns a call."""

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
    """Sets the default environment and puts back what was there, by the C library."""

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
    """The C library's fegetenv and fesetenv, the default as it takes it, and room for what it gives; None: unknown.

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
