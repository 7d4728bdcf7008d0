"""Every error Trueno raises, in one tree; each also is the builtin that a Python user expects.

    TruenoError
    ├── ShapeError(ValueError)               operand shapes that do not fit the op's signature
    ├── DtypeError(TypeError)                a dtype that the op or the backend does not take
    ├── ParameterError(ValueError)           a keyword outside its range: `eps >= 0`
    ├── OutError(ValueError)                 `out=` that cannot hold the result
    ├── SettingError(ValueError)             a setting or environment variable with an unknown value
    ├── UnknownBackend(LookupError)          a backend name that nothing installed carries
    ├── BackendUnavailable(RuntimeError)     installed, and its probe says why it cannot run
    ├── KernelError(RuntimeError)            a kernel failed, or no backend takes the call
    └── GuardError(ArithmeticError)          a guard stopped the line

A message names op, operand, symbol, value and remedy: `matmul: b[k] is 31, but a[k] is 32`.
"""

from collections.abc import Iterable


class TruenoError(Exception):
    """Root of everything that Trueno raises on purpose."""


class ShapeError(TruenoError, ValueError):
    """Operand shapes that do not fit the op's signature."""


class DtypeError(TruenoError, TypeError):
    """A dtype that the op or the backend does not take."""


class ParameterError(TruenoError, ValueError):
    """A parameter outside its range."""


class OutError(TruenoError, ValueError):
    """An `out=` that cannot hold the result."""


class SettingError(TruenoError, ValueError):
    """A setting with an unknown name or value."""


class UnknownBackend(TruenoError, LookupError):
    """A backend name that nothing installed carries."""


class BackendUnavailable(TruenoError, RuntimeError):
    """An installed backend that cannot run here; the message says why."""


class KernelError(TruenoError, RuntimeError):
    """A kernel failed, or no backend takes the call."""


class GuardError(TruenoError, ArithmeticError):
    """A guard found a result that is not healthy."""


class TruenoWarning(UserWarning):
    """Something works, and not as it was asked for."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """`; did you mean "cuda"?` when a known name is near, else nothing."""
    from difflib import get_close_matches  # only when something is misspelt

    spelt = {k.lower(): k for k in known}
    near = get_close_matches(word.lower(), spelt, n=1)
    return f'; did you mean "{spelt[near[0]]}"?' if near else ""
