"""What a recording launches, kept until it can be issued in one of three ways.

    plain        every launch waits until the one before it has ended
    early        as Trueno records it: a launch that waits itself begins while the one before it ends (programmatic
                 dependent launch)
    persistent   runs of at least `LEAST` launches that `fold` takes become one launch each; the others stay early

`collecting` takes the place of three methods of one device, `prepare`, `copy` and `recording`, until it ends.  It has
to begin before the engine makes its kernels, which keep what `prepare` gave them.  A recording has launches and copies
inside the device, and nothing else: what is sent to the device is there before, and what is read comes after.  So
launches are kept until the recording ends, or until a copy, which must stay in its place.  One thread records at a
time.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
from trueno_cuda.kernels.caches import attend
from trueno_cuda.ptx import Kernel

from benchmarks.ways.fold import Step, folded, kinds, refusal, table

PLAIN, EARLY, PERSISTENT = "plain", "early", "persistent"
THREADS: Final = 128
"""Of a block of most kernels of a decode step."""
RESIDENT: Final = 3
"""Persistent blocks of a multiprocessor, as many as most of these kernels are built for."""
RESERVED: Final = 1024
"""Bytes of shared memory that the driver takes for each block."""
LEAST: Final = 3
"""Launches that are worth a persistent one: it costs a launch, too."""


class Launch(NamedTuple):
    """A launch that was not issued yet.  early, plain: issue it.  refusal: why it cannot be part of another one."""

    step: Step
    early: Callable[..., None]
    plain: Callable[..., None]
    refusal: str


@dataclass
class Issued:
    """What became of the launches of a recording.

    graph: launches that the graph has.  segments: of each persistent one, the launches and sections that it has.
    stayed: launches that are not part of one, though others are, by the reason.
    """

    launches: int = 0
    graph: int = 0
    segments: list[tuple[int, int]] = field(default_factory=list)
    stayed: Counter[str] = field(default_factory=Counter)

    @property
    def folded(self) -> int:
        """Launches that are part of a persistent one."""
        return sum(launches for launches, _ in self.segments)


class Collector:
    """Stands between kernels and a device.

    way: in which the next recordings are issued.  issued: the last one.  error: what ended it, if it failed: a batch
    goes on without a recording, and does not say so.  kernels: those that it folded.
    """

    def __init__(self, device: Any) -> None:
        self.device, self.way, self.issued, self.kernels = device, EARLY, Issued(), dict[Any, Kernel]()
        self.error: Exception | None = None
        self.room = (device.shared + RESERVED) // RESIDENT - RESERVED
        self._prepare, self._copy, self._recording = device.prepare, device.copy, device.recording
        self._kept: list[Launch] | None = None

    def prepare(
        self, kernel: Kernel, grid: tuple[int, int, int], numbers: Sequence[int] = (), block: Any = None,
        shared: int = -1,
    ) -> Callable[..., None]:  # fmt: skip
        """The device's launch, which is kept while a recording is made."""
        early: Any = self._prepare(kernel, grid, numbers, block, shared)
        plain = early
        if kernel.early:
            plain = self._prepare(replace(kernel, early=False), grid, numbers, block, shared)
        reason = refusal(kernel, THREADS, self.room) if shared < 0 else "its launch decides about shared memory"

        def launch(pointers: Sequence[Any], floats: Sequence[float] = ()) -> None:
            if self._kept is None:
                early(pointers, floats)
            else:
                step = Step(kernel, grid, tuple(numbers), tuple(pointers), tuple(floats))
                self._kept.append(Launch(step, early, plain, reason))

        def bound(pointers: Sequence[Any]) -> Callable[[], None]:
            at_once: Callable[[], None] = early.bound(pointers)
            return lambda: at_once() if self._kept is None else launch(pointers)

        launch.bound = bound  # type: ignore[attr-defined]
        return launch

    def copy(self, x: Any, out: Any) -> None:
        """The device's copy, after what was launched before it."""
        self._issue()
        self._copy(x, out)

    @contextmanager
    def recording(self) -> Iterator[Any]:
        """The device's recording, to which launches are issued in the chosen way."""
        with self._recording() as recording:
            before, self._kept, self.issued, self.error = self.issued, [], Issued(), None
            try:
                yield recording
                self._issue()
            except Exception as error:
                self.error = error
                raise
            finally:
                self._kept = None
                if not self.issued.launches:  # the device's own graph of a single launch
                    self.issued = before

    def _issue(self) -> None:
        """Issue what was kept."""
        if not self._kept:
            return
        kept, self._kept = self._kept, []
        self.issued.launches += len(kept)
        for refused, group in groupby(kept, lambda launch: bool(launch.refusal)):
            launches = list(group)
            if self.way == PERSISTENT and not refused and len(launches) >= LEAST:
                self._fold([launch.step for launch in launches])
                continue
            for step, early, plain, reason in launches:
                (plain if self.way == PLAIN else early)(step.pointers, step.floats)
                self.issued.graph += 1
                if self.way == PERSISTENT:
                    self.issued.stayed[reason or f"fewer than {LEAST} stand together"] += 1

    def _fold(self, steps: list[Step]) -> None:
        """Issue some launches as one, whose table and counter live as long as the recording."""
        device, sections = self.device, kinds(steps)
        key = tuple((kernel.key, kernel.early) for kernel in sections)
        if key not in self.kernels:
            self.kernels[key] = folded(sections, THREADS, RESIDENT)
        rows, stride = table(sections, steps)
        arrays = [device.to_device(x) for x in (np.frombuffer(rows, np.uint8), np.zeros(1, np.uint32))]
        launch = self._prepare(self.kernels[key], (device.sms * RESIDENT, 1, 1), (len(steps), stride))
        launch([array.data.ptr for array in arrays])
        self.issued.graph += 1
        self.issued.segments.append((len(steps), len(sections)))


@contextmanager
def collecting(device: Any) -> Iterator[Collector]:
    """A collector in front of a device; kernels that it prepared go on launching when it has ended."""
    collector = Collector(device)
    device.prepare, device.copy, device.recording = collector.prepare, collector.copy, collector.recording
    try:
        yield collector
    finally:
        del device.prepare, device.copy, device.recording


@contextmanager
def without_clusters() -> Iterator[None]:
    """Calls of `attention_decode` that are planned inside join their shares in a second launch, and not in a cluster.

    A cluster cannot be part of a persistent kernel, and ways are compared on the same kernels.
    """
    planning: Any = attend
    before, planning.PLANNED = planning.PLANNED, planning.TWICE
    try:
        yield
    finally:
        planning.PLANNED = before
