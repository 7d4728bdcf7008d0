"""One installed backend: its manifest, whether it works here, and its object once it is loaded.

Whether it works is answered by the manifest first, then by a verdict that is kept on disk, then by a process that
probes it.  This process imports its code when it is used, and not before, and keeps what it raises.  Reads take no
lock; each entry has one of its own, for the time that it is probed or loaded.
"""

import os
import sys
import time
from collections.abc import Callable
from threading import get_ident, local
from typing import TYPE_CHECKING, Any

from trueno.discovery.manifest import Manifest
from trueno.discovery.protocol import Backend, Device
from trueno.errors import BackendUnavailable
from trueno.escape import escaped
from trueno.firstuse import importing
from trueno.floatenv import ieee
from trueno.locks import ForkSafeLock
from trueno.settings import settings

if TYPE_CHECKING:
    from trueno.probing.verdicts import Verdict

_objects: dict[Any, Backend] = {}
"""The backends of this process: a factory is called once, whatever is forgotten meanwhile."""
_thread = local()
"""`depth`: how many backends this thread is making now, one inside the other."""


def _can_start_python() -> bool:
    """Whether a child process can be started here that runs this same Python."""
    name = os.path.basename(sys.executable or "").lower()  # a program that embeds Python names itself
    python = name.startswith(("python", "pypy", "graalpy"))
    processes = sys.platform not in ("emscripten", "wasi", "ios", "android")
    return processes and python and not getattr(sys, "frozen", False)


def _deep() -> bool:
    """Whether most of the stack was used up by who called: a plugin that finds too little left is not to blame."""
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    return 2 * depth > sys.getrecursionlimit()


class Entry:
    """One installed backend.

    `installed`: there is an entry.  `available`: it can run here; if not, `code` is a word of
    `trueno.select.reasons` and `reason` a sentence.  `active`: it has run something in this process.
    manifest: None where it could not be read.  error: what the plugin raised.  backend: the object, once loaded.
    checked: when its verdict was found, in seconds since the epoch, or None.
    source: distribution, version and the manifest's path, also of a manifest that is refused; empty where unknown.
    """

    __slots__ = (
        "_code", "_decided", "_devices", "_loading", "_lock", "_notes", "_prechecked", "_probe_others", "_probed",
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
        self._refresh = False  # verdicts that are kept do not count
        self._probe_others: Callable[[Entry], None] | None = None  # starts probes of those likely to be asked next
        self._prechecked = self._decided = bool(reason)
        self._loading = 0
        self._lock = ForkSafeLock()

    installed = True

    # ---- what the manifest says --------------------------------------------------------------------

    @property
    def kind(self) -> str:
        """`cpu`, `gpu`, or `unknown` without a manifest."""
        return self.manifest.kind if self.manifest else "unknown"

    @property
    def tier(self) -> int:
        """Decides between backends of nearly equal cost."""
        return self.manifest.tier if self.manifest else -1

    @property
    def opt_in(self) -> bool:
        """Whether it is used only when it is named."""
        return self.manifest is not None and self.manifest.opt_in

    @property
    def foreign(self) -> bool:
        """Whether its kernels take arrays of its own, so that the core moves the caller's."""
        return self.manifest is not None and self.manifest.foreign

    @property
    def atomic(self) -> bool:
        """Whether its manifest promises that a kernel which raises has written nothing."""
        return self.manifest is not None and self.manifest.atomic

    def half(self, op: str) -> bool:
        """Whether its manifest promises a kernel of that op for 16-bit floats on its own arrays."""
        return self.manifest is not None and not {op, "*"}.isdisjoint(self.manifest.half)

    # ---- what is known without running any of its code, nor a process -------------------------------

    @property
    def reason(self) -> str:
        """Why it cannot run, as far as is known without a probe; empty if nothing speaks against it."""
        self.precheck()
        return self._reason

    @property
    def code(self) -> str:
        """The reason in one word of `trueno.select.reasons`."""
        self.precheck()
        return self._code

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the plugin's side effects: what it prints, and what it does to the environment."""
        self.precheck()
        return self._notes

    @property
    def probed(self) -> str:
        """How its verdict was found: `cached`, `now`, `unprobed` (in this process only), or empty: not at all."""
        self.precheck()
        return self._probed

    # ---- what may need a probe ----------------------------------------------------------------------

    @property
    def available(self) -> bool:
        """Whether it can run here.  May start a process that probes it; never imports it, unless no process can.

        False while this very thread makes it: what a plugin calls then is done without it.
        """
        if self._loading == get_ident():
            return False
        self.probe()
        return self._decided and not self._reason

    @property
    def devices(self) -> tuple[Device, ...]:
        """What its probe found."""
        if self._loading != get_ident():
            self.probe()
        return self._devices

    @property
    def software(self) -> bool:
        """Whether all of its devices are emulated by software, so that it is used only when it is named."""
        return bool(self.devices) and all(device.software for device in self.devices)

    def load(self) -> Backend:
        """The backend object, made at the first call; BackendUnavailable, from what the plugin raised."""
        backend = self.backend
        if backend is not None and not self._reason:
            return backend
        self.probe(alone=True)
        if not self._reason and self.backend is None:
            if not self._acquire():
                raise BackendUnavailable(f"{self.name}: another thread loads it; a plugin calls no op while it is made")
            try:
                if not self._reason and self.backend is None:
                    self._build("load_failed")
            finally:
                self._lock.release()
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
        """Level 0: what the manifest requires, and the verdict that is kept."""
        if self._prechecked:
            return
        with self._lock:
            if self._prechecked or self.manifest is None:
                return
            unmet = self.manifest.unmet()
            if unmet is not None:
                self._code, self._reason = unmet
                self._decided = True
            elif self.uses_subprocess() and not self._refresh:
                from trueno.probing.verdicts import recall

                verdict = recall(self.manifest)
                if verdict is not None:
                    self._apply(verdict, "cached")
            self._prechecked = True

    def decided(self) -> bool:
        """Whether it is known already if it can run."""
        return self._decided

    def probe(self, alone: bool = False) -> None:
        """Find out whether it can run; others that are sure to be asked next are probed meanwhile, unless `alone`."""
        if self.decided():
            return
        self.precheck()
        if self.decided():
            return
        if not alone and self._probe_others is not None:
            self._probe_others(self)
        if not self._acquire():
            return
        try:
            if self.decided():
                return
            if self.uses_subprocess() and settings.get("TRUENO_PROBE") == "on":
                with importing:
                    from trueno.probing.process import wait

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
            self._lock.release()

    def _acquire(self) -> bool:
        """Take the lock; not, where this thread makes another backend and would wait for one that waits for it."""
        return self._lock.acquire(blocking=not getattr(_thread, "depth", 0))

    def _apply(self, verdict: "Verdict", how: str) -> None:
        self._code, self._reason = verdict.code, verdict.reason
        self._devices, self._notes = verdict.devices, verdict.notes
        self._probed, self.checked = how, verdict.time
        if verdict.trace:
            from trueno.probing.probe import ProbeError

            self.error = ProbeError(f"in the process that tried it\n\n{verdict.trace}")
        self._decided = True

    def _build(self, code: str) -> None:
        """Import the plugin, make its object and ask `probe(1)`, here; `code` is for the case that this fails.

        Where it says that there is no device here, the code is `no_device`.
        """
        from trueno.probing import probe, verdicts

        if self._loading == get_ident():
            raise BackendUnavailable(f"{self.name}: it asks for itself while it is loaded; a plugin calls no op then")
        assert self.manifest is not None
        self._loading = get_ident()
        _thread.depth = getattr(_thread, "depth", 0) + 1
        start, notes, reason = time.perf_counter(), list(self._notes), ""
        key = (self.name, self.manifest.factory, self.factory)
        try:
            with probe.restore_environ(notes), ieee():
                backend = _objects.get(key) or probe.build(self.name, self.factory or self.manifest.factory)
                _objects[key] = backend
                answer = probe.ask(backend, 1)
            reason, code = answer.reason, "no_device" if answer.absent else code
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit, and the panics of other languages: the host must live
            if isinstance(error, RecursionError) and _deep():
                raise
            self.error = error
            reason = probe.describe(error)
        finally:
            self._loading = 0
            _thread.depth -= 1
        self._notes = tuple(dict.fromkeys(notes))
        if reason:
            if self._probed in ("cached", "now"):
                verdicts.drop(self.manifest)  # it promised too much
            self._code, self._reason = code, verdicts.sentence(reason)
        else:
            self._devices = answer.devices or self._devices
            self.backend = backend
        if self.name != "reference":
            self._report(time.perf_counter() - start, 1)

    def _report(self, seconds: float, level: int) -> None:
        from trueno.events.stream import emit

        emit("probe", backend=self.name, detail=self._reason, seconds=seconds, ok=not self._reason, level=level)

    # ---- what the registry does with it --------------------------------------------------------------

    def uses_subprocess(self) -> bool:
        """Whether a child process probes it, now or in a run before."""
        if self.factory is not None or settings.get("TRUENO_PROBE") == "off":
            return False
        return _can_start_python()

    def start_probe(self) -> None:
        """Start the process that probes it, if nothing is known yet and processes may probe."""
        self.precheck()
        if not self.decided() and self.manifest and settings.get("TRUENO_PROBE") == "on" and self.uses_subprocess():
            with importing:
                from trueno.probing.process import start

            start(self.manifest)

    def mark_unavailable(self, code: str, reason: str) -> None:
        """It cannot run, and that is final."""
        self._code, self._reason = code, reason
        self._prechecked = self._decided = True

    def mark_available(self, *devices: Device) -> None:
        """It can run, and no probe is needed."""
        self._devices = devices
        self._prechecked = self._decided = True

    def configure(self, refresh: bool, active: bool, probe_others: "Callable[[Entry], None]") -> None:
        """What it needs from the registry: whether kept verdicts count, whether it ran before, who probes others."""
        self._refresh, self.active, self._probe_others = refresh, active, probe_others

    def retire(self, reason: str) -> None:
        """It has failed for good; its object is not used again."""
        for key in [key for key in _objects if key[0] == self.name]:
            del _objects[key]
        self.backend = None
        self.mark_unavailable("lost", reason)

    def after_fork(self) -> None:
        """In the child of a fork: a thread that is not here may have been loading it."""
        self._loading = 0
