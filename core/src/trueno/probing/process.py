"""Subprocess probes: a backend is probed in a child process, so that a crash there becomes a sentence and not the end.

A crash, a hang or a wrong number of the child becomes a verdict here, which is kept (`trueno.probing.verdicts`).
Children are started with `subprocess`, never `multiprocessing`, which would run the user's script again; what runs in
one is `trueno.probing.child`.
"""

import atexit
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from trueno.discovery.manifest import Manifest
from trueno.locks import ForkSafeLock
from trueno.parsers import TYPES
from trueno.probing import verdicts
from trueno.probing.verdicts import Verdict
from trueno.settings import settings

if TYPE_CHECKING:
    import subprocess

READY = "ready"
"""The first line of a child: from here on its time runs, and whatever ends it is the plugin's doing."""
STARTING = 10.0
"""Seconds that a child has at least until it is ready: Python and NumPy start slowly where the machine is busy."""
ENDED = "the process that was to try it was ended"
RESTARTS = 5
"""Restarts allowed for a probe that was ended because the registry forgot."""
STARTS = 2
"""Starts of a child that does not become ready in time."""


class _Child:
    """A process that probes one backend."""

    __slots__ = (
        "deadline", "errors", "failed", "fingerprint", "late", "limit", "manifest", "output", "process", "ready",
        "started", "starts", "verdict",
    )  # fmt: skip

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.fingerprint = verdicts.fingerprint(manifest)
        self.verdict: Verdict | None = None
        self.failed = ""  # why no process could try it, as a sentence
        self.limit: float = settings.get("TRUENO_PROBE_TIMEOUT")
        self.process: subprocess.Popen[bytes] | None = None
        self.errors: Any = None
        self.starts = 0
        self._begin()

    def _begin(self) -> None:
        self.output = b""  # what came through its pipe
        self.ready = self.late = False
        self.starts += 1
        self.started = time.monotonic()
        self.deadline = self.started + max(self.limit, STARTING)
        self.failed = "no process could be started"
        try:
            self.process = self._start()
        except OSError as error:
            self.failed += f" ({error.strerror or error})"
        else:
            self.failed = ""

    def _start(self) -> "subprocess.Popen[bytes]":
        import subprocess
        import tempfile

        try:
            self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - read when the child has ended
        except OSError:
            self.errors = None
        import json

        m = self.manifest
        flags = ["-P", *["-s"] * sys.flags.no_user_site, *["-S"] * sys.flags.no_site, *["-O"] * sys.flags.optimize]
        types = {parser: word for word, parser in TYPES.items()}
        own = {name: [types[setting.parse], setting.default, setting.help] for name, setting in m.settings.items()}
        array = m.arrays[0] if m.arrays else "numpy:ndarray"
        arguments = [m.name, m.factory, array, str(self.limit), json.dumps(own)]
        group: dict[str, Any] = {"start_new_session": True}  # so that its own children can be ended with it
        if os.name == "nt":
            group = {"creationflags": getattr(subprocess, "CREATE_NO_WINDOW", 0)}
        return subprocess.Popen(
            [sys.executable, *flags, "-m", "trueno.probing.child", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if self.errors is None else self.errors,
            env=_environment(),
            **group,
        )

    def ended(self) -> bool:
        """Whether there is an answer now: it has ended, or its time has."""
        if self.verdict is not None or self.failed:
            return True
        assert self.process is not None
        if not self.late and self.process.poll() is None:
            self._await_ready()
            if time.monotonic() < self.deadline:
                return False
            self.late = True  # before it is ended: that it ends now is not the plugin's doing
        self.kill()
        if self.late and READY.encode() not in self._lines():
            self._close()
            if self.starts < STARTS:
                self._begin()
                return False
            self.verdict = self._never_ready()  # not kept: it says nothing of the plugin
            return True
        verdict = self._conclude(self.late)
        if verdict is not None:
            verdict = verdict._replace(limit=self.limit)
            verdicts.keep(self.manifest, verdict, self.fingerprint)
        self.verdict = verdict
        return True

    def _await_ready(self) -> None:
        """Read what it has written so far; its time begins when it is ready."""
        if self.ready or os.name == "nt":  # a read would wait there
            return
        if READY.encode() in self._lines():
            self.ready = True
            self.deadline = time.monotonic() + self.limit

    def _lines(self) -> list[bytes]:
        """The lines that came through its pipe until now."""
        assert self.process is not None
        self.output += _drain(self.process.stdout)
        return self.output.splitlines()

    def _never_ready(self) -> Verdict:
        waited = f"{max(self.limit, STARTING):g}"
        reason = (
            f"the process that is to try it did not come as far as its code within {waited} s, {STARTS} times; "
            "the machine may be busy: set TRUENO_PROBE_TIMEOUT to more seconds"
        )
        return Verdict(False, "probe_timeout", verdicts.sentence(reason), time=time.time(), limit=self.limit)

    def _close(self) -> None:
        """Close its pipe and the file of its errors."""
        assert self.process is not None and self.process.stdout is not None
        self.process.stdout.close()
        if self.errors is not None:
            self.errors.close()

    def kill(self) -> None:
        """End it, and whatever it has started; no answer is read."""
        import signal
        import subprocess

        assert self.process is not None
        if hasattr(os, "killpg"):
            with suppress(OSError):  # its group is empty
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:  # it hangs in a driver, where no signal reaches it
            self.process.returncode = -9

    def give_up(self) -> None:
        """End it without an answer, unless there is one."""
        if self.process is None or self.verdict is not None or self.failed:
            return
        if self.process.poll() is not None:
            self.ended()
            return
        self.failed = ENDED  # first: what we end is no failure of the plugin
        self.kill()
        self._close()

    def _conclude(self, late: bool) -> Verdict | None:
        """The verdict from its answer or its end; None, and `failed`, if it ended before it came to the plugin."""
        assert self.process is not None and self.process.stdout is not None
        lines = [line.decode("utf-8", "replace") for line in self._lines()]
        last = self._last_words()
        self.process.stdout.close()
        if READY not in lines:
            self.failed = f"the process that was to try it did not get that far{last}"
            return None
        answer = lines[lines.index(READY) + 1 :]
        seconds = round(time.monotonic() - self.started, 3)
        code, reason = "probe_crashed", ""
        if answer:
            import json

            try:
                return verdicts.parse(json.loads(answer[-1]))
            except (ValueError, RecursionError):
                code, reason = "probe_failed", "the process that tried it gave an answer that is no verdict"
        elif late:
            code = "probe_timeout"
            reason = f"the process that tried it had not ended after {self.limit:g} s (TRUENO_PROBE_TIMEOUT)"
        elif self.process.returncode < 0:
            reason = f"the process that tried it was ended by {_signal(-self.process.returncode)}{last}"
        elif self.process.returncode:
            reason = f"the process that tried it ended with code {self.process.returncode}{last}"
        else:
            reason = f"the process that tried it ended without an answer{last}"
        return Verdict(False, code, verdicts.sentence(reason), seconds=seconds, time=time.time())

    def _last_words(self) -> str:
        """The last line that was written to stderr, which is all that a native library leaves behind."""
        if self.errors is None:
            return ""
        with suppress(OSError, ValueError), self.errors as file:
            file.seek(max(file.seek(0, os.SEEK_END) - 4096, 0))
            lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
            return f'; its last words: "{verdicts.sentence(lines[-1])[:200]}"' if lines else ""
        return ""


def _drain(pipe: Any) -> bytes:
    """What is in the pipe now; a process that survived its parent may hold the other end forever."""
    parts = []
    with suppress(OSError):
        if os.name != "nt":
            os.set_blocking(pipe.fileno(), False)
        while part := os.read(pipe.fileno(), 65536):
            parts.append(part)
    return b"".join(parts)


def _signal(number: int) -> str:
    from signal import Signals

    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"


def _environment() -> dict[str, str]:
    """The child's: this one's, its import path, and what was set by code."""
    environ = dict(os.environ)
    if sys.flags.ignore_environment:
        environ = {name: value for name, value in environ.items() if not name.startswith("PYTHON")}
    environ.pop("PYTHONFAULTHANDLER", None)  # its tracebacks would hide a library's last words
    # An empty entry is the current folder.  `-P` keeps the child from putting that folder first by itself.
    path = dict.fromkeys(entry or os.getcwd() for entry in sys.path if isinstance(entry, str))
    environ["PYTHONPATH"] = os.pathsep.join(path)
    for name, setting in settings.all().items():
        if setting.origin == "code" and setting.value is not None:
            environ[name] = _spelled(setting.value)
    environ["TRUENO_PROBE"] = "off"
    return environ


def _spelled(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, tuple):
        return ",".join(":".join(v) if isinstance(v, tuple) else str(v) for v in value)
    return str(value)


_children: dict[tuple[str, str], _Child] = {}
_lock = ForkSafeLock()


def start(manifest: Manifest) -> _Child:
    """The process that probes this backend, started if it is not."""
    key = (manifest.name, manifest.factory)
    with _lock:
        if key not in _children:
            _children[key] = _Child(manifest)
        return _children[key]


def wait(manifest: Manifest) -> Verdict | str:
    """The verdict of the process that probes this backend; a sentence if none could."""
    child = start(manifest)
    pause, restarts = 0.002, RESTARTS
    try:
        while True:
            with _lock:
                for other in _children.values():  # its verdict is kept even if it is not requested
                    other.ended()
                done = child.ended()
                if done and not (child.failed == ENDED and restarts and not _exiting):
                    _children.pop((manifest.name, manifest.factory), None)
                    return child.verdict or child.failed
            if done:  # another thread made the registry forget, and ended it for that
                restarts -= 1
                child = start(manifest)
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)
    except BaseException:  # Ctrl-C
        abandon()
        raise


def abandon() -> None:
    """End every child that still runs, and forget them all; at exit, and when the registry forgets."""
    with _lock:
        for child in _children.values():
            child.give_up()
        _children.clear()


_exiting = False


@atexit.register
def _at_exit() -> None:
    global _exiting
    _exiting = True
    abandon()


def after_fork() -> None:
    """In the child of a fork: the processes are the parent's."""
    for child in _children.values():
        if child.process is not None:
            child.process.returncode = 0  # not ours to wait for
    _children.clear()


if hasattr(os, "register_at_fork"):  # here, because an import in the child of a fork might block forever
    os.register_at_fork(after_in_child=after_fork)
