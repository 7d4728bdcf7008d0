"""Handling of a backend that fails while it runs: no data is lost, and the failure is reported.

An automatic choice continues with the next candidate, reports that as TRUENO_FALLBACK specifies, and quarantines the
backend for calls like that one.  A named backend raises an error.
"""

import sys
from inspect import CO_VARARGS
from types import FrameType
from typing import Any

from trueno.discovery import registry
from trueno.discovery.protocol import Call
from trueno.errors import (
    DeviceLost,
    GuardError,
    KernelError,
    OutOfMemory,
    TruenoError,
    TruenoWarning,
    warn,
)
from trueno.escape import escaped
from trueno.events.stream import emit, logger
from trueno.select import quarantine
from trueno.select.decision import Request
from trueno.settings import settings

_said: set[tuple[str, str, str]] = set()


def passes(error: BaseException) -> bool:
    """Whether an exception from a kernel is not a failure of the kernel.

    Such exceptions are an error of a guard or of `wrap_error`; a warning of Trueno that a filter turns into an error;
    an exit from the program or a task; any exception of a signal's handler while a kernel runs; and a RecursionError,
    because the caller used up the stack.
    """
    if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit, RecursionError, GuardError, TruenoWarning)):
        return True
    cancelled = getattr(sys.modules.get("asyncio"), "CancelledError", ())
    return isinstance(error, cancelled) or hasattr(error, WRAPPED) or _from_a_signal(error)


def _from_a_signal(error: BaseException) -> bool:
    """Whether a signal handler raised the error, whatever code the signal interrupted.

    Only a handler gets its caller's frame, which the signal interrupted, as an argument.
    An exception set by another thread (PyThreadState_SetAsyncExc) leaves no such trace.
    """
    trace = error.__traceback__ and error.__traceback__.tb_next  # the first frame catches: its locals hold the error
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_back is not None and _given(frame, frame.f_back):
            return True
        trace = trace.tb_next
    return False


def _given(frame: FrameType, what: object) -> bool:
    """Whether `what` is an argument of a frame's call."""
    code, local = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & CO_VARARGS)
    names = code.co_varnames[:count]
    values = [local.get(name) for name in names]
    return any(v is what or (isinstance(v, tuple) and any(w is what for w in v)) for v in values)


def leave_out(call: Call, name: str, error: BaseException, request: Request) -> None:
    """Quarantine `name` for calls like this one; raise if it was named, or if fallback is not allowed."""
    _retire(error, name)
    named = name in request.names or name in (call.residency, "reference")
    if named or settings.get("TRUENO_FALLBACK") == "error" or (not request.automatic and name in _environment()):
        raise wrap_error(error, call.op.name, name) from error
    quarantine.add(call, name, words(error))


def say(call: Call, name: str, error: BaseException, other: str) -> None:
    """Report, as TRUENO_FALLBACK specifies, that `name` failed and `other` runs calls like this one from now on."""
    op, what = call.op.name, words(error)
    emit("quarantine", op, name, what)
    emit("fallback", op, name, what, to=other)
    message = f"{op}: {name} failed ({what}); {other} runs it from now on"
    mode = settings.get("TRUENO_FALLBACK")
    if (op, name, type(error).__name__) in _said or mode == "silent":
        return
    _said.add((op, name, type(error).__name__))
    if mode == "warn":
        warn(message)
    else:
        logger().warning("%s", escaped(message))


def _environment() -> tuple[str, ...]:
    names: tuple[str, ...] = settings.get("TRUENO_BACKEND")
    return names


WRAPPED = "_trueno_wrapped"
"""The attribute that marks an error whose message names op and backend already."""


def wrap_error(error: BaseException, op: str, name: str) -> Exception:
    """The error that a user can catch: Trueno's error of the same kind, with op and backend in its message."""
    _retire(error, name)
    kinds = ((OutOfMemory, OutOfMemory), (DeviceLost, DeviceLost), (MemoryError, OutOfMemory))
    kind = next((ours for theirs, ours in kinds if isinstance(error, theirs)), KernelError)
    wrapped: Any = kind(f"{op}: {name} failed ({words(error)})")
    setattr(wrapped, WRAPPED, True)
    return wrapped  # type: ignore[no-any-return]


def words(error: BaseException) -> str:
    """The kind and text of an error; only the kind if its `str` fails."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _retire(error: BaseException, name: str) -> None:
    """Retire the backend after DeviceLost: a lost device does not recover."""
    if isinstance(error, DeviceLost):
        registry.retire(name, f"its device was lost ({error})")


class wrapping_errors:
    """Converts a plugin's exceptions to errors that name op and backend; Trueno's own errors pass unchanged.

    OutOfMemory and DeviceLost from a plugin are converted too.  It is a class, because the frames of a generator keep
    an error's arrays alive until a garbage collection, in CPython 3.12.
    """

    __slots__ = ("_name", "_op")

    def __init__(self, op: str, name: str) -> None:
        self._op, self._name = op, name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        ours = isinstance(error, TruenoError) and not isinstance(error, (OutOfMemory, DeviceLost))
        if isinstance(error, Exception) and not ours:
            raise wrap_error(error, self._op, self._name) from error


def say_again(backend: str | None = None) -> None:
    """Allow failures of a backend, or of all backends, to be reported once more."""
    _said.difference_update([key for key in _said if backend in (None, key[1])])
