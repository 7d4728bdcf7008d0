"""Every error Trueno raises, in one tree; each also is the builtin that a Python user expects.

    TruenoError
    ├── ShapeError(ValueError)               operand shapes that do not fit the op's signature
    ├── DtypeError(TypeError)                a dtype that the op or the backend does not take
    ├── ParameterError(ValueError)           a keyword outside its range: `eps >= 0`
    │   └── UnknownKeyword(TypeError)        a keyword that the op does not have: `dim`
    ├── OutError(ValueError)                 `out=` that cannot hold the result
    ├── SettingError(ValueError)             a setting or environment variable with an unknown value
    ├── UnknownBackend(LookupError)          a backend name that is not installed
    ├── BackendUnavailable(RuntimeError)     installed, and its probe says why it cannot run
    ├── DeviceError(ValueError)              operands that live on different devices
    ├── KernelError(RuntimeError)            a kernel failed, or no backend takes the call
    │   └── DeviceLost                       the device went away; its arrays are gone with it
    ├── OutOfMemory(MemoryError)             a device has no room left
    ├── BatchError(RuntimeError)             a batch that is closed, busy or not executed, or a handle of another
    ├── FileError(ValueError)                a file that is damaged, is not what it should be, or cannot be written
    │   └── MissingFile(FileNotFoundError)   a file that does not exist
    ├── LZ4Error(ValueError)                 compressed bytes that are damaged, are not LZ4, or decode to too much
    └── GuardError(ArithmeticError)          a guard found an unhealthy result

A message names op, operand, symbol, value and remedy: `matmul: b[k] is 31, but a[k] is 32`.
"""

from collections.abc import Iterable
from errno import ENOENT
from typing import Any

from trueno.escape import LINES, escaped


class TruenoError(Exception):
    """Base of all errors that Trueno raises deliberately.  Its message is safe for a terminal, whatever it quotes."""

    def __str__(self) -> str:
        return escaped(super().__str__(), keep=LINES)


class ShapeError(TruenoError, ValueError):
    """Operand shapes that do not fit the op's signature."""


class DtypeError(TruenoError, TypeError):
    """A dtype that the op or the backend does not take."""


class ParameterError(TruenoError, ValueError):
    """A parameter outside its range."""


class UnknownKeyword(ParameterError, TypeError):
    """An argument that the op does not have, by keyword or by position; the message names ours, where there is one."""


class OutError(TruenoError, ValueError):
    """An `out=` that cannot hold the result."""


class SettingError(TruenoError, ValueError):
    """A setting with an unknown name or value."""


class UnknownBackend(TruenoError, LookupError):
    """A backend name that is not installed."""


class BackendUnavailable(TruenoError, RuntimeError):
    """An installed backend that cannot run here; the message says why."""


class KernelError(TruenoError, RuntimeError):
    """A kernel failed, or no backend takes the call."""


class DeviceError(TruenoError, ValueError):
    """Operands that live on different devices."""


class DeviceLost(KernelError):
    """The device went away; its arrays are gone with it."""


class OutOfMemory(TruenoError, MemoryError):
    """A device has no memory left for the request."""


class BatchError(TruenoError, RuntimeError):
    """A batch that is closed, busy or not executed yet, or a handle that belongs to another."""


class FileError(TruenoError, ValueError):
    """A file that is damaged, is not what it should be, or cannot be read or written; no file is left half written."""


class MissingFile(FileError, FileNotFoundError):
    """A file that does not exist; `filename` is its path."""

    def __init__(self, message: str, filename: str) -> None:
        super().__init__(message)
        self.errno, self.filename = ENOENT, filename

    def __str__(self) -> str:
        return escaped(str(self.args[0]), keep=LINES)


class LZ4Error(TruenoError, ValueError):
    """Compressed bytes that are damaged, are not LZ4, or decode to more than the caller allows.

    The message names the frame, the page in it, and the offset of its first byte; nothing is returned of such input.
    """


class GuardError(TruenoError, ArithmeticError):
    """A guard found an unhealthy result.

    index: of the first unhealthy value, in the result as the kernel saw it, whose shape is `shape`; count: how many.
    """

    op: str
    backend: str
    condition: Any  # a trueno.Condition
    result: str
    index: tuple[int, ...]
    shape: tuple[int, ...]
    count: int


class TruenoWarning(UserWarning):
    """Something works, but not as requested.  Its message is one line, whatever it quotes."""

    def __str__(self) -> str:
        return escaped(super().__str__())


def warn(message: str) -> None:
    """Emit a TruenoWarning that points at the caller's own line, however deep in Trueno it arises."""
    import sys
    import warnings
    from pathlib import Path

    inside = (str(Path(__file__).parent), "<trueno.")  # our files, and the generated functions of ops
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, TruenoWarning, stacklevel=level)


COMPARED, LONGEST = 4096, 256
"""The most names that a misspelt word is compared with, and the most letters: a tenth of a second."""


def dimensions(rank: int) -> str:
    """`1 dimension`, `2 dimensions`."""
    return f"{rank} dimension{'s' * (rank != 1)}"


def suggestion(word: str, known: Iterable[str], least: float = 0.6) -> str:
    """`; did you mean "cuda"?` when a known name is close, otherwise nothing.

    least: how alike two names must be, from 0 to 1.  Of many names it compares only those with the nearest lengths:
    files may have a hundred thousand.
    """
    from difflib import get_close_matches  # only when something is misspelt
    from heapq import nsmallest

    if len(word) > LONGEST:
        return ""
    spelt = {k.lower(): k for k in nsmallest(COMPARED, known, key=lambda k: abs(len(k) - len(word)))}
    near = get_close_matches(word.lower(), spelt, n=1, cutoff=least)
    return f'; did you mean "{spelt[near[0]]}"?' if near else ""
