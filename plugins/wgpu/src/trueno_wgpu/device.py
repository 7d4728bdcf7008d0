"""The device layer: the only file that imports wgpu.  Bytes in, bytes out; it knows no NumPy.

What ends the process in wgpu-native (it has no error to give where it submits: gfx-rs/wgpu-native#588) cannot happen
here: no buffer is ever destroyed, none is mapped when it is given back, each command buffer is finished right before
its one submission, which a lost device refuses with an error, and nothing of size zero is bound.

Small work is held back: dispatches gather in one encoder, and are submitted with the first read, wait or write that
needs them, or when there is enough of them to keep a GPU busy.  So a small op and the reading of its result are one
submission, which costs more than either.
"""

import gc
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock, RLock, local
from time import sleep
from typing import Any
from weakref import WeakSet

import wgpu
from trueno.errors import BackendUnavailable, DeviceLost, KernelError, OutOfMemory
from trueno.settings import settings

from trueno_wgpu.adapter import SETTING, Adapter, absent, choose
from trueno_wgpu.bindings import Bindings
from trueno_wgpu.encoding import Encoder
from trueno_wgpu.limits import Counts, Limits
from trueno_wgpu.memory import Buffer, Memory, Pool, View, block
from trueno_wgpu.shader import Shader
from trueno_wgpu.staging import Staging, chunks, deliver, padded
from trueno_wgpu.uniforms import Slot, Uniforms

__all__ = ["Buffer", "Counts", "Gpu", "Limits", "View", "adapter", "gpu"]

Groups = tuple[int, int, int]
STORAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
UNIFORM = wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST
MAPPED = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
FEATURES = ("shader-f16", "subgroup", "timestamp-query")
"""Asked for where the adapter has them; no kernel needs one."""
ALIGNMENT = 256
"""Of a binding's offset: the largest that WebGPU allows a device to demand."""
INVOCATIONS = 256
"""Of a workgroup: every device has them."""
TRIPS = 60_000
"""Mesa's llvmpipe ends all loops of an invocation after 65 535 trips, without a word (LP_MAX_TGSI_LOOP_ITERATIONS)."""
HELD_KERNELS, HELD_GROUPS = 16, 2048
"""Up to so much work is held back; more keeps a GPU busy for longer than a submission takes."""
IDLE = 256 << 20
"""Bytes of memory that is kept for the next buffer."""
UNSUBMITTED = 64 << 20
"""Bytes of writes after which the queue gets something to do: until then it keeps a copy of each."""
MEMORY = "TRUENO_WGPU_MEMORY"
AGAIN = "upload it again"


class _Here(local):
    """What each thread has: an open batch, its status word, and whether a guarded kernel ran since that was taken."""

    batch: Encoder | None = None
    status: Buffer | None = None
    guarded = False


class Gpu:
    """One adapter's device.  It may be used by many threads at once; a batch is its thread's own.

    counts: what it did.  status: the word in which guarded kernels set bits, bound as any buffer; each thread has its
    own, which `run` puts in its place.
    """

    def __init__(self, wanted: str | None = None) -> None:
        """Open the adapter that `wanted` means, or the setting; BackendUnavailable where none does."""
        chosen, self.adapter = _find(wanted)
        try:
            with _quiet():
                self.device: Any = chosen.request_device_sync(
                    required_features=[name for name in FEATURES if name in chosen.features]
                )
        except Exception as error:
            raise BackendUnavailable(f"{self.adapter} gives no device ({error}); update its driver") from error
        self.features = frozenset(self.device.features)
        limits = self.device.limits
        self.name: str = self.adapter.name
        self.software: bool = self.adapter.software
        self.limits = Limits(
            binding=limits["max-storage-buffer-binding-size"] // 4 * 4,
            buffer=limits["max-buffer-size"] // 4 * 4,
            workgroup=limits["max-compute-workgroup-storage-size"],
            alignment=ALIGNMENT,
            invocations=min(limits["max-compute-invocations-per-workgroup"], INVOCATIONS),
            groups=limits["max-compute-workgroups-per-dimension"],
            trips=TRIPS if self.software else 0,
        )
        self.counts = Counts()
        self.memory: int | None = settings.get(MEMORY) if MEMORY in settings.declared() else None
        if self.memory is None and self.software:
            self.memory = _host_memory()
        self._gone: Exception | None = None
        self._forked = False
        self._lock = RLock()
        self._here = _Here()
        self._pool = Pool(IDLE if self.memory is None else min(IDLE, self.memory // 4))
        self._bindings = Bindings(self.device, self.limits, self.counts, self._lock, self._told)
        self._staging = Staging(lambda size: self._create(size, MAPPED))
        self._uniforms = Uniforms(lambda size: self._create(size, UNIFORM), self.device.queue.write_buffer)
        self._held = Encoder(self.device)
        self._unsubmitted = 0
        self.status = self.alloc(4)
        _open.add(self)

    # ---- memory ------------------------------------------------------------------------------------

    def alloc(self, nbytes: int) -> Buffer:
        """Uninitialised memory: its content may be stale.  OutOfMemory where there is none, or not in one piece."""
        needed = max(padded(nbytes), 4)
        if needed > self.limits.buffer:
            raise OutOfMemory(
                f"{nbytes} bytes were asked for, and one array on {self.name} has {self.limits.buffer} at most; "
                "split it, or compute on the CPU"
            )
        size = block(needed, self.limits.buffer)
        with self._lock:
            self._check()
            self._bindings.forget(self._pool.collect())
            found = self._pool.lend(size)
            if found is None:
                self._make_room(size)
                found = self._pool.add(Memory(self._create(size, STORAGE), size))
                self.counts.allocations += 1
            return Buffer(self, found, needed, self._pool.dropped)

    def _make_room(self, size: int) -> None:
        """Within the budget: idle blocks go first, then those that only unsubmitted work or garbage holds."""
        if self.memory is None or self._pool.lent + self._pool.idle + size <= self.memory:
            return
        for effort in (lambda: None, self._submit_held, gc.collect):
            effort()
            self._bindings.forget(self._pool.collect())
            self._bindings.forget(self._pool.trim(max(self.memory - self._pool.lent - size, 0)))
            if self._pool.lent + self._pool.idle + size <= self.memory:
                return
        free = max(self.memory - self._pool.lent, 0)
        raise OutOfMemory(
            f"{size} bytes are needed, and of {self.memory} on {self.name} {free} are free ({MEMORY}); drop some arrays"
        )

    def _create(self, size: int, usage: int) -> Any:
        """One of WebGPU's buffers; what is kept for later goes where there is no room."""
        try:
            return self.device.create_buffer(size=size, usage=usage)
        except Exception as error:
            told = self._told(error, f"a buffer of {size} bytes")
            if not isinstance(told, OutOfMemory):
                raise told from error
        self._submit_held()
        gc.collect()
        self._bindings.forget([*self._pool.collect(), *self._pool.trim(0)])
        self._poll()
        try:
            return self.device.create_buffer(size=size, usage=usage)
        except Exception as error:
            raise self._told(error, f"a buffer of {size} bytes") from error

    def write(self, buffer: Buffer, data: Any, offset: int = 0) -> None:
        """Copy bytes (any C-contiguous buffer) to a buffer, after what runs there before; zeros pad the last word.

        offset: a multiple of 4.
        """
        data = memoryview(data).cast("B")
        nbytes = len(data)
        self._inside(buffer, offset, nbytes, "write")
        with self._lock:
            self._check()
            self._submit_users(buffer)
            for at, size in chunks(nbytes):
                whole = size & ~3
                if whole:
                    self._write(buffer.handle, offset + at, data[at : at + whole])
                if whole < size:
                    self._write(buffer.handle, offset + at + whole, bytes(data[at + whole : at + size]).ljust(4, b"\0"))
            self.counts.uploads += 1
            self.counts.bytes_up += nbytes

    def _write(self, handle: Any, offset: int, data: Any) -> None:
        if self._unsubmitted + len(data) > UNSUBMITTED:
            self._submit(Encoder(self.device), always=True)  # an empty list would do, but cannot tell of a lost device
        self._unsubmitted += len(data)
        try:
            self.device.queue.write_buffer(handle, offset, data)
        except Exception as error:
            raise self._told(error, f"writing {len(data)} bytes") from error

    def _submit_users(self, buffer: Buffer) -> None:
        """Submit what is to read or write this buffer before it is written."""
        batch = self._here.batch
        if batch is not None and buffer in batch.held:
            self._submit_here()
        elif buffer in self._held.held:
            self._submit_held()

    def copy(self, source: Buffer, target: Buffer, nbytes: int) -> None:
        """Inside the device, from the beginning of one buffer to that of another."""
        self._inside(source, 0, nbytes, "copy")
        self._inside(target, 0, nbytes, "copy")
        if source is target or not nbytes:
            return
        with self._lock:
            self._check()
            encoder = self._here.batch or self._held
            encoder.copy(source.handle, 0, target.handle, 0, padded(nbytes))
            encoder.held.add(source)
            encoder.held.add(target)
            self.counts.copies += 1

    def _inside(self, buffer: Buffer, offset: int, nbytes: int, what: str) -> None:
        if buffer.gpu is not self:
            raise KernelError(f"{what}: the array lives on another device, or on one that was closed; {AGAIN}")
        if offset < 0 or offset % 4 or offset + nbytes > buffer.nbytes:
            raise KernelError(f"{what}: {nbytes} bytes from {offset} on are not inside {buffer}, or not aligned to 4")

    # ---- reading -----------------------------------------------------------------------------------

    def read(self, buffer: Buffer, nbytes: int, offset: int = 0, into: Any = None) -> memoryview:
        """Wait for what was submitted, and copy bytes home.  into: writable memory of so many bytes, to copy there."""
        target = memoryview(bytearray(nbytes)) if into is None else memoryview(into).cast("B")
        self._inside(buffer, offset, nbytes, "read")
        if len(target) != nbytes or target.readonly:
            raise KernelError(f"read: {nbytes} bytes do not go into {len(target)}, or these are read-only")
        waiting: tuple[tuple[int, Any], int, int] | None = None
        for at, size in chunks(nbytes):
            staged, promise = self._stage(buffer, offset + at, size)
            if waiting is not None:
                self._deliver(*waiting, target)
            self._settle(promise)
            waiting = staged, size, at
        if waiting is not None:
            self._deliver(*waiting, target)
        self._downloaded(nbytes)
        return target

    async def read_async(self, buffer: Buffer, nbytes: int, offset: int = 0) -> memoryview:
        """`read` for asyncio: the event loop stays free while the device works.

        On software even submitting waits for what runs, so there a thread does it.
        """
        import asyncio

        if self.software and not self._here.batch:
            return await asyncio.to_thread(self.read, buffer, nbytes, offset)
        target = memoryview(bytearray(nbytes))
        self._inside(buffer, offset, nbytes, "read")
        for at, size in chunks(nbytes):
            staged, promise = self._stage(buffer, offset + at, size)
            try:
                await promise  # cancelled, it is left alone: the buffer dies when it is mapped
            except RuntimeError as error:
                self._alive("reading")
                raise KernelError(f"reading from {self.name} failed ({error})") from error
            self._deliver(staged, size, at, target)
            await asyncio.sleep(0)
        self._downloaded(nbytes)
        return target

    def _downloaded(self, nbytes: int) -> None:
        with self._lock:
            self.counts.downloads += 1
            self.counts.bytes_down += nbytes

    def _stage(self, buffer: Buffer, offset: int, nbytes: int) -> tuple[tuple[int, Any], Any]:
        """Submit a copy, with all that runs before it, and ask for it to be mapped: a staging buffer, and a promise."""
        with self._lock:
            self._check()
            staged = self._staging.take(padded(nbytes))
            encoder = self._here.batch or self._held
            encoder.copy(buffer.handle, offset, staged[1], 0, padded(nbytes))
            encoder.held.add(buffer)
            self._submit_here()
            try:
                return staged, staged[1].map_async("READ_NOSYNC", 0, padded(nbytes))
            except Exception as error:
                raise self._told(error, "reading") from error

    def _settle(self, promise: Any) -> None:
        """Until a promise is kept; wgpu's own waiting has no end where the device is gone."""
        self._poll()
        while getattr(promise, "_state", "fulfilled") == "pending":  # another thread is about to tell, or it is lost
            self._alive("reading")
            sleep(1e-4)
            self._poll()
        try:
            promise.sync_wait()
        except RuntimeError as error:
            self._alive("reading")
            raise KernelError(f"reading from {self.name} failed ({error})") from error

    def _deliver(self, staged: tuple[int, Any], nbytes: int, at: int, target: memoryview) -> None:
        self._alive("reading")  # a map may be kept and its buffer be gone with the device, and looking at it aborts
        deliver(staged[1], nbytes, target[at : at + nbytes])
        with self._lock:
            self._staging.give(staged)

    def _alive(self, what: str) -> None:
        """DeviceLost if it is: wgpu tells only its log, and whoever makes something, be it as little as this."""
        self._check()
        try:
            self.device.create_bind_group_layout(entries=[])
        except Exception as error:
            raise self._told(error, what) from error

    # ---- running -----------------------------------------------------------------------------------

    def run(self, shader: Shader, buffers: Sequence[Buffer | View], uniforms: bytes, groups: Groups) -> None:
        """Run a shader over a grid of workgroups, with the batch that is open on this thread, or soon.

        uniforms: the content of binding 0.  A buffer that is written may not be bound twice.  A grid of no groups runs
        nothing.
        """
        x, y, z = groups
        most = self.limits.groups
        if not (0 < x <= most and 0 < y <= most and 0 < z <= most):
            if 0 in groups:
                return
            raise KernelError(f"{shader.name}: a grid of {groups} workgroups; {most} along an axis at most (grid.fold)")
        if self._gone is not None:
            self._check()
        pipeline = self._bindings.pipeline(shader)
        with self._lock:
            here = self._here
            if self.status in buffers:
                buffers = [self._own_status() if b is self.status else b for b in buffers]
            slot = self._slot(uniforms)
            key = (shader.writes, slot.page.uid, *[b.part for b in buffers])
            group = self._bindings.group(key) or self._bind(key, shader, slot, buffers)
            encoder = here.batch
            if encoder is None:
                encoder = self._held
            encoder.dispatch(pipeline, group, slot, x, y, z)
            for b in buffers:
                encoder.held.add(b.buffer)
            self.counts.kernels += 1
            if encoder is self._held and (encoder.kernels >= HELD_KERNELS or encoder.groups > HELD_GROUPS):
                self._submit_held()

    def _bind(self, key: Any, shader: Shader, slot: Slot, buffers: Sequence[Buffer | View]) -> Any:
        if any(b.buffer.gpu is not self for b in buffers):
            raise KernelError(f"{shader.name}: an array lives on another device, or on one that was closed; {AGAIN}")
        return self._bindings.bind(key, shader, slot.page, buffers)

    def _slot(self, content: bytes) -> Slot:
        try:
            return self._uniforms.slot(content)
        except (KernelError, OutOfMemory):
            raise
        except Exception as error:
            raise self._told(error, "writing uniforms") from error

    @contextmanager
    def batch(self) -> Iterator[None]:
        """What this thread runs inside is submitted together when the context ends without an error, else dropped.

        A read inside submits what there is so far, as does a write to what was used.  Inside another batch it is part
        of that one.
        """
        here = self._here
        if here.batch is not None:
            yield
            return
        with self._lock:
            self._check()
            here.batch = Encoder(self.device)
        try:
            yield
            with self._lock:
                self._submit_here()
        finally:
            encoder, here.batch = here.batch, None
            with suppress(Exception):  # whatever ended it says more
                encoder.drop()

    def wait(self) -> None:
        """Until everything submitted is done, with what this thread ran before."""
        with self._lock:
            self._check()
            self._submit_here()
        self._poll()

    # ---- the queue ---------------------------------------------------------------------------------

    def _submit_held(self) -> None:
        encoder, self._held = self._held, Encoder(self.device)
        self._submit(encoder)

    def _submit_here(self) -> None:
        """What is held back, then what this thread's batch has so far."""
        encoder = self._here.batch
        if encoder is None:
            self._submit_held()
            return
        self._here.batch = Encoder(self.device)
        held, self._held = self._held, Encoder(self.device)
        self._submit(held, encoder)

    def _submit(self, *encoders: Encoder, always: bool = False) -> None:
        """The one place that submits.  `finish` is an error where the device is lost; submitting would abort."""
        self._check()
        used = [e for e in encoders if e or always]
        if not used:
            return
        commands: list[Any] = []
        failed: Exception | None = None
        for encoder in used:
            try:
                commands.append(encoder.finish())
            except Exception as error:
                failed = self._told(error, "submitting")
                failed.__cause__ = error
        if commands and not isinstance(failed, DeviceLost):  # what somebody else ran is not to blame
            self.device.queue.submit(commands)
            self._unsubmitted = 0
            self.counts.submits += 1
            self.counts.launches += any(e.kernels for e in used)
        if failed is not None:
            raise failed

    def _poll(self) -> None:
        """Wait for the queue, in C and without Python's lock."""
        self.device._poll_wait()

    # ---- the status word ---------------------------------------------------------------------------

    def _own_status(self) -> Buffer:
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

    # ---- the end -----------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether nothing can be done with it any more."""
        return self._gone is not None

    @property
    def lost(self) -> bool:
        """Whether that was not `close`'s doing."""
        return isinstance(self._gone, DeviceLost)

    def close(self) -> None:
        """Wait, and let go of everything; buffers that live on are of no use.  Again is no error."""
        if self._gone is None:
            with suppress(KernelError):
                self.wait()
        with self._lock:
            if self._gone is None:
                self._gone = KernelError(f"{self.name} was closed")
            if not self._forked:
                self._let_go()

    def _let_go(self) -> None:
        self._held = Encoder(self.device)
        self._bindings.forget([*self._pool.collect(), *self._pool.trim(0)])
        self._bindings.clear()
        _open.discard(self)

    def _check(self) -> None:
        if self._gone is not None:
            raise type(self._gone)(str(self._gone))

    def _told(self, error: Exception, what: str) -> Exception:
        """One of WebGPU's errors as ours."""
        text = " ".join(str(error).replace("Caused by:", "").split()).removeprefix("Validation Error ")
        if isinstance(error, (KernelError, OutOfMemory)):
            return error
        if "device is lost" in text.lower() or "device lost" in text.lower():
            if self._gone is None:
                self._gone = DeviceLost(f"{self.name} was lost; its arrays are gone with it")
            return DeviceLost(str(self._gone))
        if isinstance(error, MemoryError):
            return OutOfMemory(f"{what}: {self.name} has no room ({text})")
        return KernelError(f"{what} ({text})")

    def _after_fork(self) -> None:
        """In the child of a fork: the device is the parent's, and even releasing a part of it would wait for ever."""
        self._lock, self._forked = RLock(), True
        self._gone = DeviceLost(
            f"{self.name} was opened before this process was forked, and no GPU survives that; start processes with "
            'the method "spawn"'
        )

    def __repr__(self) -> str:
        return f"<{self.adapter}{': ' + str(self._gone) if self._gone else ''}>"


# ---- adapters, and one device a process ----------------------------------------------------------------

_lock = Lock()
_gpu: Gpu | None = None
_open: WeakSet[Gpu] = WeakSet()
_found: list[tuple[Any, Adapter]] = []


def gpu() -> Gpu:
    """The process's device, opened when it is first asked for; BackendUnavailable where no adapter will do."""
    global _gpu
    found = _gpu
    if found is None or found.closed:
        with _lock:
            found = _gpu
            if found is None or (found.closed and not found.lost):
                found = _gpu = Gpu()
    return found


def adapter(wanted: str | None = None) -> Adapter:
    """The adapter that `gpu` opens, found without opening it; BackendUnavailable with the remedy where none will do."""
    return _find(wanted)[1]


def _find(wanted: str | None) -> tuple[Any, Adapter]:
    if wanted is None:
        wanted = str(settings.get(SETTING)) if SETTING in settings.declared() else os.environ.get(SETTING, "")
    for backends in ("Primary", "All"):  # OpenGL takes as long as all the others, and is needed almost nowhere
        _enumerate(backends)
        best = choose([a for _, a in _found], wanted)
        if best is not None:
            return next((handle, a) for handle, a in _found if a is best)
    raise BackendUnavailable(absent([a for _, a in _found], wanted, sys.platform))


_seen: set[str] = set()
_forked = False


def _enumerate(backends: str) -> None:
    """Add what an instance of these APIs finds; once a process."""
    if backends in _seen:
        return
    _seen.add(backends)
    with _quiet():
        with suppress(Exception):  # made by somebody else already, or a wgpu that has no such thing
            from wgpu.backends.wgpu_native import _helpers, extras

            if len(_seen) > 1 or _forked:  # llvmpipe's threads belong to the instance, and are the parent's
                _helpers._the_instance = None  # as that file says; the other instance lives on
            extras.set_instance_extras(backends=[backends])
        handles = wgpu.gpu.enumerate_adapters_sync()
    known = {a for _, a in _found}
    for handle in handles:
        info = handle.info
        made = Adapter(info["device"], info["adapter_type"], info["backend_type"], info["description"])
        if made not in known:
            _found.append((handle, made))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what Vulkan's loader says of extensions that nobody needs."""
    logger = logging.getLogger("wgpu")

    def errors(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR

    logger.addFilter(errors)
    try:
        yield
    finally:
        logger.removeFilter(errors)


def _host_memory() -> int | None:
    """What software may take of the host's memory: it promises any amount, and the kernel then ends the process."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4 * 3
    except (AttributeError, ValueError, OSError):
        return None


def _immortal(thing: Any) -> None:
    """Never to be released, not even when the interpreter ends."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _after_fork() -> None:
    global _lock, _gpu, _open, _found, _seen, _forked
    _lock = Lock()
    for one in _open:
        one._after_fork()
    for thing in (*_open, _found):
        _immortal(thing)
    _gpu, _open, _found, _seen, _forked = None, WeakSet(), [], set(), True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
