"""Launches that are kept, and submitted again with one call: the replay of a batch.

WebGPU's command buffers are submitted once, so each replay needs a new one.  It is encoded right after the replay
before, while the device works, by wgpu-native's own functions: its wrapper takes longer for a launch than some kernels.
"""

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any

from trueno.errors import KernelError

from trueno_wgpu.device.door import direct
from trueno_wgpu.device.encoding import Encoder

if TYPE_CHECKING:
    from trueno_wgpu.device.runtime import Direct


class Tape(Encoder):
    """An encoder that keeps its commands: `finish` gives a new command buffer each time.

    It holds pipelines, bind groups, uniforms and buffers as long as it lives.
    """

    __slots__ = ("__weakref__", "_kept", "_ready", "_steps", "lock")
    runs = 0

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        self._steps: list[Any] = []
        """Lists of launches, each a compute pass, and functions of an encoder between them."""
        self._kept: list[Any] = []
        self._ready: Any = None
        self.lock = Lock()
        """Of a replay: two threads may want the same."""

    def __bool__(self) -> bool:
        return bool(self._steps)

    def dispatch(self, pipeline: Any, group: Any, slot: Any, x: int, y: int, z: int) -> None:
        if not (self._steps and isinstance(self._steps[-1], list)):
            self._steps.append([])
            self._pipeline = None
        calls = direct()
        changed = pipeline if pipeline is not self._pipeline else None
        if calls is None:
            launch = (changed, group, slot.offsets, x, y, z)
        else:
            handle = None if changed is None else changed._internal
            launch = (handle, group._internal, calls.array("uint32_t[]", slot.offsets), x, y, z)
        self._steps[-1].append(launch)
        self._kept.append((pipeline, group))
        self._pipeline = pipeline
        self.slots.append(slot)
        self.kernels += 1
        self.groups += x * y * z

    def copy(self, source: Any, at: int, target: Any, to: int, nbytes: int) -> None:
        self._steps.append(lambda encoder: encoder.copy_buffer_to_buffer(source, at, target, to, nbytes))

    def clear(self, target: Any, nbytes: int) -> None:
        self._steps.append(lambda encoder: encoder.clear_buffer(target, 0, nbytes))

    def prepare(self) -> None:
        """Encode what the next `finish` gives."""
        if self._ready is None:
            self._ready = self._encoded()

    def finish(self) -> Any:
        ready, self._ready = self._ready, None
        return self._encoded() if ready is None else ready

    def drop(self) -> None:
        self._ready, self._steps = None, []
        self._kept.clear()
        self.slots.clear()
        self.held.clear()
        self.made.clear()

    def _encoded(self) -> Any:
        encoder, calls = self._device.create_command_encoder(), direct()
        for step in self._steps:
            if not isinstance(step, list):
                step(encoder)
                continue
            work = encoder.begin_compute_pass()
            try:
                _wrapped(work, step) if calls is None else _direct(calls, work._internal, step)
            finally:
                work.end()
        return encoder.finish()


def _wrapped(work: Any, launches: list[Any]) -> None:
    for pipeline, group, offsets, x, y, z in launches:
        if pipeline is not None:
            work.set_pipeline(pipeline)
        work.set_bind_group(0, group, offsets)
        work.dispatch_workgroups(x, y, z)


def _direct(calls: "Direct", work: Any, launches: list[Any]) -> None:
    set_pipeline, set_group, dispatch = calls.set_pipeline, calls.set_group, calls.dispatch
    with calls.errors():
        for pipeline, group, offsets, x, y, z in launches:
            if pipeline is not None:
                set_pipeline(work, pipeline)
            set_group(work, 0, group, 1, offsets)
            dispatch(work, x, y, z)


class Recording:
    """What a thread ran while it was made.  Any thread may replay it, on the same arrays."""

    __slots__ = ("__weakref__", "_replay", "tape")

    def __init__(self, replay: Callable[[Tape], None]) -> None:
        self._replay = replay
        self.tape: Tape | None = None
        """None as long as it is being made, and for good where that failed."""

    def replay(self) -> None:
        """Submit it, after earlier work.  KernelError while it is being made, or if that failed."""
        if self.tape is None:
            raise KernelError("wgpu: this recording is not finished, or failed; it cannot be replayed")
        self._replay(self.tape)
