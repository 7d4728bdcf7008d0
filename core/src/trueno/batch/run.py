"""Replay: a flat list of kernels with their arguments, built once and called as often as the batch is executed.

From the second run on, the backend runs what it can without Python between the kernels: a device replays a recording,
and a backend on the host a sequence (`trueno.batch.host`).
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, cast

import numpy as np

from trueno.batch.graph import Graph, Number
from trueno.batch.host import check_of, sequence_of
from trueno.batch.step import Step
from trueno.batch.steps import Schedule
from trueno.discovery.protocol import Backend, DeviceBackend, Refused
from trueno.dispatch import call, state, transfer
from trueno.dispatch.axes import located
from trueno.dispatch.fallback import passes, wrap_error, wrapping_errors
from trueno.dispatch.state import State, refuse
from trueno.errors import BatchError, GuardError, KernelError, TruenoError
from trueno.events.stream import verbose

Arrays = dict[int, Any]
CANCELLED = "Batch: the execution was cancelled"
WORDS = 8
"""The most ops that an error names, of those that ran in one kernel."""


class Replay:
    """A schedule with its memory.  device: the owner of the values' arrays; None on the host.

    feeds: uploads, and the results whose contents they get when all kernels have run.
    """

    __slots__ = (
        "_args",
        "_calls",
        "_feeds",
        "_generation",
        "_kernels",
        "_recorded",
        "_runs",
        "_state",
        "_uploads",
        "_users",
        "arrays",
        "backs",
        "device",
        "graph",
        "schedule",
    )

    def __init__(self, graph: Graph, schedule: Schedule, uploads: Arrays, device: Backend | None,
                 feeds: dict[int, int]) -> None:  # fmt: skip
        self.graph = graph
        self.schedule = schedule
        self.device = device
        self._uploads, self._feeds = uploads, feeds
        with wrapping_errors("Batch", device.name if device else "the host"):
            self.backs = [_empty(device, (count,), dtype) for count, dtype in schedule.buffers.sizes]
        self.arrays: Arrays = {
            v: _shaped(self.backs[b], graph.values[v].shape) for v, b in schedule.buffers.place.items()
        }
        self._users: defaultdict[int, list[int]] = defaultdict(list)
        self._args: list[tuple[Any, ...]] = []
        for at, step in enumerate(schedule.steps):
            for v, _ in step.reads:
                self._users[self._memory(v)].append(at)
            self._args.append(self._arguments(step, uploads))
        self._state: State | None = None
        self._generation = -1
        self._kernels: list[Any] = []
        self._calls: list[tuple[Any, tuple[Any, ...]]] = []
        self._forget()

    def _forget(self) -> None:
        """Called when kernels or arrays have changed, because the recording runs the old ones."""
        self._recorded: Any = None
        self._runs = 0

    def _arguments(self, step: Step, uploads: Arrays) -> tuple[Any, ...]:
        arrays = [_shaped(self._array(v, uploads), shape) for v, shape in (*step.reads, *step.makes)]
        reads = len(step.reads)
        return (*arrays[:reads], *step.params, *arrays[reads:])

    def _array(self, v: int, uploads: Arrays) -> Any:
        place = self.schedule.buffers.place
        v = self.graph.whole(v)
        return self.backs[place[v]] if v in place else uploads[self._memory(v)]

    def _memory(self, v: int) -> int:
        """The upload whose memory a value is in, if an op updated one; else the value, or the whole of a view."""
        v = self.graph.whole(v)
        upload = self.graph.values[v].upload
        return v if upload < 0 else upload

    def rebind(self, v: int, uploads: Arrays) -> None:
        """Called when an upload has another array."""
        for at in self._users.get(v, ()):
            self._args[at] = self._arguments(self.schedule.steps[at], uploads)
        self._forget()
        if self._kernels:
            self._calls = list(zip(self._kernels, self._args, strict=True))

    def prepare(self, now: State) -> None:
        """Choose the kernels under `now`."""
        self._state, self._generation = None, -1
        self._forget()
        self._kernels = [self._kernel(step, now) for step in self.schedule.steps]
        self._calls = list(zip(self._kernels, self._args, strict=True))
        self._state, self._generation = now, state.generation

    def _kernel(self, step: Step, now: State) -> Callable[..., Any]:
        if step.call is None:
            return self._general(step, now)
        with state.entered(now):
            chosen = now.chosen(step.call)
        return chosen.kernel if chosen is not None else refuse

    def run(self, now: State, stopped: Callable[[], bool] | None = None, wait: bool = True) -> None:
        """Run every kernel; the first error ends the run and names the op.  `stopped` is called before each kernel.

        wait: until a device has run them; where a trace or guard looks at them, it is waited for in any case.
        """
        if self.stale(now):
            self._prepared(now)
        device = self.device
        if device is None:
            self._on_host(now, stopped)
            for target, source in self._feeding():
                np.copyto(target, source)
            return
        named = False  # an error of a kernel, which names its op, needs no further text
        try:
            if self._recorded is None and self._recordable(now):
                self._record(now)
            if self._recorded is not None:
                if stopped is not None and stopped():
                    named = True
                    raise BatchError(CANCELLED)
                self._recorded.replay()
            else:
                with cast(DeviceBackend, device).batch() if hasattr(device, "batch") else nullcontext():
                    named = True
                    self._each(now, stopped)
                    named = False
                self._feed()
            if wait or not self._unwatched(now):
                device.synchronize()
            self._runs += 1
        except Exception as error:
            if named and isinstance(error, TruenoError):
                raise
            raise self._deferred(error, device.name) from error

    def _feeding(self) -> Iterator[tuple[Any, Any]]:
        """The arrays of uploads that are fed, and those of the results that they get."""
        for v, result in self._feeds.items():
            target = self._uploads[v]
            yield target, _shaped(self._array(result, self._uploads), tuple(target.shape))

    def _feed(self) -> None:
        for target, source in self._feeding():
            cast(DeviceBackend, self.device).copy(source, target)

    def _on_host(self, now: State, stopped: Callable[[], bool] | None) -> None:
        """Run the steps in order, those of a sequence without Python between them."""
        if self._recorded is None and self._runs == 1 and self._unwatched(now):
            steps = self.schedule.steps
            self._recorded = sequence_of(steps, [self.where(step, now) for step in steps], self._calls)
        sequence, at = self._recorded, 0
        if sequence is not None and sequence.right():
            while at < len(self._calls):
                self._go_on(at, stopped)
                at, ours = sequence.run(at)
                if ours:
                    self._one(at, now)
                    at += 1
        else:
            self._each(now, stopped)
        self._runs += 1

    def _unwatched(self, now: State) -> bool:
        """Whether no trace or guard looks at single kernels, so that every run is the same."""
        return not (now.traced or now.guarding() or "run" in verbose())

    def _recordable(self, now: State) -> bool:
        """Whether a device can record the run: every run is the same, and no kernel uses the general path."""
        return (
            self._runs == 1
            and hasattr(self.device, "recording")
            and self._unwatched(now)
            and all(step.call is not None for step in self.schedule.steps)
        )

    def _record(self, now: State) -> None:
        """Let the device record the launches of all kernels.  If a kernel refuses or fails, there is no recording.

        The first execution created everything that kernels create at their first call.
        """
        try:
            with cast(DeviceBackend, self.device).recording() as recording:
                refused = [kernel(*args) for kernel, args in self._calls]
                self._feed()
        except Exception:  # the following execution reports the error, and its op
            return
        if not any(refused) and not self.stale(now):
            self._recorded = recording

    def repeat(self) -> None:
        """Run every kernel once more, for a device that writes down what they do; KernelError if one refuses."""
        for step, (kernel, args) in zip(self.schedule.steps, self._calls, strict=True):
            if step.call is None or kernel(*args):
                raise KernelError(f"{step.op.name}: no kernel of {cast(Backend, self.device).name} takes this call")
        self._feed()

    def array(self, v: int) -> Any:
        """The array of a value, in its shape."""
        return _shaped(self._array(v, self._uploads), self.graph.values[v].shape)

    def _deferred(self, error: Exception, name: str) -> Exception:
        """An error of all kernels together: the device does not say which one failed."""
        final = wrap_error(error, "Batch", name)
        final.add_note(
            f"in a batch, when its kernels were submitted: {_listed([s.op.name for s in self.schedule.steps])}"
        )
        return final

    def stale(self, now: State) -> bool:
        """Whether kernels must be chosen again, perhaps among other backends than those of this plan."""
        return now is not self._state or state.generation != self._generation

    def _prepared(self, now: State) -> None:
        try:
            self.prepare(now)
        except TruenoError:
            raise
        except Exception as error:
            raise KernelError(f"Batch: no kernel could be made ({type(error).__name__}: {error})") from error

    def _each(self, now: State, stopped: Callable[[], bool] | None) -> None:
        for at in range(len(self._calls)):
            self._go_on(at, stopped)
            self._one(at, now)

    def _go_on(self, at: int, stopped: Callable[[], bool] | None) -> None:
        """Raise BatchError if the execution was cancelled before this step."""
        if stopped is not None and stopped():
            error = BatchError(CANCELLED)
            error.add_note(self._told(at))
            raise error

    def _one(self, at: int, now: State) -> None:
        """Run one step; an error names its op."""
        kernel, args = self._calls[at]
        step = self.schedule.steps[at]
        try:
            if step.call is not None and step.op.check is not None and self.device is None:
                check_of(step)(*args)
            if kernel(*args):
                self._again(at, now)
        except TruenoError as error:
            if isinstance(error, GuardError) and step.call is not None:  # the general path has added the context
                located(error, step.op, tuple(self.graph.values[v].shape for v, _ in step.makes))
            error.add_note(self._told(at))
            raise
        except BaseException as error:
            if passes(error):
                raise
            self._failed(at, now, error)

    def _failed(self, at: int, now: State, error: BaseException) -> None:
        """A kernel raised: others may take the call if it refused, or if the backend was not named."""
        step = self.schedule.steps[at]
        try:
            if not isinstance(error, Refused):
                if step.call is None:
                    raise wrap_error(error, step.op.name, self.where(step, now)) from error
                with state.entered(now):
                    now.failed(step.call, self.where(step, now), error)
            self._again(at, now, error)
        except TruenoError as final:
            final.add_note(self._told(at))
            raise

    def _again(self, at: int, now: State, cause: BaseException | None = None) -> None:
        """A kernel refused: the next candidates get the call."""
        step = self.schedule.steps[at]
        if step.call is None:
            raise KernelError(f"{step.op.name}: the general path refused the call ({cause})") from cause
        if step.op.check is not None:  # which says what is wrong, if values are
            self._general(step, now)(*self._calls[at][1])
            return
        with state.entered(now):
            now.run(step.call, self._calls[at][1])

    def _told(self, at: int) -> str:
        step = self.schedule.steps[at]
        ops = f"op {step.ops[0]}" if len(step.ops) == 1 else f"{len(step.ops)} ops in one kernel"
        names = _listed([self.graph.ops[i].op.name for i in step.ops])
        return f"in a batch, kernel {at + 1} of {len(self.schedule.steps)}, {ops}: {names}"

    def where(self, step: Step, now: State) -> str:
        """The backend that should run a step."""
        if step.call is None:
            return self.device.name if self.device else "the general path"
        decision, _ = now._choice(step.call)
        return decision.chosen

    def _general(self, step: Step, now: State) -> Callable[..., Any]:
        """A stand-in kernel for operands that no kernel can use in their layout."""
        entry, op, device = step.entry, step.op, self.device
        scalars = dict(zip(op.symbolic, entry.params, strict=True)) | entry.static
        if op.over is not None and not op.structured:
            scalars["axis"] = entry.axis
            if op.reduces:
                scalars["keepdims"] = entry.keepdims
        inputs, outs = len(step.reads), len(step.makes)

        def through(*args: Any) -> int:
            arrays = iter(args[:inputs])
            operands = tuple(x.value if isinstance(x, Number) else next(arrays) for x in entry.operands)
            targets = args[-outs:]
            with state.entered(now):
                if device is None or op.updates:
                    call.call(op, operands, dict(scalars), targets[0] if outs == 1 else targets)
                    return 0
                results = call.call(op, operands, dict(scalars), None)
            with wrapping_errors(op.name, device.name):
                for result, target in zip(results if isinstance(results, tuple) else (results,), targets, strict=True):
                    cast(DeviceBackend, device).copy(_shaped(result, tuple(target.shape)), target)
            return 0

        return through


def _listed(names: list[str]) -> str:
    return ", ".join(names[:WORDS]) + (f" and {len(names) - WORDS} more" if len(names) > WORDS else "")


def _empty(device: Backend | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    return np.empty(shape, dtype) if device is None else transfer.empty(device, shape, dtype)


def _shaped(x: Any, shape: Sequence[int]) -> Any:
    return x if tuple(x.shape) == tuple(shape) else x.reshape(tuple(shape))
