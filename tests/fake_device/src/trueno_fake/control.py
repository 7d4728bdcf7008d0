"""How the device fails, and how fast it says it is: set by tests, or by its settings when it starts."""

from threading import RLock
from time import sleep

from trueno.backend import Rates, settings
from trueno.errors import DeviceLost, OutOfMemory, SettingError

OPERATIONS = ("alloc", "upload", "download", "kernel", "copy", "submit", "synchronize")
FAILURES = ("error", "memory", "lost")
RATES = Rates(launch_s=10e-6, flops=1e12, bytes=2e11, link_s=15e-6, link_bytes=1e10)
"""What a modest GPU on PCIe would say."""


class Control:
    """Orders to the device.

    memory: bytes that it has, None for no end.  slow: seconds that every kernel takes longer.  late: guarded kernels
    return 0 and leave their bits to `synchronize`.  wrong_shape: `empty` gives another shape.  lost: it is gone.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self.reset()

    def reset(self) -> None:
        """A healthy device with no history."""
        with self._lock:
            self.memory: int | None = None
            self.slow = 0.0
            self.late = False
            self.wrong_shape = False
            self.lost = False
            self.rates: Rates | None = RATES
            self._at = self._seen = 0
            self._kind, self._how, self._times = "", "error", 1

    def read(self) -> None:
        """Take over what the settings say."""
        self.reset()
        self.memory = settings.get("TRUENO_FAKE_MEMORY")
        self.slow = settings.get("TRUENO_FAKE_SLOW") or 0.0
        self.late = settings.get("TRUENO_FAKE_LATE")
        self.wrong_shape = settings.get("TRUENO_FAKE_WRONG_SHAPE")
        self.lost = settings.get("TRUENO_FAKE_LOST")
        if text := settings.get("TRUENO_FAKE_RATES"):
            try:
                self.rates = Rates(*map(float, text.replace(",", " ").split()))
            except (TypeError, ValueError):
                raise SettingError(
                    f"TRUENO_FAKE_RATES is {text!r}, but must be 3 to 5 numbers: launch_s flops bytes link_s link_bytes"
                ) from None
        if at := settings.get("TRUENO_FAKE_FAIL_AT"):
            self.fail(at, settings.get("TRUENO_FAKE_FAIL_WITH"), settings.get("TRUENO_FAKE_FAIL_KIND"))

    def fail(self, at: int, how: str = "error", kind: str = "", times: int = 1) -> None:
        """Fail at the `at`-th operation from now (of one kind, if given), and at the `times` − 1 that follow it."""
        if how not in FAILURES or kind not in ("", *OPERATIONS):
            raise SettingError(f"the device cannot fail with {how!r} at {kind!r}; {FAILURES} at {OPERATIONS}")
        with self._lock:
            self._at, self._how, self._kind, self._times, self._seen = at, how, kind, times, 0

    @property
    def seen(self) -> int:
        """Operations counted since `fail`."""
        return self._seen

    def due(self, kind: str) -> Exception | None:
        """Count one operation; the error with which it must fail, or None."""
        with self._lock:
            if self.lost:
                return DeviceLost("the fake device is lost")
            if not self._at or self._kind not in ("", kind):
                return None
            self._seen += 1
            if not self._at <= self._seen < self._at + self._times:
                return None
            said = f"the fake device fails at {kind} {self._seen}, as it was told"
            if self._how == "lost":
                self.lost = True
                return DeviceLost(said)
            return OutOfMemory(said) if self._how == "memory" else RuntimeError(said)

    def step(self, kind: str) -> None:
        """Count one operation, and fail if it is due."""
        error = self.due(kind)
        try:
            if error:
                raise error
        finally:
            del error  # its traceback holds this frame, and those below the arrays

    def wait(self) -> None:
        """Be as slow as was asked."""
        if self.slow:
            sleep(self.slow)


control = Control()
