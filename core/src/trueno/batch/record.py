"""`trueno.Batch`: ops are recorded on handles, and run together when the batch is executed."""

from threading import Lock
from typing import Any
from weakref import ref

import numpy as np

from trueno.batch.counts import Counts, Tally
from trueno.batch.graph import Graph, Number
from trueno.batch.handle import Handle
from trueno.batch.incoming import fits, kind, replaces, taken
from trueno.batch.later import later
from trueno.batch.methods import method
from trueno.batch.run import Replay
from trueno.batch.steps import Schedule, names, schedule
from trueno.batch.uploads import Uploads
from trueno.discovery import registry
from trueno.dispatch import state, transfer
from trueno.dispatch.coerce import coerce_params, number, unpack
from trueno.dispatch.fallback import wrapping_errors
from trueno.errors import BatchError, DtypeError, ParameterError, suggestion
from trueno.ops import ALIASES, TABLE
from trueno.ops.op import Op


class Batch:
    """Records ops and runs them as few kernels: `trueno.Batch("simd")`, or without a name to choose automatically.

    Every op of the table is a method with its own signature, without `out`, on handles and numbers.  `execute()`
    computes each handle that you still hold and that nothing in the batch uses, and those that you `keep`; it leaves
    out results that cannot be read any more.  `read(h)` of a handle that was fused away computes it then, from the same
    uploads.  Executing again recomputes from the uploads as they are by then, without compiling or allocating.

    On a backend with arrays of its own everything stays there between upload and read.  An array that needs no other
    layout is borrowed and not copied, on the host and on that backend: what you change in it counts at the next run,
    so change nothing while one runs, nor before you read what was fused away; `update` gives another array.  No array
    that you gave is ever written.  The batch owns its buffers until it is closed; it is for one thread at a time, and
    nothing is recorded while it runs.  BatchError for what comes too early, too late, or from another batch.
    """

    def __init__(self, backend: str | None = None) -> None:
        if backend is not None and not isinstance(backend, str):
            raise ParameterError(f'Batch: {backend!r} is not the name of a backend; write trueno.Batch("simd")')
        self._asked: tuple[str, ...] = () if backend is None else (backend.lower(),)
        on = names(self._asked)
        for name in on:
            registry.load(name)
        first = registry.entries()[on[0]] if on else None
        self._tally = Tally()
        self._uploads = Uploads(first if first and first.foreign else None, bool(on), self._tally)
        self.name = f"Batch({backend!r})" if backend else "Batch()"
        self._graph = Graph()
        self._handles: list[ref[Handle]] = []
        self._kept: set[int] = set()
        self._replay: Replay | None = None
        self._planned = 0  # values that the replay knows of
        self._stale = False  # whether it lacks one that is to be kept
        self._done = False  # whether the replay's results can be read
        self._changed = False  # whether uploads are newer than the results
        self._now: tuple[state.State, state.State] | None = None
        self._closed = False
        self._busy = Lock()

    # ---- life ---------------------------------------------------------------------------------------

    def __enter__(self) -> "Batch":
        self._open("enter")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except BatchError:  # it runs: what went wrong inside says more, and the running execution releases the buffers
            if kind is None:
                raise
            self._closed = True

    def close(self) -> None:
        """Let all buffers go; handles are of no use then.  Twice is harmless.

        BatchError while an execution runs in another thread or task: await that first.
        """
        if self._closed:
            return
        with self._alone("close"):
            self._closed = True

    def _free(self) -> None:
        """The execution has ended."""
        if self._closed:
            self._replay = self._now = None
            self._uploads.clear()
            self._tally.drop_all()
        self._busy.release()

    def __reduce__(self) -> Any:
        raise TypeError("a batch holds buffers and cannot be pickled or copied; read its results instead")

    def __repr__(self) -> str:
        how = "closed" if self._closed else f"{len(self._graph.ops)} ops"
        return f"<{self.name}, {how}>"

    def __str__(self) -> str:
        from trueno.batch.show import text

        if self._closed:
            return repr(self)
        return text(self.name, self._graph, self._schedule().steps, self._state(), self._uploads.device)

    @property
    def counts(self) -> Counts:
        """What has been uploaded, run and read since the batch was made."""
        return self._tally.counts()

    def _open(self, what: str) -> None:
        if self._closed:
            raise BatchError(f"{what}: this batch is closed; record in a new trueno.Batch()")

    def _quiet(self, what: str) -> None:
        """BatchError unless the batch is open and does not run."""
        self._open(what)
        if self._busy.locked():
            raise BatchError(f"{what}: {BUSY}")

    def _alone(self, what: str) -> "_Alone":
        return _Alone(self, what)

    # ---- uploads ------------------------------------------------------------------------------------

    def upload(self, x: Any) -> Handle:
        """A handle of `x`: an array, a list (of float32), a number, or an array of the backend on which this runs.

        float32, float64, or whole numbers for indices; a QuantizedMatrix, which is read back as its bytes.  DtypeError,
        DeviceError.
        """
        self._quiet("upload")
        array = self._uploads.take("upload", x)
        _, blocks, columns = getattr(x, "_blocks", None) or (None, "", False)
        return self._new(array, x, blocks, columns)

    def _new(self, array: Any, given: Any = None, blocks: str = "", columns: bool = False) -> Handle:
        """A new upload; nothing of it is left if the device has no room."""
        v = self._graph.upload(tuple(array.shape), np.dtype(array.dtype), blocks, columns)
        try:
            self._uploads.put(v, array, given)
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
        array = self._uploads.take("update", x)
        replaces(value, array, x)
        with self._alone("update"):
            self._changed = True
            before = self._uploads.arrays.get(v)
            self._uploads.put(v, array, x)
            if self._uploads.arrays[v] is not before and self._replay is not None and v < self._planned:
                self._replay.rebind(v, self._uploads.arrays)

    def _handle(self, v: int) -> Handle:
        value = self._graph.values[v]
        handle = Handle(self, v, value.shape, value.dtype, value.blocks, value.columns)
        self._handles.append(ref(handle))
        return handle

    def _value(self, where: str, name: str, h: Any) -> int:
        """The value of a handle of this batch."""
        self._quiet(where)
        if not isinstance(h, Handle):
            raise DtypeError(f"{where}: {name} is {kind(h)}; this batch works on handles: write b.upload({name})")
        if h.batch is not self:
            other = "a closed batch" if h.batch._closed else "another batch"
            raise BatchError(f"{where}: {name} is a handle of {other}; b.upload(other.read({name})) brings it over")
        return h.value

    # ---- recording ----------------------------------------------------------------------------------

    def _record(self, op: Op, operands: tuple[Any, ...], scalars: dict[str, Any]) -> Any:
        """Append a call of `op`; its handle, or one for each result."""
        self._quiet(op.name)
        axis, keepdims = scalars.pop("axis", -1), scalars.pop("keepdims", False)
        operands, scalars = unpack(op, operands, scalars)
        params, static = coerce_params(op, scalars)
        given, dtype = taken(op, operands, self._graph, self._value)
        before = len(self._handles)
        try:
            for i, (spec, item) in enumerate(zip(op.signature.inputs, given, strict=True)):
                if isinstance(item, Number):
                    given[i] = self._number(op, spec.index, item.value, dtype)
            made = self._graph.record(op, tuple(given), dtype, params, static, axis, keepdims)
        except BaseException:  # the numbers that were uploaded for it are of no use
            for v in range(before, len(self._handles)):
                self._uploads.remove(v)
            del self._handles[before:], self._graph.values[before:]
            raise
        handles = tuple(map(self._handle, made))
        return handles[0] if len(handles) == 1 else handles

    def _number(self, op: Op, index: bool, x: Any, dtype: np.dtype[Any]) -> "int | Number":
        """A number beside handles: a parameter of a row program, an upload for any other op."""
        array = np.asarray(x, np.int64) if index else number(op, x, dtype)
        if not op.structured:
            return Number(float(array))
        return self._new(array).value

    def keep(self, h: Handle) -> Handle:
        """Have `execute()` compute `h` though other ops use it, so that reading it costs nothing more."""
        v = self._value("keep", "h", h)
        if v not in self._kept:
            self._kept.add(v)
            if self._graph.values[v].maker >= 0 and self._replay and v not in self._replay.schedule.results:
                self._stale = True
        return h

    # ---- running ------------------------------------------------------------------------------------

    def execute(self) -> None:
        """Run what was recorded.  The first error ends it and names its op; uploads intact, and it may run again.

        BatchError while another execution runs.
        """
        if not self._busy.acquire(False):
            raise BatchError(f"execute: {BUSY}")
        try:
            self._execute(None)
        finally:
            self._free()

    async def execute_async(self) -> None:
        """The same in a worker thread, so that the event loop goes on.

        Cancelled, it ends after the kernel that runs, and only then raises: the batch can be executed again or closed.
        """
        self._open("execute_async")
        if not self._busy.acquire(False):
            raise BatchError(f"execute_async: {BUSY}")
        await later(lambda given_up: self._execute(lambda: self._closed or given_up()), self._free)

    def _execute(self, stopped: Any) -> None:
        self._open("execute")
        now = state.current.get()
        known = self._now
        if known is None or known[0] is not now:
            known = self._now = (now, self._state())
        if self._outdated(known[1]):
            self._plan()
        replay = self._replay
        assert replay is not None
        self._done = False
        self._run(replay, known[1], stopped)
        self._done, self._changed = True, False

    def _run(self, replay: Replay, now: state.State, stopped: Any = None) -> None:
        before = transfer.here.moved
        try:
            replay.run(now, stopped)
        finally:
            if (after := transfer.here.moved) is not before:
                self._tally.moved(before, after)
        self._tally.ran(len(replay.schedule.steps))

    def _state(self) -> state.State:
        return state.choosing(self._asked, "trueno.Batch")

    def _wanted(self) -> list[int]:
        """Results that can still be read and that no op which runs takes in, and all that are kept."""
        used: set[int] = set()
        wanted = []
        for entry in reversed(self._graph.ops):
            found = [v for v in entry.results if v in self._kept or (v not in used and self._handles[v]() is not None)]
            wanted += found
            if found or any(v in used for v in entry.results):
                used.update(entry.inputs)
        return wanted

    def _schedule(self) -> Schedule:
        if self._replay is not None and not self._stale and self._planned == len(self._graph.values):
            return self._replay.schedule
        return self._scheduled(self._wanted())

    def _scheduled(self, wanted: list[int]) -> Schedule:
        device = self._uploads.device
        return schedule(self._graph, wanted, device.name if device else "host", self._asked)

    def _outdated(self, now: state.State) -> bool:
        """Whether what is planned is not what was recorded, or was planned for other backends, which may fuse less."""
        replay = self._replay
        if replay is None or self._stale or self._planned != len(self._graph.values):
            return True
        return replay.stale(now) and replay.schedule.names != names(self._asked)

    def _plan(self) -> None:
        """Schedule what was recorded so far, and make its buffers; those of the plan before are gone by then."""
        if self._replay is not None:
            self._tally.drop(self._replay.schedule.buffers.nbytes)
        self._replay, self._done = None, False
        self._replay = self._with_buffers(self._scheduled(self._wanted()))
        self._planned, self._stale = len(self._graph.values), False

    def _with_buffers(self, found: Schedule) -> Replay:
        replay = Replay(self._graph, found, self._uploads.arrays, self._uploads.backend())
        self._tally.hold(found.buffers.nbytes, len(found.buffers.sizes))
        return replay

    # ---- reading ------------------------------------------------------------------------------------

    def read(self, h: Handle, out: np.ndarray[Any, Any] | None = None) -> Any:
        """The array of a handle, copied from the batch, into `out` if given; a NumPy scalar where the op gives one.

        Of a handle that other ops took in, it is computed now.  BatchError before `execute()`, and where it would have
        to be computed from uploads that have changed since.
        """
        v = self._value("read", "h", h)
        with self._alone("read"):
            if out is not None:
                fits(self._graph.values[v], out)
            array = self._found(v)
            backend = self._uploads.backend()
            if backend is not None:
                with wrapping_errors("read", backend.name):
                    result = transfer.download(backend, array, out, "Batch")
            elif out is None:
                result = np.array(array)
            else:
                np.copyto(out, array)
                result = out
            self._tally.downloads += 1
            self._tally.bytes += result.nbytes
        return result if result.ndim or out is not None else result[()]

    def _found(self, v: int) -> Any:
        value = self._graph.values[v]
        if value.maker < 0:
            return self._uploads.arrays[v]
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
        replay = self._with_buffers(self._scheduled([v]))
        try:
            self._run(replay, self._state())
        finally:
            self._tally.drop(replay.schedule.buffers.nbytes)
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


BUSY = "this batch is being executed; await that first"


class _Alone:
    """Inside, no other thread runs the batch."""

    __slots__ = ("_batch", "_what")

    def __init__(self, batch: Batch, what: str) -> None:
        self._batch = batch
        self._what = what

    def __enter__(self) -> None:
        if not self._batch._busy.acquire(False):
            raise BatchError(f"{self._what}: {BUSY}")

    def __exit__(self, *_: object) -> None:
        self._batch._free()


__all__ = ["METHODS", "Batch"]
