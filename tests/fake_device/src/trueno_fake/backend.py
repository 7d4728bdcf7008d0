"""The backend: transfers that are counted, and kernels that run the ops' own bodies on hidden buffers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Literal

import numpy as np
from trueno.backend import Accuracy, Call, Device, Kernel, Probe, Rates, Reject

from trueno_fake.array import Array
from trueno_fake.control import control
from trueno_fake.kernels import RECORDER, kernel
from trueno_fake.ledger import LEDGER

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


class Recording:
    """Kernels with their arguments, submitted together."""

    def __init__(self, backend: "FakeBackend", kept: list[Callable[[], Any]]) -> None:
        self.backend, self.kept = backend, kept

    def replay(self) -> None:
        LEDGER.add(replays=1)
        with self.backend.batch():
            for run in self.kept:
                run()


class FakeBackend:
    """A GPU whose memory is a NumPy buffer that no other code holds."""

    name = "fake"
    kind: Literal["cpu", "gpu"] = "gpu"
    accuracy = Accuracy()  # the bodies under NumPy, as the core's reference has them

    def __init__(self) -> None:
        control.read()
        self._bits = 0
        self._lock = Lock()

    def limits(self) -> dict[str, int | None]:
        """Bytes of memory; None for no end."""
        return {"memory": control.memory}

    def probe(self, level: int) -> Probe:
        """Level 2 adds one and one on the device."""
        devices = (Device("fake device", "fake"),)
        if control.lost:
            return Probe(False, "the fake device is lost; unset TRUENO_FAKE_LOST", devices)
        if level > 1:
            from trueno.backend import TABLE

            x = self.to_device(np.ones(8, np.float32))
            y = self.empty((8,), x.dtype)
            status = self.kernel(Call(TABLE["add"], x.dtype, "ee", 1, (4,), residency="fake"))(x, x, y)
            if status or not (self.to_host(y) == 2).all():
                return Probe(False, "1 + 1 is not 2 on the fake device", devices)
        return Probe(True, devices=devices)

    def supports(self, call: Call) -> Reject | None:
        if call.dtype not in FLOATS:
            return Reject("unsupported_dtype", f"{call.dtype}: float32 or float64")
        return None

    def kernel(self, call: Call) -> Kernel:
        return kernel(call, self._tripped)

    def rates(self, call: Call) -> Rates:
        return control.rates  # type: ignore[return-value]  # tests declare nonsense, too

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return Array((*shape, 2) if control.wrong_shape else shape, dtype)

    def to_device(self, x: np.ndarray[Any, Any]) -> Array:
        array = Array(np.shape(x), x.dtype)
        control.step("upload")
        LEDGER.add(uploads=1, bytes_up=array.nbytes)
        array._elements()[...] = x
        return array

    def to_host(self, x: Array, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        control.step("download")
        LEDGER.add(downloads=1, bytes_down=x.nbytes)
        if out is None:
            out = np.empty(x.shape, x.dtype)
        out[...] = x._elements()
        return out

    def copy(self, x: Array, out: Array) -> None:
        """Inside the device.  Fails, if it does, before it has written anything."""

        def run() -> None:
            control.step("copy")
            LEDGER.add(copies=1)
            out._elements()[...] = x._elements()

        if RECORDER.kept is None:
            run()
        else:
            RECORDER.kept.append(run)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Kernels inside are one submit, which is the last thing that can fail."""
        before = LEDGER.batched
        LEDGER.batching += 1
        try:
            yield
            if LEDGER.batched != before:
                control.step("submit")
                LEDGER.add(submits=1)
        finally:
            LEDGER.batching -= 1

    @contextmanager
    def recording(self) -> Iterator["Recording"]:
        """Kernels inside are kept."""
        before, RECORDER.kept = RECORDER.kept, []
        try:
            yield Recording(self, RECORDER.kept)
        finally:
            RECORDER.kept = before

    def write(self, x: np.ndarray[Any, Any], out: Array) -> None:
        """Over the link, into memory that is there already."""
        control.step("upload")
        LEDGER.add(uploads=1, bytes_up=out.nbytes)
        out._elements()[...] = x

    def synchronize(self) -> int:
        """The bits of guarded kernels that were left for now."""
        control.step("synchronize")
        LEDGER.add(synchronizes=1)
        with self._lock:
            bits, self._bits = self._bits, 0
        return bits

    def close(self) -> None:
        """Buffers go with their arrays; nothing else is held."""

    def _tripped(self, bits: int) -> int:
        """What a guarded kernel returns for `bits`: now, or 0 and later."""
        if not control.late:
            return bits
        with self._lock:
            self._bits |= bits
        return 0
