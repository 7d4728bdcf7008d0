"""`trueno.Batch`: ops are recorded on handles, and run together when the batch is executed."""

from threading import Lock
from typing import Any
from weakref import ref

import numpy as np

from trueno.aio.turns import waits
from trueno.batch.alone import BUSY, Alone
from trueno.batch.counts import Counts, Tally
from trueno.batch.graph import Graph, Number
from trueno.batch.handle import Handle
from trueno.batch.incoming import feeds, kind, replaces, taken
from trueno.batch.later import later
from trueno.batch.methods import method
from trueno.batch.reading import Reading
from trueno.batch.run import Replay
from trueno.batch.steps import Schedule, fusing, names, schedule
from trueno.batch.uploads import Uploads
from trueno.batch.views import VIEW, viewable
from trueno.discovery import registry
from trueno.dispatch import state, transfer
from trueno.dispatch.coerce import coerce_params, number, unpack
from trueno.errors import BatchError, DtypeError, ParameterError
from trueno.hints import lacking
from trueno.ops import ALIASES, TABLE
from trueno.ops.op import Op


class Batch(Reading):
    """Records ops and runs them as few kernels: `trueno.Batch("simd")`, or without a name to choose automatically.

    Every op of the table is a method with its own signature, without `out`, on handles and numbers.  `execute()`
    computes each handle that you still hold and that no op in the batch uses, and those that you `keep`; it leaves
    out results that no caller can read any more.  `read(h)` of a handle that was fused away computes it then, from the
    same uploads.  Executing again recomputes from the uploads' current values, without compiling or allocating.

    On a backend with arrays of its own, arrays stay there between upload and read.  A batch borrows, without a copy, an
    array whose layout kernels accept, on the host and on that backend: a change of its values counts at the next
    execution, so change none during an execution, nor before you read a handle that was fused away; `update` replaces
    an array.  A batch never writes to an array of yours, but for a cache that a recorded op
    updates.  It owns its buffers until it is closed; it is for one thread at a time, and records no op while it runs.
    BatchError for a call that is too early or too late, or for a handle of another batch.
    """

    def __init__(self, backend: str | None = None) -> None:
        if backend is not None and not isinstance(backend, str):
            raise ParameterError(f'Batch: {backend!r} is not the name of a backend; write trueno.Batch("simd")')
        self._asked: tuple[str, ...] = () if backend is None else (registry.named(backend),)
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
        self._feeds: dict[int, int] = {}  # uploads, and the results that they get when a run has ended
        self._replay: Replay | None = None
        self._planned = 0  # the number of values in the graph when the replay was made
        self._stale = False  # whether the replay lacks a value that is to be kept, or feeds another upload
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
        except BatchError:  # it runs: the error inside explains more, and the end of that run releases the buffers
            if kind is None:
                raise
            self._closed = True

    def close(self) -> None:
        """Release all buffers; handles cannot be used after that.  Closing again has no effect.

        BatchError while an execution runs in another thread or task: await that first.
        """
        if self._closed:
            return
        with self._alone("close"):
            self._closed = True

    def _free(self) -> None:
        """End a run: release the lock, and the buffers if the batch is closed."""
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
        from trueno.batch.show import text  # start-up

        if self._closed:
            return repr(self)
        return text(self.name, self._graph, self._schedule().steps, self._state(), self._uploads.device)

    def to_mermaid(self) -> str:
        """The plan as a flowchart in Mermaid's language, which GitHub, GitLab, JupyterLab and many editors draw."""
        self._open("to_mermaid")
        return self._drawn("mermaid")

    def _repr_svg_(self) -> str | None:
        """The plan as a notebook shows it; None for a closed batch."""
        return None if self._closed else self._drawn("svg")

    def _drawn(self, how: str) -> str:
        from trueno.batch.draw import drawn  # start-up

        return drawn(how, self.name, self._graph, self._schedule(), self._state())

    @property
    def counts(self) -> Counts:
        """The counts of uploads, runs and reads since the batch was made."""
        return self._tally.counts()

    def _open(self, what: str) -> None:
        if self._closed:
            raise BatchError(f"{what}: this batch is closed; record in a new trueno.Batch()")

    def _quiet(self, what: str) -> None:
        """Raise BatchError unless the batch is open and no execution runs."""
        self._open(what)
        if self._busy.locked():
            raise BatchError(f"{what}: {BUSY}")

    def _alone(self, what: str) -> Alone:
        return Alone(self, what)

    # ---- uploads ------------------------------------------------------------------------------------

    def upload(self, x: Any, *, live: bool = False) -> Handle:
        """A handle of `x`: an array, a list (of float32), a number, or an array of the backend on which this runs.

        Its dtype is float32, float64, or, for indices, an integer type; `read` returns the bytes of a QuantizedMatrix.
        live: on a device, too, what the array of the host holds at each execution counts.  The small arrays of a batch
        go there in one transfer.  DtypeError for another dtype, DeviceError for an array of another device.
        """
        self._quiet("upload")
        array = self._uploads.take("upload", x)
        _, blocks, columns = getattr(x, "_blocks", None) or (None, "", False)
        if live and array is not x:
            raise ParameterError(f"upload: {kind(x)} is not used as it is, so it cannot be live; give a NumPy array")
        return self._new(array, x, blocks, columns, live)

    def _new(self, array: Any, given: Any = None, blocks: str = "", columns: bool = False, live: bool = False
             ) -> Handle:  # fmt: skip
        """A handle of a new upload; if the device has no memory for it, the graph is unchanged."""
        v = self._graph.upload(tuple(array.shape), np.dtype(array.dtype), blocks, columns)
        try:
            self._uploads.put(v, array, given, live)
        except BaseException:
            self._graph.values.pop()
            raise
        return self._handle(v)

    def update(self, h: Handle, x: Any) -> None:
        """Replace the array of an upload by one of the same shape and dtype; the next execution computes with it."""
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

    def feed(self, h: Handle, result: Handle) -> None:
        """Let an upload have the contents of a result when an execution has ended: the next one starts from them.

        So a device goes from step to step without the host.  `update` sets what the first one starts from.
        """
        v, made = self._value("feed", "h", h), self._value("feed", "result", result)
        feeds(self._graph, v, made)
        with self._alone("feed"):
            self._uploads.own(v)
            self._feeds[v], self._stale = made, True
            self._kept.add(made)

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
            raise BatchError(f"{where}: {name} is a handle of {other}; b.upload(other.read({name})) copies it")
        return h.value

    # ---- recording ----------------------------------------------------------------------------------

    def _record(self, op: Op, operands: tuple[Any, ...], scalars: dict[str, Any]) -> Any:
        """Append a call of `op`, and return its handle, or one for each result."""
        self._quiet(op.name)
        axis, keepdims = (-1, False) if op.structured else (scalars.pop("axis", -1), scalars.pop("keepdims", False))
        operands, scalars = unpack(op, operands, scalars)
        params, static = coerce_params(op, scalars)
        arguments, dtype = taken(op, operands, self._graph, self._value)
        before = len(self._handles)
        try:
            for i, (spec, item) in enumerate(zip(op.signature.inputs, arguments, strict=True)):
                if isinstance(item, Number):
                    arguments[i] = self._number(op, spec.index, item.value, dtype)
            values = self._graph.record(op, tuple(arguments), dtype, params, static, axis, keepdims)
        except BaseException:  # no op uses the numbers that were uploaded for this call
            for v in range(before, len(self._handles)):
                self._uploads.remove(v)
            del self._handles[before:], self._graph.values[before:]
            raise
        self._kept.update(values if op.updates else ())
        handles = tuple(map(self._handle, values))
        return handles[0] if len(handles) == 1 else handles

    def call(self, op: Op, *operands: Any, **parameters: Any) -> Any:
        """Record an op that is not in the table: one that a backend has declared for itself and has a kernel for.

        ParameterError for what is not an op, for another number of operands, and for unknown parameters; an execution
        raises where the batch's backend has no kernel.
        """
        if not isinstance(op, Op) or len(operands) != len(op.operands):
            wanted = f"its operands, {', '.join(op.operands)}" if isinstance(op, Op) else "an op of a backend"
            raise ParameterError(
                f"Batch.call: {getattr(op, 'name', op)!r} with {len(operands)} operands; give {wanted}"
            )
        defaults = {p.name: p.default for p in op.params}
        if unknown := [name for name in parameters if name not in defaults]:
            raise ParameterError(f"Batch.call: {op.name} has no parameter {unknown[0]!r}; it has {', '.join(defaults)}")
        return self._record(op, operands, defaults | parameters)

    def _view(self, h: Handle, shape: tuple[int, ...]) -> Handle:
        v = self._value("reshape", "h", h)
        viewable(self._graph.values[v])
        return self._handle(self._graph.view(VIEW, v, shape))

    def _number(self, op: Op, index: bool, x: Any, dtype: np.dtype[Any]) -> "int | Number":
        """A number among handles: a parameter of a row program, an upload for any other op."""
        array = np.asarray(x, np.int64) if index else number(op, x, dtype)
        if not op.structured:
            return Number(float(array))
        return self._new(array).value

    def keep(self, h: Handle) -> Handle:
        """Make `execute()` compute `h` even if other ops use it, so that `read` need not compute it."""
        v = self._value("keep", "h", h)
        if v not in self._kept:
            self._kept.add(v)
            if self._graph.values[v].maker >= 0 and self._replay and v not in self._replay.schedule.results:
                self._stale = True
        return h

    # ---- running ------------------------------------------------------------------------------------

    def execute(self, *, wait: bool = True) -> None:
        """Run the recorded ops.  The first error ends the run and names its op; uploads stay, and it may run again.

        wait: until a device has run them; without it, `read` waits, and errors of the device come later, too.
        BatchError while another execution runs.
        """
        if not self._busy.acquire(False):
            raise BatchError(f"execute: {BUSY}")
        try:
            self._execute(None, wait)
        finally:
            self._free()

    async def execute_async(self) -> None:
        """Run the recorded ops in a worker thread, so that the event loop continues.

        In a page without threads, where calls may not wait, only `read_async` waits.
        After a cancellation it waits for the kernel that runs, and only then raises: the batch can be executed again or
        closed.
        """
        self._open("execute_async")
        if not self._busy.acquire(False):
            raise BatchError(f"execute_async: {BUSY}")
        await later(lambda given_up: self._execute(lambda: self._closed or given_up(), waits()), self._free)

    def _execute(self, stopped: Any, wait: bool = True) -> None:
        self._open("execute")
        now = state.current.get()
        cached = self._now
        if cached is None or cached[0] is not now:
            cached = self._now = (now, self._state())
        if self._outdated(cached[1]):
            self._plan()
        replay = self._replay
        assert replay is not None
        self._done = False
        self._uploads.refresh()
        self._run(replay, cached[1], stopped, wait)
        self._done, self._changed = True, False

    def _run(self, replay: Replay, now: state.State, stopped: Any = None, wait: bool = True) -> None:
        before = transfer.here.moved
        try:
            replay.run(now, stopped, wait)
        finally:
            if (after := transfer.here.moved) is not before:
                self._tally.moved(before, after)
        self._tally.ran(len(replay.schedule.steps))

    def _state(self) -> state.State:
        return state.choosing(self._asked, "trueno.Batch")

    def _wanted(self) -> list[int]:
        """The results that a caller can still read and that no op of the run uses, and all that are kept."""
        used: set[int] = set()
        wanted = []
        for entry in reversed(self._graph.ops):
            called = entry.form != "view" and TABLE.get(entry.op.name) is not entry.op  # it may do more than compute
            live = [v for v in entry.results
                    if v in self._kept or (v not in used and (called or self._handles[v]() is not None))]  # fmt: skip
            wanted += live
            if live or any(v in used for v in entry.results):
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
        """Whether the plan lacks recorded ops, or was made for other backends, which may fuse less."""
        replay = self._replay
        if replay is None or self._stale or self._planned != len(self._graph.values):
            return True
        plan = replay.schedule
        return replay.stale(now) and (plan.names != names(self._asked) or plan.fused != fusing())

    def _plan(self) -> None:
        """Schedule the ops recorded so far, and make their buffers, after releasing those of the previous plan."""
        if self._replay is not None:
            self._tally.drop(self._replay.schedule.buffers.nbytes)
        self._replay, self._done = None, False
        self._replay = self._with_buffers(self._scheduled(self._wanted()), self._feeds)
        self._planned, self._stale = len(self._graph.values), False

    def _with_buffers(self, found: Schedule, feeding: dict[int, int] | None = None) -> Replay:
        replay = Replay(self._graph, found, self._uploads.arrays, self._uploads.backend(), feeding or {})
        self._tally.hold(found.buffers.nbytes, len(found.buffers.sizes))
        return replay

    # ---- the ops ------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        """Create the method of an op of the table at its first use."""
        op = TABLE.get(ALIASES.get(name, name))
        if op is None or name.startswith("_"):
            known = [*TABLE, *ALIASES, *METHODS]
            raise AttributeError(lacking("Batch has no op or method", name, known, arrays=False))
        setattr(Batch, name, method(op))
        return getattr(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *TABLE, *ALIASES})


METHODS = ("call", "upload", "update", "feed", "keep", "execute", "execute_async", "read", "fetch", "close", "counts",
           "to_mermaid")  # fmt: skip


__all__ = ["METHODS", "Batch"]
