"""One installed backend: its manifest, whether it works here, and its object once it is loaded.

The manifest determines first whether it works, then a verdict that is kept on disk, then a process that probes it.
This process imports the plugin's code only when the backend is used, and keeps the error that the code raises.  Reads
take no lock; each entry has its own lock, which is held while the backend is probed or loaded.
"""

import os
import sys
import time
from collections.abc import Callable
from threading import local
from typing import TYPE_CHECKING, Any

from trueno.discovery.manifest import Manifest
from trueno.discovery.protocol import Backend, Device
from trueno.errors import BackendUnavailable
from trueno.escape import escaped
from trueno.firstuse import importing
from trueno.floatenv import ieee
from trueno.locks import ForkSafeLock
from trueno.remedies import fitting
from trueno.settings import settings

if TYPE_CHECKING:
    from trueno.probing.verdicts import Verdict

_objects: dict[Any, Backend] = {}
"""The backends of this process: a factory is called once, even if the registry forgets its entry."""
_thread = local()
"""`making`: the entries whose backends this thread makes now, one for the sake of the other."""


def _making() -> "tuple[Entry, ...]":
    return getattr(_thread, "making", ())


def _can_start_python() -> bool:
    """Whether a child process can be started here that runs this same Python."""
    name = os.path.basename(sys.executable or "").lower()  # a program that embeds Python names itself
    python = name.startswith(("python", "pypy", "graalpy"))
    processes = sys.platform not in ("emscripten", "wasi", "ios", "android")
    return processes and python and not getattr(sys, "frozen", False)


def _deep() -> bool:
    """Whether the caller used up most of the stack: a plugin that runs out of the rest is not the cause."""
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    return 2 * depth > sys.getrecursionlimit()


class Entry:
    """One installed backend.

    `installed`: there is an entry.  `available`: it can run here; if not, `code` is a word of
    `trueno.select.reasons` and `reason` a sentence.  `active`: this process has made a kernel of it.
    manifest: None if it cannot be read.  error: the plugin's exception.  backend: the object, once loaded.
    checked: the time of its verdict, in seconds since the epoch, or None.
    source: distribution, version and the manifest's path, also of a rejected manifest; empty if unknown.
    """

    __slots__ = (
        "_code", "_decided", "_devices", "_lock", "_notes", "_prechecked", "_probe_others", "_probed",
        "_reason", "_refresh", "active", "backend", "checked", "error", "factory", "manifest", "name", "source",
    )  # fmt: skip

    def __init__(
        self, name: str, manifest: Manifest | None, code: str = "", reason: str = "", *, factory: Any = None
    ) -> None:
        self.name = name
        self.manifest = manifest
        self.factory = factory
        self.source = (manifest.distribution, manifest.version, manifest.path) if manifest else ("", "", "")
        self.backend: Backend | None = None
        self.error: BaseException | None = None
        self.active = False
        self.checked: float | None = None
        self._code, self._reason = code, reason
        self._devices: tuple[Device, ...] = ()
        self._notes: tuple[str, ...] = ()
        self._probed = ""
        self._refresh = False  # whether to ignore verdicts that are kept on disk
        self._probe_others: Callable[[Entry], None] | None = None  # starts probes of backends likely to be next
        self._prechecked = self._decided = bool(reason)
        self._lock = ForkSafeLock()

    installed = True

    # ---- facts from the manifest -------------------------------------------------------------------

    @property
    def kind(self) -> str:
        """`cpu`, `gpu`, or `unknown` without a manifest."""
        return self.manifest.kind if self.manifest else "unknown"

    @property
    def tier(self) -> int:
        """The tier, which decides between backends of nearly equal cost; -1 without a manifest."""
        return self.manifest.tier if self.manifest else -1

    @property
    def opt_in(self) -> bool:
        """Whether it is used only if it is named."""
        return self.manifest is not None and self.manifest.opt_in

    @property
    def foreign(self) -> bool:
        """Whether its kernels take arrays of its own, so that the core moves the caller's."""
        return self.manifest is not None and self.manifest.foreign

    @property
    def atomic(self) -> bool:
        """Whether its manifest promises that a kernel that raises has written no output."""
        return self.manifest is not None and self.manifest.atomic

    def half(self, op: str, host: bool = False) -> bool:
        """Whether its manifest promises a kernel of that op for 16-bit floats on its own arrays; host: on NumPy's."""
        if self.manifest is None or (host and self.foreign):
            return False
        return not {op, "*"}.isdisjoint(self.manifest.half)

    # ---- facts that need neither the plugin's code nor a child process ------------------------------

    @property
    def reason(self) -> str:
        """Why it cannot run, as far as is known without a probe; empty if no reason is known."""
        self.precheck()
        return self._reason

    @property
    def code(self) -> str:
        """The reason in one word of `trueno.select.reasons`."""
        self.precheck()
        return self._code

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the plugin's side effects: its output, and its changes of the environment."""
        self.precheck()
        return self._notes

    @property
    def probed(self) -> str:
        """The source of its verdict: `cached`, `now`, `unprobed` (in this process only), or empty without a verdict."""
        self.precheck()
        return self._probed

    # ---- facts that may need a probe ----------------------------------------------------------------

    @property
    def available(self) -> bool:
        """Whether it can run here.  May start a process that probes it; imports it only if no process can.

        False while this thread makes it: ops that the plugin calls then run without it.
        """
        if self in _making():
            return False
        self.probe()
        return self._decided and not self._reason

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that its probe found."""
        if self not in _making():
            self.probe()
        return self._devices

    @property
    def software(self) -> bool:
        """Whether software emulates all of its devices, so that it is used only if it is named."""
        return bool(self.devices) and all(device.software for device in self.devices)

    def load(self) -> Backend:
        """The backend object, made at the first call; BackendUnavailable, caused by the plugin's exception."""
        backend = self.backend
        if backend is not None and not self._reason:
            return backend
        self.probe(alone=True)
        if not self._reason and self.backend is None:
            owned = self._lock.mine()
            try:
                if not owned and not self._acquire():
                    problem = "another thread loads it; a plugin must not call ops while it is loaded"
                    raise BackendUnavailable(f"{self.name}: {problem}")
                if not self._reason and self.backend is None:
                    self._build("load_failed")
            finally:
                self._release(owned)
        if self._reason:
            kept = self._probed == "cached" and self._code != "load_failed"
            remedy = ". Try again: trueno doctor --refresh" if kept else ""
            raise BackendUnavailable(f"{self.name}: {self._reason}{remedy}") from self.error
        assert self.backend is not None
        return self.backend

    def __repr__(self) -> str:
        if self.reason:
            status = self._reason
        elif self._decided:
            status = f"available{''.join(f', {d.name} {d.isa}'.rstrip() for d in self._devices[:1])}"
        else:
            status = "not probed yet"
        return escaped(f"<{self.name}: {status}>")

    # ---- finding out -----------------------------------------------------------------------------

    def precheck(self) -> None:
        """Check level 0: the manifest's requirements, and the verdict that is kept on disk."""
        if self._prechecked:
            return
        with self._lock:
            if self._prechecked or self.manifest is None:
                return
            unmet = self.manifest.unmet()
            if unmet is not None:
                self._code, self._reason = unmet[0], fitting(unmet[1])
                self._decided = True
            elif self.uses_subprocess() and not self._refresh:
                from trueno.probing.verdicts import recall  # start-up

                verdict = recall(self.manifest)
                if verdict is not None:
                    self._apply(verdict, "cached")
            self._prechecked = True

    def decided(self) -> bool:
        """Whether a verdict on it is known already."""
        return self._decided

    def probe(self, alone: bool = False) -> None:
        """Determine whether it can run; unless `alone`, also start the probes of backends that are needed next."""
        if self.decided():
            return
        self.precheck()
        if self.decided():
            return
        if not alone and self._probe_others is not None:
            self._probe_others(self)
        owned = self._lock.mine()
        try:
            if (not owned and not self._acquire()) or self.decided():
                return
            if self.uses_subprocess() and settings.get("TRUENO_PROBE") == "on":
                with importing:
                    from trueno.probing.process import wait  # start-up

                assert self.manifest is not None
                verdict = wait(self.manifest)
                if not isinstance(verdict, str):
                    self._apply(verdict, "now")
                    self._report(verdict.seconds, 2)
                    return
                self._notes = (*self._notes, f"it was not probed in a child process: {verdict}")
            self._probed = "unprobed"
            self._build("probe_failed")
            self._decided = True
        finally:
            self._release(owned)

    def _acquire(self) -> bool:
        """Acquire the lock; without waiting if this thread makes another backend, because waiting could deadlock."""
        return self._lock.acquire(blocking=not _making())

    def _release(self, owned: bool) -> None:
        """Release the lock if it was acquired here: Ctrl-C may come as the wait for it ends."""
        if not owned and self._lock.mine():
            self._lock.release()

    def _apply(self, verdict: "Verdict", how: str) -> None:
        self._code, self._reason = verdict.code, fitting(verdict.reason)
        self._devices, self._notes = verdict.devices, verdict.notes
        self._probed, self.checked = how, verdict.time
        if verdict.trace:
            from trueno.probing.probe import ProbeError  # start-up

            self.error = ProbeError(f"in the process that probed it\n\n{verdict.trace}")
        self._decided = True

    def _build(self, code: str) -> None:
        """Import the plugin, make its object and call `probe(1)` in this process; `code` is the code of a failure.

        If the plugin reports that there is no device here, the code is `no_device`.
        """
        from trueno.probing import probe, verdicts  # start-up

        before = _making()
        if self in before:
            problem = "it requests itself while it is loaded; a plugin must not call ops then"
            raise BackendUnavailable(f"{self.name}: {problem}")
        assert self.manifest is not None
        start, notes, reason = time.perf_counter(), list(self._notes), ""
        key = (self.name, self.manifest.factory, self.factory)
        try:
            _thread.making = (*before, self)
            with probe.restore_environ(notes), ieee():
                backend = _objects.get(key) or probe.build(self.name, self.factory or self.manifest.factory)
                _objects[key] = backend
                answer = probe.ask(backend, 1)
            reason, code = answer.reason, "no_device" if answer.absent else code
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit, and the panics of other languages, must not end the process
            if isinstance(error, RecursionError) and _deep():
                raise
            self.error = error
            reason = probe.describe(error)
        finally:
            _thread.making = before  # one step, so that no Ctrl-C comes between
        self._notes = tuple(dict.fromkeys(notes))
        if reason:
            if self._probed in ("cached", "now"):
                verdicts.drop(self.manifest)  # the verdict was wrong
            self._code, self._reason = code, fitting(verdicts.sentence(reason))
        else:
            self._devices = answer.devices or self._devices
            self.backend = backend
        if self.name != "reference":
            self._report(time.perf_counter() - start, 1)

    def _report(self, seconds: float, level: int) -> None:
        from trueno.events.stream import emit  # start-up

        emit("probe", backend=self.name, detail=self._reason, seconds=seconds, ok=not self._reason, level=level)

    # ---- calls from the registry ---------------------------------------------------------------------

    def uses_subprocess(self) -> bool:
        """Whether a child process probes it, now or in an earlier run."""
        if self.factory is not None or settings.get("TRUENO_PROBE") == "off":
            return False
        return _can_start_python()

    def start_probe(self) -> None:
        """Start the process that probes it, if no verdict is known yet and processes may probe."""
        self.precheck()
        if not self.decided() and self.manifest and settings.get("TRUENO_PROBE") == "on" and self.uses_subprocess():
            with importing:
                from trueno.probing.process import start  # start-up

            start(self.manifest)

    def mark_unavailable(self, code: str, reason: str) -> None:
        """Record finally that it cannot run."""
        self._code, self._reason = code, reason
        self._prechecked = self._decided = True

    def mark_available(self, *devices: Device) -> None:
        """Record that it can run, without a probe."""
        self._devices = devices
        self._prechecked = self._decided = True

    def configure(self, refresh: bool, active: bool, probe_others: "Callable[[Entry], None]") -> None:
        """Set what the registry determines: whether to ignore kept verdicts, whether it ran before, and the function
        that probes others."""
        self._refresh, self.active, self._probe_others = refresh, active, probe_others

    def retire(self, reason: str) -> None:
        """Take it out of use permanently; its object is not used again."""
        for key in [key for key in _objects if key[0] == self.name]:
            del _objects[key]
        self.backend = None
        self.mark_unavailable("lost", reason)
