"""One adapter's device: memory, transfers and launches.  It handles bytes and does not use NumPy.

Actions that end the process in wgpu-native (submission cannot report an error: gfx-rs/wgpu-native#588) cannot happen
here: no buffer is ever destroyed, none is mapped when it is given back, each command buffer is finished right before
its one submission, which a lost device refuses with an error, and nothing of size zero is bound.
"""

import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import RLock, local
from typing import Any, TypeVar
from weakref import WeakSet, finalize

from trueno.errors import DeviceLost, KernelError

from trueno_wgpu.device import heap
from trueno_wgpu.device.bindings import Bindings
from trueno_wgpu.device.door import IN_BROWSER, immortal, open_device
from trueno_wgpu.device.heap import Heap
from trueno_wgpu.device.limits import Counts, Limits
from trueno_wgpu.device.memory import Buffer, View
from trueno_wgpu.device.polling import Poller
from trueno_wgpu.device.queue import Queue
from trueno_wgpu.device.recordings import Recording, Tape
from trueno_wgpu.device.setting import setting
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.device.staging import Staging
from trueno_wgpu.device.transfers import Transfers
from trueno_wgpu.device.uniforms import Page, Uniforms

__all__ = ["Buffer", "Counts", "Gpu", "Limits", "View"]

T = TypeVar("T")
Groups = tuple[int, int, int]
ALIGNMENT = 256
"""The largest alignment of a binding's offset that WebGPU allows a device to require."""
INVOCATIONS = 256
"""Invocations of a workgroup that every device supports."""
TRIPS = 60_000
"""Mesa's llvmpipe silently ends all loops of an invocation after 65 535 trips (LP_MAX_TGSI_LOOP_ITERATIONS)."""
UNIFORM = 0x0040 | 0x0008
MAPPED = 0x0001 | 0x0008
"""WebGPU's flags: uniforms, and buffers that are mapped for reading; both are targets of copies."""


class _Here(local):
    """Per thread: a status word, and whether a guarded kernel ran since it was read."""

    status: Buffer | None = None
    guarded = False


class Gpu:
    """One adapter's device.  Several threads may use it at once; a batch belongs to its thread.

    counts: its work.  status: the word in which guarded kernels set bits, bound like any buffer; each thread has
    its own, which `run` substitutes.
    """

    def __init__(self, wanted: str | None = None) -> None:
        """Open the adapter that `wanted`, or the setting, selects; BackendUnavailable if there is none."""
        self.device: Any
        self.device, self.adapter = open_device(wanted)
        self.features = frozenset(self.device.features)
        self.name: str = self.adapter.name
        self.software: bool = self.adapter.software
        self.limits = _limits(self.device.limits, self.software)
        self.counts = Counts()
        budget = setting(heap.SETTING, None)
        if budget is None and self.software and not IN_BROWSER:
            budget = _host_memory()
        self._queue = Queue(self.device, self.name, self.counts)
        self._bindings = Bindings(self.device, self.limits, self.counts, self._queue)
        self._heap = Heap(self.device, self.limits, self.counts, self._queue, self._bindings, budget)
        poller = self.device._poller = Poller(self.device._poller)
        staging = Staging(lambda size: self._heap.create(size, MAPPED))
        self._transfers = Transfers(self.counts, self._queue, staging, poller)
        self._uniforms = Uniforms(lambda size: self._heap.create(size, UNIFORM), self._queue.write)
        self._here = _Here()
        self._forked = False
        self._tapes: set[Tape] = set()  # as `Pool` holds what it lends: a child of a fork must not release them
        self.status = self.alloc(4)
        _devices.add(self)

    # ---- memory --------------------------------------------------------------------------------------

    @property
    def memory(self) -> int | None:
        """The most bytes of all arrays; None for as many as the driver gives."""
        return self._heap.budget

    def alloc(self, nbytes: int) -> Buffer:
        """Uninitialised memory: its content may be stale.  OutOfMemory if there is none, or not in one piece."""
        return self._heap.alloc(self, nbytes)

    def write(self, buffer: Buffer, data: Any, offset: int = 0) -> None:
        """Copy bytes (any C-contiguous buffer) to a buffer, after earlier work; zeros pad the last word.

        offset: a multiple of 4.
        """
        data = memoryview(data).cast("B")
        self._inside(buffer, offset, len(data), "write")
        self._transfers.write(buffer, data, offset)

    def copy(self, source: Buffer, target: Buffer, nbytes: int) -> None:
        """Copy inside the device, from the beginning of one buffer to that of another."""
        self._inside(source, 0, nbytes, "copy")
        self._inside(target, 0, nbytes, "copy")
        if source is not target and nbytes:
            self._transfers.copy(source, target, nbytes)

    def read(self, buffer: Buffer, nbytes: int, offset: int = 0, into: Any = None) -> memoryview:
        """Wait for submitted work, and copy bytes to the host.  into: writable memory of this size, to copy there."""
        target = memoryview(bytearray(nbytes)) if into is None else memoryview(into).cast("B")
        self._inside(buffer, offset, nbytes, "read")
        if len(target) != nbytes or target.readonly:
            raise KernelError(f"read: {nbytes} bytes do not go into {len(target)}, or these are read-only")
        self._transfers.read(buffer, nbytes, offset, target)
        return target

    async def read_async(self, buffer: Buffer, nbytes: int, offset: int = 0) -> memoryview:
        """`read` for asyncio: the event loop stays free while the device works.

        On software even submitting waits for running work, so a thread does it there.  Not allowed inside a batch.
        """
        import asyncio

        if self.software and not IN_BROWSER:
            return await asyncio.to_thread(self.read, buffer, nbytes, offset)
        target = memoryview(bytearray(nbytes))
        self._inside(buffer, offset, nbytes, "read")
        await self._transfers.read_async(buffer, nbytes, offset, target)
        return target

    def _inside(self, buffer: Buffer, offset: int, nbytes: int, what: str) -> None:
        if buffer.gpu is not self:
            raise KernelError(f"{what}: {FOREIGN}")
        if offset < 0 or offset % 4 or offset + nbytes > buffer.nbytes:
            raise KernelError(f"{what}: {nbytes} bytes from {offset} on are not inside {buffer}, or not aligned to 4")

    # ---- running -------------------------------------------------------------------------------------

    def run(self, shader: Shader, buffers: Sequence[Buffer | View], uniforms: bytes, groups: Groups) -> None:
        """Run a shader over a grid of workgroups, with this thread's open batch, or soon.

        uniforms: the content of binding 0.  A buffer that is written must not be bound twice.  An empty grid runs
        nothing.
        """
        x, y, z = groups
        most = self.limits.groups
        if not (0 < x <= most and 0 < y <= most and 0 < z <= most):
            if 0 in groups:
                return
            raise KernelError(f"{shader.name}: a grid of {groups} workgroups; {most} along an axis at most (grid.fold)")
        queue = self._queue
        if queue.gone is not None:
            queue.check()
        pipeline = self._bindings.pipeline(shader)
        with queue.lock:
            if self.status in buffers:
                buffers = [self._own_status() if b is self.status else b for b in buffers]
            slot = self._uniforms.slot(uniforms)
            key = (shader.writes, slot.page.uid, *[b.part for b in buffers])
            group = self._bindings.group(key) or self._bind(key, shader, slot.page, buffers)
            encoder = queue.encoder
            encoder.dispatch(pipeline, group, slot, x, y, z)
            if encoder.detailed:
                encoder.detail(shader, buffers, uniforms, groups)
            for b in buffers:
                encoder.held.add(b.buffer)
            if encoder.made:
                for b, written in zip(buffers, shader.writes, strict=True):
                    if written:
                        encoder.made.pop(b.buffer, None)
            self.counts.kernels += encoder.runs
            if encoder is queue.held and queue.full():
                queue.submit_held()

    def _bind(self, key: Any, shader: Shader, page: Page, buffers: Sequence[Buffer | View]) -> Any:
        if any(b.buffer.gpu is not self for b in buffers):
            raise KernelError(f"{shader.name}: {FOREIGN}")
        return self._bindings.bind(key, shader, page, buffers)

    def once(self, source: Buffer | View, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` computes from an array, or computed for this key before, if nothing has written the array since.

        It is remembered among commands that are not submitted yet, and in a recording: products of one vector share
        what they make of it.
        """
        key, buffer = (source.part, key), source.buffer
        with self._queue.lock:
            known = self._queue.encoder.made.get(buffer)
            if known is not None and key in known:
                return known[key]  # type: ignore[no-any-return]
        made = make()
        with self._queue.lock:
            encoder = self._queue.encoder
            encoder.held.add(buffer)  # so that a write from the host submits, which forgets this
            encoder.made.setdefault(buffer, {})[key] = made
        return made

    def batch(self) -> AbstractContextManager[None]:
        """What this thread runs inside is submitted together when the context ends without an error, else dropped.

        A read inside submits the commands so far, as does a write to a buffer in use.  Inside another batch it is part
        of that one.
        """
        return self._queue.batch()

    @contextmanager
    def recording(self) -> Iterator[Recording]:
        """What this thread runs inside is kept, and not run; `replay()` of what this gives runs it each time.

        Its arrays live as long.  Reading, writing and guarded kernels are errors inside.
        """
        made = Recording(self._replay)
        with self._queue.recording(Tape(self.device)) as tape:
            yield made
        self._tapes.add(tape)
        made.tape = tape
        finalize(made, self._forget, tape).atexit = False

    def taping(self, tape: Tape) -> AbstractContextManager[Tape]:
        """What this thread runs inside goes to `tape` alone."""
        return self._queue.recording(tape)

    def _replay(self, tape: Tape) -> None:
        self._queue.check()  # in a child of a fork, where locks may be another thread's
        with tape.lock:
            self._queue.replay(tape)
            with suppress(Exception):  # the next replay tells
                tape.prepare()

    def _forget(self, tape: Tape) -> None:
        if not self._forked:
            self._tapes.discard(tape)

    def wait(self) -> None:
        """Wait until all submitted work, and this thread's earlier work, is done."""
        self._queue.wait()

    # ---- the status word -----------------------------------------------------------------------------

    def _own_status(self) -> Buffer:
        self._queue.outside("no guarded kernel runs")  # the word is its thread's, and a replay is any thread's
        here = self._here
        if here.status is None:
            here.status = self.alloc(4)
            self.write(here.status, bytes(4))
        here.guarded = True
        return here.status

    def take_status(self) -> int:
        """Wait for this thread's guarded kernels; their bits since the last time, which are cleared."""
        here = self._here
        if not here.guarded or here.status is None:
            return 0
        bits = int.from_bytes(self.read(here.status, 4), "little")
        here.guarded = False
        if bits:
            self.write(here.status, bytes(4))
        return bits

    # ---- the end -------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether the device is unusable."""
        return self._queue.gone is not None

    @property
    def lost(self) -> bool:
        """Whether it is unusable for another reason than `close`."""
        return isinstance(self._queue.gone, DeviceLost)

    def close(self) -> None:
        """Wait, and release everything; buffers that live on are unusable.  Closing twice is not an error."""
        if self._forked:
            return
        if not self.closed:
            with suppress(KernelError):
                self.wait()
        with self._queue.lock:
            self._queue.close()
            for tape in self._tapes:
                tape.drop()
            self._tapes.clear()
            self._heap.empty()
            self._bindings.clear()
        _devices.discard(self)

    def after_fork(self) -> None:
        """In the child: the device is the parent's, and even releasing a part of it would block forever."""
        self._forked, self._queue.lock = True, RLock()
        self._queue.gone = DeviceLost(
            f"{self.name} was opened before this process was forked, and no GPU survives that; start processes with "
            'the method "spawn"'
        )

    def __repr__(self) -> str:
        return f"<{self.adapter}{': ' + str(self._queue.gone) if self.closed else ''}>"


FOREIGN = "an array lives on another device, or on one that was closed; upload it again"


def _limits(native: Any, software: bool) -> Limits:
    """A device's limits in round numbers: llvmpipe's largest buffer is odd."""
    return Limits(
        binding=native["max-storage-buffer-binding-size"] // 4 * 4,
        buffer=native["max-buffer-size"] // 4 * 4,
        workgroup=native["max-compute-workgroup-storage-size"],
        alignment=ALIGNMENT,
        invocations=min(native["max-compute-invocations-per-workgroup"], INVOCATIONS),
        groups=native["max-compute-workgroups-per-dimension"],
        trips=TRIPS if software else 0,
    )


def _host_memory() -> int | None:
    """The share of the host's memory for software: it promises any amount, and the kernel then kills the process."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4 * 3
    except (AttributeError, ValueError, OSError):
        return None


# ---- fork ----------------------------------------------------------------------------------------------

_devices: WeakSet[Gpu] = WeakSet()


def _after_fork() -> None:
    global _devices
    for device in _devices:
        device.after_fork()
    for device in _devices:
        immortal(device)
    _devices = WeakSet()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
