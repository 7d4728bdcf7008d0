"""`trueno.Batch`: ops are recorded on handles, and run together when the batch is executed."""

import asyncio
from threading import Lock
from typing import Any
from weakref import ref

import numpy as np

from trueno.batch.counts import Counts
from trueno.batch.graph import Graph, Number
from trueno.batch.handle import Handle
from trueno.batch.incoming import fits, kind, plain
from trueno.batch.methods import method
from trueno.batch.run import Replay
from trueno.batch.steps import schedule
from trueno.discovery import registry
from trueno.discovery.protocol import Backend
from trueno.discovery.registry import Entry
from trueno.dispatch import state, transfer
from trueno.dispatch.coerce import coerce_params, number
from trueno.dispatch.fallback import telling
from trueno.dispatch.transfer import home
from trueno.errors import BatchError, DeviceError, DtypeError, ParameterError, ShapeError, suggestion
from trueno.ops import ALIASES, TABLE
from trueno.ops.op import Op
from trueno.settings import settings


class Batch:
    """Records ops and runs them as few kernels: `trueno.Batch("simd")`, or without a name to choose automatically.

    Every op of the table is a method with its own signature, without `out`, on handles and numbers.  `execute()`
    computes each handle that you still hold and that nothing in the batch uses, and those that you `keep`; it leaves
    out whatever nobody can read any more.  `read(h)` of a handle that was fused away computes it then, from the same
    uploads.  Executing again recomputes from the uploads as they are by then, without compiling or allocating.

    On a backend with arrays of its own everything stays there between upload and read.  On the host an upload is not
    copied: do not change the array before the batch is executed.  The batch owns its buffers until it is closed; it is
    for one thread at a time.  BatchError for what comes too early, too late, or from another batch.
    """

    def __init__(self, backend: str | None = None) -> None:
        if backend is not None and not isinstance(backend, str):
            raise ParameterError(f'Batch: {backend!r} is no name of a backend; write trueno.Batch("simd")')
        self._asked: tuple[str, ...] = () if backend is None else (backend.lower(),)
        names = self._asked or state.current.get().asked.names or settings.get("TRUENO_BACKEND")
        for name in names:
            registry.load(name)
        self._fixed = bool(names)
        self._device: Entry | None = None
        if names and registry.foreign(registry.entries()[names[0]]):
            self._device = registry.entries()[names[0]]
        self.name = f"Batch({backend!r})" if backend else "Batch()"
        self._graph = Graph()
        self._handles: list[ref[Handle]] = []
        self._uploads: dict[int, Any] = {}
        self._kept: set[int] = set()
        self._replay: Replay | None = None
        self._planned = 0  # values that the replay knows of
        self._done = False  # whether the replay's results can be read
        self._changed = False  # whether uploads are newer than the results
        self._now: tuple[state.State, state.State] | None = None
        self._closed = False
        self._busy = Lock()
        self._uploaded = self._downloaded = self._bytes = 0
        self._submits = self._kernels = self._allocations = self._owned = self._peak = 0

    # ---- life ---------------------------------------------------------------------------------------

    def __enter__(self) -> "Batch":
        self._open("enter")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let all buffers go; handles are of no use then.  Twice is harmless.

        BatchError while an execution runs in another thread or task: await that first.
        """
        if self._closed:
            return
        with self._alone("close"):
            self._closed = True
            self._replay = self._now = None
            self._uploads.clear()
            self._owned = 0

    def __reduce__(self) -> Any:
        raise TypeError("a batch holds buffers and cannot be pickled or copied; read its results instead")

    def __repr__(self) -> str:
        how = "closed" if self._closed else f"{len(self._graph.ops)} ops"
        return f"<{self.name}, {how}>"

    def __str__(self) -> str:
        from trueno.batch.show import text

        return text(self.name, self._graph, self._schedule().steps, self._state(), self._device)

    @property
    def counts(self) -> Counts:
        """What has been uploaded, run and read since the batch was made."""
        return Counts(
            self._uploaded, self._downloaded, self._bytes, self._submits, self._kernels, self._allocations, self._peak
        )

    def _open(self, what: str) -> None:
        if self._closed:
            raise BatchError(f"{what}: this batch is closed; record in a new trueno.Batch()")

    def _alone(self, what: str) -> "_Alone":
        return _Alone(self._busy, what)

    # ---- uploads ------------------------------------------------------------------------------------

    def upload(self, x: Any) -> Handle:
        """A handle of `x`: an array, a list (of float32), a number, or an array of the backend on which this runs.

        float32, float64, or whole numbers for indices.  DtypeError, DeviceError.
        """
        self._open("upload")
        there = home(x)
        if there is not None and there is not self._device:
            if self._fixed or self._uploads:
                where = self._device.name if self._device else "the host"
                raise DeviceError(
                    f"upload: x is on {there.name}, but this batch runs on {where}; bring it home: trueno.numpy(x)"
                )
            self._device, self._fixed = there, True  # compute follows data
        self._fixed = True
        array = x if there is not None else plain(x)
        return self._new(array, there is not None)

    def _new(self, array: Any, there: bool) -> Handle:
        """A new upload; nothing of it is left if the device has no room."""
        v = self._graph.upload(tuple(array.shape), np.dtype(array.dtype))
        try:
            self._put(v, array, there)
        except BaseException:
            self._graph.values.pop()
            raise
        return self._handle(v)

    def update(self, h: Handle, x: Any) -> None:
        """Put another array of the same shape and dtype behind an upload; the next execution computes with it."""
        v = self._value("update", "h", h)
        value = self._graph.values[v]
        if value.maker >= 0:
            raise ParameterError(f"update: h is a result of {self._graph.ops[value.maker].op.name}, not an upload")
        there = home(x)
        if there is not None and there is not self._device:
            raise DeviceError(f"update: x is on {there.name}, where this batch is not; bring it home: trueno.numpy(x)")
        array = x if there is not None else plain(x)
        if tuple(array.shape) != value.shape:
            raise ShapeError(f"update: x has shape {tuple(array.shape)}, but h has {value.shape}; record a new batch")
        if np.dtype(array.dtype) != value.dtype:
            raise DtypeError(f"update: x is {np.dtype(array.dtype)}, but h is {value.dtype}; convert it with .astype")
        with self._alone("update"):
            self._put(v, array, there is not None)
            self._changed = True
            if self._replay is not None and v < self._planned:
                self._replay.rebind(v, self._uploads)

    def _put(self, v: int, array: Any, there: bool) -> None:
        """Set the array of an upload: the caller's own on the host, a copy on a device."""
        if self._device is not None and not there:
            backend = self._backend()
            assert backend is not None
            old = self._uploads.get(v)
            with telling("upload", backend.name):
                if old is not None and hasattr(backend, "write"):
                    transfer.write(backend, array, old, "Batch")
                else:
                    self._uploads[v] = transfer.upload(backend, array, "Batch")
                    self._allocations += 1
                    if old is None:
                        self._own(array.nbytes)
        else:
            self._uploads[v] = array
        if not there:
            self._uploaded += 1
            self._bytes += array.nbytes

    def _own(self, nbytes: int) -> None:
        self._owned += nbytes
        self._peak = max(self._peak, self._owned)

    def _backend(self) -> Backend | None:
        return None if self._device is None else registry.load(self._device.name)

    def _handle(self, v: int) -> Handle:
        value = self._graph.values[v]
        handle = Handle(self, v, value.shape, value.dtype)
        self._handles.append(ref(handle))
        return handle

    def _value(self, where: str, name: str, h: Any) -> int:
        """The value of a handle of this batch."""
        self._open(where)
        if not isinstance(h, Handle):
            raise DtypeError(f"{where}: {name} is {kind(h)}; this batch works on handles: write b.upload({name})")
        if h.batch is not self:
            other = "a closed batch" if h.batch._closed else "another batch"
            raise BatchError(f"{where}: {name} is a handle of {other}; b.upload(other.read({name})) brings it over")
        return h.value

    # ---- recording ----------------------------------------------------------------------------------

    def _record(self, op: Op, operands: tuple[Any, ...], scalars: dict[str, Any]) -> Any:
        """Append a call of `op`; its handle, or one for each result."""
        self._open(op.name)
        axis, keepdims = scalars.pop("axis", -1), scalars.pop("keepdims", False)
        params, static = coerce_params(op, scalars)
        given: list[int | Number] = []
        first: tuple[str, np.dtype[Any]] | None = None
        for spec, x in zip(op.signature.inputs, operands, strict=True):
            if isinstance(x, (float, int, np.floating, np.integer)) and not isinstance(x, bool):
                given.append(Number(x))  # type: ignore[arg-type]
                continue
            v = self._value(op.name, spec.name, x)
            given.append(v)
            dtype = self._graph.values[v].dtype
            if spec.index != (dtype == np.int64):
                wanted = "indices are int64" if spec.index else "float32 or float64 are taken"
                raise DtypeError(f"{op.name}: {spec.name} is {dtype}; {wanted}")
            if spec.index:
                continue
            if first is not None and first[1] != dtype:
                raise DtypeError(
                    f"{op.name}: {spec.name} is {dtype}, but {first[0]} is {first[1]}; convert one of them"
                )
            first = first or (spec.name, dtype)
        if first is None:
            raise DtypeError(f"{op.name}: no operand is a handle that says float32 or float64; call trueno.{op.name}")
        for i, (spec, item) in enumerate(zip(op.signature.inputs, given, strict=True)):
            if isinstance(item, Number):
                given[i] = self._number(op, spec.index, item.value, first[1])
        made = self._graph.record(op, tuple(given), first[1], params, static, axis, keepdims)
        handles = tuple(map(self._handle, made))
        return handles[0] if len(handles) == 1 else handles

    def _number(self, op: Op, index: bool, x: Any, dtype: np.dtype[Any]) -> "int | Number":
        """A number beside handles: a parameter of a row program, an upload for any other op."""
        array = np.asarray(x, np.int64) if index else number(op, x, dtype)
        if not op.structured:
            return Number(float(array))
        return self._new(array, False).value

    def keep(self, h: Handle) -> Handle:
        """Have `execute()` compute `h` though other ops use it, so that reading it costs nothing more."""
        v = self._value("keep", "h", h)
        if v not in self._kept:
            self._kept.add(v)
            if self._graph.values[v].maker >= 0 and self._replay and v not in self._replay.schedule.results:
                self._planned = 0
        return h

    # ---- running ------------------------------------------------------------------------------------

    def execute(self) -> None:
        """Run what was recorded.  The first error ends it and names its op; uploads intact, and it may run again.

        BatchError while another execution runs.
        """
        if not self._busy.acquire(False):
            raise BatchError("execute: this batch is being executed; await that first")
        try:
            self._execute(None)
        finally:
            self._busy.release()

    async def execute_async(self) -> None:
        """The same in a worker thread, so that the event loop goes on.

        Cancelled, it ends after the kernel that runs, and only then raises: the batch can be executed again or closed.
        """
        self._open("execute_async")
        guard = self._alone("execute_async")
        guard.__enter__()
        stop: list[bool] = []
        try:
            work = asyncio.ensure_future(asyncio.to_thread(self._execute, lambda: bool(stop)))
            cancelled: asyncio.CancelledError | None = None
            while not work.done():
                try:
                    await asyncio.shield(work)
                except asyncio.CancelledError as error:
                    cancelled = error
                    stop.append(True)
                except Exception:  # of the work itself, and told below
                    break
            if cancelled is not None:
                work.exception()
                raise cancelled
            work.result()
        finally:
            guard.__exit__()

    def _execute(self, stopped: Any) -> None:
        self._open("execute")
        replay = self._replay
        if replay is None or self._planned != len(self._graph.values):
            replay = self._plan()
        now = state.current.get()
        known = self._now
        if known is None or known[0] is not now:
            known = self._now = (now, self._state())
        self._done = False
        replay.run(known[1], stopped)
        self._done, self._changed = True, False
        if count := len(replay.schedule.steps):
            self._submits += 1
            self._kernels += count

    def _state(self) -> state.State:
        return state.choosing(self._asked, "trueno.Batch")

    def _wanted(self) -> list[int]:
        """Results that somebody can still read and that no op which runs takes in, and all that are kept."""
        used: set[int] = set()
        wanted = []
        for entry in reversed(self._graph.ops):
            found = [v for v in entry.results if v in self._kept or (v not in used and self._handles[v]() is not None)]
            wanted += found
            if found or any(v in used for v in entry.results):
                used.update(entry.inputs)
        return wanted

    def _schedule(self) -> Any:
        self._open("print")
        if self._replay is not None and self._planned == len(self._graph.values):
            return self._replay.schedule
        return schedule(self._graph, self._wanted(), self._device.name if self._device else "host", self._asked)

    def _plan(self) -> Replay:
        """Schedule what was recorded so far, and make its buffers."""
        if self._replay is not None:
            self._owned -= self._replay.schedule.buffers.nbytes
        self._replay, self._done = None, False
        found = schedule(self._graph, self._wanted(), self._device.name if self._device else "host", self._asked)
        self._replay = self._with_buffers(found)
        self._planned = len(self._graph.values)
        return self._replay

    def _with_buffers(self, found: Any) -> Replay:
        replay = Replay(self._graph, found, self._uploads, self._backend())
        self._allocations += len(found.buffers.sizes)
        self._own(found.buffers.nbytes)
        return replay

    # ---- reading ------------------------------------------------------------------------------------

    def read(self, h: Handle, out: np.ndarray[Any, Any] | None = None) -> Any:
        """The array of a handle, copied from the batch, into `out` if given; a NumPy scalar where the op gives one.

        Of a handle that other ops took in, it is computed now.  BatchError before `execute()`, and where it would have
        to be computed from uploads that have changed since.
        """
        v = self._value("read", "h", h)
        with self._alone("read"):
            array = self._found(v)
            backend = self._backend()
            if backend is None:
                if out is not None:
                    fits(array, out)
                    np.copyto(out, array)
                result = np.array(array) if out is None else out
            else:
                if out is not None:
                    fits(array, out)
                with telling("read", backend.name):
                    result = transfer.download(backend, array, out, "Batch")
            self._downloaded += 1
            self._bytes += result.nbytes
        return result if result.ndim or out is not None else result[()]

    def _found(self, v: int) -> Any:
        value = self._graph.values[v]
        if value.maker < 0:
            return self._uploads[v]
        op = self._graph.ops[value.maker].op.name
        if not self._done or self._replay is None or v >= self._planned:
            raise BatchError(f"read: h, a result of {op}, was not executed yet; call b.execute() first")
        if v in self._replay.schedule.results:
            return self._replay.arrays[v]
        if self._changed:
            raise BatchError(
                f"read: h, a result of {op}, went into other ops, and its uploads have changed since; "
                "b.keep(h) before b.execute() has it computed"
            )
        found = schedule(self._graph, [v], self._device.name if self._device else "host", self._asked)
        replay = self._with_buffers(found)
        try:
            replay.run(self._state())
        finally:
            self._owned -= found.buffers.nbytes
        self._submits += 1
        self._kernels += len(found.steps)
        return replay.arrays[v]

    # ---- the ops ------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        """The table's ops become methods at first use."""
        op = TABLE.get(ALIASES.get(name, name))
        if op is None or name.startswith("_"):
            known = [*TABLE, *ALIASES, *METHODS]
            raise AttributeError(f"Batch has no op or method {name!r}{suggestion(name, known)}")
        setattr(Batch, name, method(op))
        return getattr(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *TABLE, *ALIASES})


METHODS = ("upload", "update", "keep", "execute", "execute_async", "read", "close", "counts")


class _Alone:
    """Inside, nobody else runs the batch."""

    __slots__ = ("_lock", "_what")

    def __init__(self, lock: Lock, what: str) -> None:
        self._lock = lock
        self._what = what

    def __enter__(self) -> None:
        if not self._lock.acquire(False):
            raise BatchError(f"{self._what}: this batch is being executed; await that first")

    def __exit__(self, *_: object) -> None:
        self._lock.release()


__all__ = ["METHODS", "Batch"]
