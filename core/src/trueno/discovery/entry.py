"""One installed backend: what is known of it, and finding out the rest when somebody asks.

Its manifest comes first, then a verdict that is kept on disk, then a process that tries it.  Its code is imported here
when it is used, and not before; what it raises is kept.  Reads take no lock; each entry has one of its own, for the
time that it is tried or loaded.
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
    from trueno.discovery.verdicts import Verdict

made: dict[Any, Backend] = {}
"""The objects of this process: a factory is called once, whatever is forgotten meanwhile."""
_here = local()
"""`depth`: how many backends this thread is making now, one inside the other."""


def possible() -> bool:
    """Whether a child process can be started here that runs this same Python."""
    name = os.path.basename(sys.executable or "").lower()  # a program that embeds Python names itself
    python = name.startswith(("python", "pypy", "graalpy"))
    here = sys.platform not in ("emscripten", "wasi", "ios", "android")
    return here and python and not getattr(sys, "frozen", False)


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
        "_code", "_devices", "_fresh", "_loading", "_lock", "_looked", "_notes", "_others", "_probed", "_reason",
        "_settled", "active", "backend", "checked", "error", "factory", "manifest", "name", "source",
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
        self._fresh = False  # verdicts that are kept do not count
        self._others: Callable[[Entry], None] | None = None  # starts trying those that are likely to be asked next
        self._looked = self._settled = bool(reason)
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

    # ---- what is known without running any of its code, nor a process -------------------------------

    @property
    def reason(self) -> str:
        """Why it cannot run, as far as is known without trying it; empty if nothing speaks against it."""
        self.look()
        return self._reason

    @property
    def code(self) -> str:
        """The reason in one word of `trueno.select.reasons`."""
        self.look()
        return self._code

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the plugin's manners: what it prints, and what it does to the environment."""
        self.look()
        return self._notes

    @property
    def probed(self) -> str:
        """How its verdict was found: `cached`, `now`, `unprobed` (in this process only), or empty: not at all."""
        self.look()
        return self._probed

    # ---- what may need a try ------------------------------------------------------------------------

    @property
    def available(self) -> bool:
        """Whether it can run here.  May start a process that tries it; never imports it, unless no process can.

        False while this very thread makes it: what a plugin calls then is done without it.
        """
        if self._loading == get_ident():
            return False
        self.settle()
        return self._settled and not self._reason

    @property
    def devices(self) -> tuple[Device, ...]:
        """What its probe found."""
        if self._loading != get_ident():
            self.settle()
        return self._devices

    def load(self) -> Backend:
        """The backend object, made at the first call; BackendUnavailable, from what the plugin raised."""
        backend = self.backend
        if backend is not None and not self._reason:
            return backend
        self.settle(alone=True)
        if not self._reason and self.backend is None:
            if not self._take():
                raise BackendUnavailable(f"{self.name}: another thread loads it; a plugin calls no op while it is made")
            try:
                if not self._reason and self.backend is None:
                    self._make("load_failed")
            finally:
                self._lock.release()
        if self._reason:
            again = (
                ". Try again: trueno doctor --refresh"
                if self._probed == "cached" and self._code != "load_failed"
                else ""
            )
            raise BackendUnavailable(f"{self.name}: {self._reason}{again}") from self.error
        assert self.backend is not None
        return self.backend

    def __repr__(self) -> str:
        if self.reason:
            said = self._reason
        elif self._settled:
            said = f"available{''.join(f', {d.name} {d.isa}'.rstrip() for d in self._devices[:1])}"
        else:
            said = "not tried yet"
        return escaped(f"<{self.name}: {said}>")

    # ---- finding out -----------------------------------------------------------------------------

    def look(self) -> None:
        """Level 0, and the verdict that is kept."""
        if self._looked:
            return
        with self._lock:
            if self._looked or self.manifest is None:
                return
            unmet = self.manifest.unmet()
            if unmet is not None:
                self._code, self._reason = unmet
                self._settled = True
            elif self.trying() and not self._fresh:
                from trueno.discovery.verdicts import recall

                verdict = recall(self.manifest)
                if verdict is not None:
                    self._adopt(verdict, "cached")
            self._looked = True

    def known(self) -> bool:
        """Whether it is known already if it can run."""
        return self._settled

    def settle(self, alone: bool = False) -> None:
        """Find out whether it can run; others that are sure to be asked next are tried meanwhile, unless `alone`."""
        if self.known():
            return
        self.look()
        if self.known():
            return
        if not alone and self._others is not None:
            self._others(self)
        if not self._take():
            return
        try:
            if self.known():
                return
            if self.trying() and settings.get("TRUENO_PROBE") == "on":
                with importing:
                    from trueno.discovery.trial import wait

                assert self.manifest is not None
                verdict = wait(self.manifest)
                if not isinstance(verdict, str):
                    self._adopt(verdict, "now")
                    self._tell(verdict.seconds, 2)
                    return
                self._notes = (*self._notes, f"it was not tried in a process of its own: {verdict}")
            self._probed = "unprobed"
            self._make("probe_failed")
            self._settled = True
        finally:
            self._lock.release()

    def _take(self) -> bool:
        """Take the lock; not, where this thread makes another backend and would wait for one that waits for it."""
        return self._lock.acquire(blocking=not getattr(_here, "depth", 0))

    def _adopt(self, verdict: "Verdict", how: str) -> None:
        self._code, self._reason = verdict.code, verdict.reason
        self._devices, self._notes = verdict.devices, verdict.notes
        self._probed, self.checked = how, verdict.time
        if verdict.trace:
            from trueno.discovery.probe import ProbeError

            self.error = ProbeError(f"in the process that tried it\n\n{verdict.trace}")
        self._settled = True

    def _make(self, code: str) -> None:
        """Import the plugin, make its object and ask `probe(1)`, here; `code` is for the case that this fails.

        Where it says that there is no device here, the code is `no_device`.
        """
        from trueno.discovery import probe, verdicts

        if self._loading == get_ident():
            raise BackendUnavailable(f"{self.name}: it asks for itself while it is loaded; a plugin calls no op then")
        assert self.manifest is not None
        self._loading = get_ident()
        _here.depth = getattr(_here, "depth", 0) + 1
        start, notes, reason = time.perf_counter(), list(self._notes), ""
        key = (self.name, self.manifest.factory, self.factory)
        try:
            with probe.manners(notes), ieee():
                backend = made.get(key) or probe.build(self.name, self.factory or self.manifest.factory)
                made[key] = backend
                found = probe.ask(backend, 1)
            reason, code = found.reason, "no_device" if found.absent else code
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit, and the panics of other languages: the host must live
            if isinstance(error, RecursionError) and _deep():
                raise
            self.error = error
            reason = probe.said(error)
        finally:
            self._loading = 0
            _here.depth -= 1
        self._notes = tuple(dict.fromkeys(notes))
        if reason:
            if self._probed in ("cached", "now"):
                verdicts.drop(self.manifest)  # it promised too much
            self._code, self._reason = code, verdicts.sentence(reason)
        else:
            self._devices = found.devices or self._devices
            self.backend = backend
        if self.name != "reference":
            self._tell(time.perf_counter() - start, 1)

    def _tell(self, seconds: float, level: int) -> None:
        from trueno.events.stream import emit

        emit("probe", backend=self.name, detail=self._reason, seconds=seconds, ok=not self._reason, level=level)

    # ---- what the registry does with it --------------------------------------------------------------

    def trying(self) -> bool:
        """Whether a process of its own judges it, now or in a run before."""
        if self.factory is not None or settings.get("TRUENO_PROBE") == "off":
            return False
        return possible()

    def start(self) -> None:
        """Start the process that tries it, if nothing is known yet and processes may try."""
        self.look()
        if not self.known() and self.manifest and settings.get("TRUENO_PROBE") == "on" and self.trying():
            with importing:
                from trueno.discovery.trial import start

            start(self.manifest)

    def refuse(self, code: str, reason: str) -> None:
        """It cannot run, and that is final."""
        self._code, self._reason = code, reason
        self._looked = self._settled = True

    def accept(self, *devices: Device) -> None:
        """It can run, and nothing needs to be tried."""
        self._devices = devices
        self._looked = self._settled = True

    def hand_over(self, fresh: bool, active: bool, others: "Callable[[Entry], None]") -> None:
        """What it needs from the registry: whether kept verdicts count, whether it ran before, who starts others."""
        self._fresh, self.active, self._others = fresh, active, others

    def retire(self, reason: str) -> None:
        """It has failed for good; its object is not used again."""
        for key in [key for key in made if key[0] == self.name]:
            del made[key]
        self.backend = None
        self.refuse("lost", reason)

    def after_fork(self) -> None:
        """In the child of a fork: a thread that is not here may have been loading it."""
        self._loading = 0
