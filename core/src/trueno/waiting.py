"""One line on a terminal while a kernel compiles for more than a second: the program pauses, and the user may wonder.

`announced` surrounds the making of a kernel, which happens once per key; calls that have a plan never come here.  The
line is on stderr, and is gone when the kernel is made.  There is none unless stderr is a terminal, while a progress
bar runs (`silence`), under pytest, and if TRUENO_NOTICE is off.
"""

import os
import sys
import threading
from contextlib import suppress
from typing import Any

from trueno.errors import SettingError
from trueno.escape import escaped
from trueno.locks import ForkSafeLock
from trueno.settings import settings
from trueno.text import op_name

DELAY = 1.0
"""Seconds without a line."""

_lock = ForkSafeLock()
_showing: "announced | None" = None  # there is one line, whatever other threads compile
_silent = False


class announced:
    """`with announced(op, backend):` around the making of a kernel."""

    __slots__ = ("_done", "_length", "_text", "_timer")

    def __init__(self, op: str, backend: str) -> None:
        self._text = (op, backend)
        self._timer: threading.Timer | None = None
        self._length, self._done = 0, False

    def __enter__(self) -> None:
        if not wanted():
            return
        timer = threading.Timer(DELAY, self._show)
        timer.daemon = True
        with suppress(RuntimeError):  # the system gives no thread, or Python ends
            timer.start()
            self._timer = timer

    def __exit__(self, *_: Any) -> None:
        if self._timer is None:
            return
        global _showing
        self._timer.cancel()
        with _lock:
            self._done = True
            if _showing is self:
                _showing = None
                _write(f"\r{' ' * self._length}\r")

    def _show(self) -> None:
        from shutil import get_terminal_size  # start-up

        global _showing
        with _lock:
            if self._done or _showing is not None or _silent:
                return
            op, backend = self._text
            width = get_terminal_size().columns
            line = escaped(f"trueno: compiling {op_name(op)} for {backend}, once …")[: max(width - 1, 0)]
            _showing, self._length = self, len(line)
            _write(f"\r{line}")


def wanted() -> bool:
    """Whether a line may appear here."""
    if _silent or "pytest" in sys.modules:
        return False
    try:
        return sys.stderr is not None and sys.stderr.isatty() and bool(settings.get("TRUENO_NOTICE"))
    except (
        AttributeError,
        ValueError,
        OSError,
        SettingError,
    ):  # closed, or not a stream; the error is reported elsewhere
        return False


def silence() -> None:
    """Show no line from now on: another display has the terminal."""
    global _silent
    _silent = True


def _write(text: str) -> None:
    with suppress(Exception):  # a stream of the user's may raise anything, and a line is not worth an error
        try:
            sys.stderr.write(text)
        except UnicodeEncodeError:
            sys.stderr.write(text.replace("…", "..."))
        sys.stderr.flush()


def _after_fork() -> None:
    """In the child no thread of the parent's will show or clear a line."""
    global _showing
    _showing = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
