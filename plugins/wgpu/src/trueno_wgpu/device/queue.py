"""One device's queue: what is recorded but not submitted yet, and the only code that submits.

Small work is held back: dispatches gather in one encoder, and are submitted with the first read, wait or write that
needs them, or when there are enough of them to keep a GPU busy.  So a small op and the reading of its result are one
submission; a submission costs more than either.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import RLock, local
from typing import Any

from trueno.errors import DeviceLost, KernelError, OutOfMemory

from trueno_wgpu.device.encoding import Encoder
from trueno_wgpu.device.limits import Counts
from trueno_wgpu.device.memory import Buffer
from trueno_wgpu.device.recordings import Tape

HELD_KERNELS, HELD_GROUPS = 16, 2048
"""Up to this much work is held back; more keeps a GPU busy for longer than a submission takes."""
UNSUBMITTED = 64 << 20
"""Bytes of writes after which something is submitted: until then the queue keeps a copy of each."""


class _Here(local):
    """Per thread: an open batch."""

    batch: Encoder | None = None


class Queue:
    """Of the device `name`.  lock: for everything of the device.  gone: why the device is unusable."""

    def __init__(self, device: Any, name: str, counts: Counts) -> None:
        self._device, self._name, self._counts = device, name, counts
        self.lock: Any = RLock()
        self.gone: Exception | None = None
        self._here = _Here()
        self.held = Encoder(device)
        self._unsubmitted = 0

    # ---- recording: the lock is held -----------------------------------------------------------------

    @property
    def encoder(self) -> Encoder:
        """The encoder of this thread's next command: its batch's, or the one that is held back."""
        batch = self._here.batch
        return self.held if batch is None else batch

    def full(self) -> bool:
        """Whether enough work is held back to be submitted."""
        return self.held.kernels >= HELD_KERNELS or self.held.groups > HELD_GROUPS

    def write(self, handle: Any, offset: int, data: Any) -> None:
        """Bytes into one of WebGPU's buffers, before everything that is submitted from now on."""
        if self._unsubmitted + len(data) > UNSUBMITTED:
            self._submit(Encoder(self._device), always=True)  # an empty one would do, but reports no lost device
        self._unsubmitted += len(data)
        try:
            self._device.queue.write_buffer(handle, offset, data)
        except Exception as error:
            raise self.told(error, f"writing {len(data)} bytes") from error

    @property
    def taping(self) -> bool:
        """Whether this thread makes a recording."""
        return isinstance(self._here.batch, Tape)

    def outside(self, what: str) -> None:
        """KernelError inside a recording, where nothing has run yet."""
        if self.taping:
            raise KernelError(f"{self._name}: {what} inside a recording; do it after a replay")

    # ---- submitting: the lock is held ----------------------------------------------------------------

    def submit_held(self) -> None:
        """What is held back."""
        held, self.held = self.held, Encoder(self._device)
        self._submit(held)

    def submit_here(self) -> None:
        """What is held back, then what this thread's batch has so far."""
        self.outside("nothing can be waited for")
        batch = self._here.batch
        if batch is None:
            self.submit_held()
            return
        self._here.batch = Encoder(self._device)
        held, self.held = self.held, Encoder(self._device)
        self._submit(held, batch)

    def submit_users(self, buffer: Buffer) -> None:
        """Called by a reader or writer of this buffer before it is written."""
        batch = self._here.batch
        if batch is not None and buffer in batch.held:
            self.submit_here()
        elif buffer in self.held.held:
            self.submit_held()

    def _submit(self, *encoders: Encoder, always: bool = False) -> None:
        """`finish` raises if the device is lost, where submitting would end the process."""
        self.check()
        used = [e for e in encoders if e or always]
        commands: list[Any] = []
        failed: Exception | None = None
        for encoder in used:
            try:
                commands.append(encoder.finish())
            except Exception as error:
                failed = self.told(error, "submitting")
                failed.__cause__ = error
        if commands and not isinstance(failed, DeviceLost):  # what another recorded is not to blame
            self._device.queue.submit(commands)
            self._unsubmitted = 0
            self._counts.submits += 1
            self._counts.launches += any(e.kernels for e in used)
        if failed is not None:
            raise failed

    # ---- batches, and waiting ------------------------------------------------------------------------

    @contextmanager
    def batch(self) -> Iterator[None]:
        """What this thread records inside is submitted when the context ends without an error, else dropped."""
        here = self._here
        if here.batch is not None:
            yield
            return
        self.check()
        here.batch = Encoder(self._device)
        try:
            yield
            with self.lock:
                self.submit_here()
        finally:
            encoder, here.batch = here.batch, None
            with suppress(Exception):  # the original error is more useful
                encoder.drop()

    @contextmanager
    def recording(self, tape: Tape) -> Iterator[Tape]:
        """What this thread records inside is kept by `tape`, and not submitted."""
        here = self._here
        if here.batch is not None:
            raise KernelError(f"{self._name}: a recording cannot be made inside a batch or another recording")
        self.check()
        here.batch = tape
        try:
            yield tape
        finally:
            here.batch = None

    def replay(self, tape: Tape) -> None:
        """Submit a tape's commands, after what was recorded before."""
        with self.lock:
            self.outside("nothing is replayed")
            self.alive("submitting")  # its commands may have been finished long ago
            if self._here.batch is not None:
                self.submit_here()
            held, self.held = self.held, Encoder(self._device)
            self._submit(held, tape)
            self._counts.kernels += tape.kernels

    def wait(self) -> None:
        """Wait until all submitted work, and what this thread recorded before, is done."""
        with self.lock:
            self.submit_here()
        self.poll()

    def poll(self) -> None:
        """Wait until all submitted work is done: in C, and without the GIL."""
        self._device._poll_wait()

    # ---- the end -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Nothing is recorded or submitted from now on; the caller holds the lock."""
        if self.gone is None:
            self.gone = KernelError(f"{self._name} was closed")
        self.held = Encoder(self._device)

    def check(self) -> None:
        """The error that says why the device is unusable."""
        if self.gone is not None:
            raise type(self.gone)(str(self.gone))

    def alive(self, what: str) -> None:
        """DeviceLost if it is: wgpu reports a loss only in its log, and when an object is created, however small."""
        self.check()
        try:
            self._device.create_bind_group_layout(entries=[])
        except Exception as error:
            raise self.told(error, what) from error

    def told(self, error: Exception, what: str) -> Exception:
        """One of WebGPU's errors as one of ours."""
        if isinstance(error, (KernelError, OutOfMemory)):
            return error
        text = " ".join(str(error).replace("Caused by:", "").split()).removeprefix("Validation Error ")
        if "device is lost" in text.lower() or "device lost" in text.lower():
            if self.gone is None:
                self.gone = DeviceLost(f"{self._name} was lost; its arrays are gone with it")
            return DeviceLost(str(self.gone))
        if isinstance(error, MemoryError):
            return OutOfMemory(f"{what}: {self._name} has no room ({text})")
        return KernelError(f"{what} ({text})")
