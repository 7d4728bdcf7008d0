"""What the device did: counts, for tests that assert counts and not times."""

from dataclasses import dataclass, field, fields
from threading import RLock
from typing import Any


@dataclass
class Ledger:
    """Counters since the last `reset`; `live` and `live_bytes` are what is allocated now and survive it.

    kernels and submits: calls that were begun, those that failed included; batched: of the kernels, those inside of
    a batch, which is one submit; batching: batches that are open now.  replays: of what
    was recorded.  copies: inside the device.
    bytes_up, bytes_down: over the link.  peak_bytes: the most that was live at once since the last `reset`.
    user: the number of the test that counts now; buffers of an earlier one are not counted when they go
    (`serve_another`).
    """

    uploads: int = 0
    downloads: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    kernels: int = 0
    submits: int = 0
    copies: int = 0
    synchronizes: int = 0
    allocs: int = 0
    frees: int = 0
    live: int = 0
    live_bytes: int = 0
    peak_bytes: int = 0
    batched: int = 0
    replays: int = 0
    batching: int = 0
    user: int = 0
    # Reentrant: collecting garbage inside `add` may free a buffer, which adds again.
    _lock: Any = field(default_factory=RLock, repr=False, compare=False)

    def add(self, **counts: int) -> None:
        """Add to some counters; safe under threads."""
        with self._lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)
            self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def reset(self) -> None:
        """Start counting again; what is allocated stays known."""
        with self._lock:
            for f in fields(self):
                if f.name not in ("live", "live_bytes", "batching", "user", "_lock"):
                    setattr(self, f.name, 0)
            self.peak_bytes = self.live_bytes

    def serve_another(self) -> None:
        """Start from nothing: what others keep alive is theirs.

        NumPy 2.4 itself keeps an operand of `np.add.reduce` whose `__array_ufunc__` is None.
        """
        with self._lock:
            self.user += 1
            self.live = self.live_bytes = 0
            self.reset()

    def counts(self) -> dict[str, int]:
        """All counters by name."""
        with self._lock:
            return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("user", "_lock")}


LEDGER = Ledger()
