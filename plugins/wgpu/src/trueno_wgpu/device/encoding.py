"""Commands that are not submitted yet: one encoder, in one compute pass as long as there is no copy between."""

from typing import Any

from trueno_wgpu.device.memory import Buffer


class Encoder:
    """Records dispatches and copies.  kernels, groups: the dispatches so far.

    It holds every buffer that it names: one that died would give its block to another, who may write there first.
    """

    __slots__ = ("_device", "_encoder", "_pass", "_pipeline", "groups", "held", "kernels", "made", "slots")

    runs = 1
    """How often a command that it records runs, as far as counts know."""
    detailed = False
    """Whether `detail` wants to know what a dispatch binds."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._encoder: Any = None
        self._pass: Any = None
        self._pipeline: Any = None
        self.kernels = self.groups = 0
        self.held: set[Buffer] = set()
        self.slots: list[Any] = []
        self.made: dict[Buffer, dict[Any, Any]] = {}
        """What was computed from arrays that no command has written since."""

    def __bool__(self) -> bool:
        return self._encoder is not None

    def dispatch(self, pipeline: Any, group: Any, slot: Any, x: int, y: int, z: int) -> None:
        """One kernel; `slot` holds its uniforms."""
        if self._pass is None:
            self._pass = self._open().begin_compute_pass()
        if pipeline is not self._pipeline:
            self._pass.set_pipeline(pipeline)
            self._pipeline = pipeline
        self._pass.set_bind_group(0, group, slot.offsets)
        self._pass.dispatch_workgroups(x, y, z)
        self.slots.append(slot)
        self.kernels += 1
        self.groups += x * y * z

    def detail(self, shader: Any, buffers: Any, uniforms: bytes, groups: Any) -> None:
        """Called with what the dispatch before it binds, if `detailed`."""

    def copy(self, source: Any, at: int, target: Any, to: int, nbytes: int) -> None:
        """Bytes from one of WebGPU's buffers to another, all multiples of 4."""
        self._between().copy_buffer_to_buffer(source, at, target, to, nbytes)

    def clear(self, target: Any, nbytes: int) -> None:
        """Write zeros."""
        self._between().clear_buffer(target, 0, nbytes)

    def finish(self) -> Any:
        """The command buffer, to be submitted at once and only once.  WebGPU's error if the device is lost."""
        encoder = self._between()
        self._encoder = None
        return encoder.finish()

    def drop(self) -> None:
        """Forget what was recorded."""
        if self._encoder is not None:
            self._between()
        self._encoder = None

    def _open(self) -> Any:
        if self._encoder is None:
            self._encoder = self._device.create_command_encoder()
        return self._encoder

    def _between(self) -> Any:
        """The encoder outside of a pass; a pass that is never ended would lock it."""
        if self._pass is not None:
            work, self._pass, self._pipeline = self._pass, None, None
            work.end()
        return self._open()
