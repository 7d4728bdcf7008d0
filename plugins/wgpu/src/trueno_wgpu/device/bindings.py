"""Pipelines by shader, and bind groups by what they bind.

Everything for which WebGPU would refuse a binding, or end the process, is an error here first.  A bind group keeps
its buffers alive, so a block that the pool releases takes its bind groups with it.
"""

from collections.abc import Hashable, Sequence
from typing import Any

from trueno.errors import KernelError

from trueno_wgpu.device.cache import Lru
from trueno_wgpu.device.limits import Counts, Limits
from trueno_wgpu.device.memory import Buffer, Memory, View
from trueno_wgpu.device.queue import Queue
from trueno_wgpu.device.shader import Shader, shared_bytes
from trueno_wgpu.device.uniforms import Page

GROUPS = 1024
PIPELINES, SOFTWARE_PIPELINES = 2048, 256
"""Pipelines that are kept.  On software each is machine code with its compiler's memory: 2 to 11 MB on llvmpipe."""
COMPUTE = 4
"""WebGPU's flag of a compute stage."""


class _Group:
    """A bind group, and the blocks that it keeps alive."""

    __slots__ = ("handle", "key", "memories")

    def __init__(self, key: Hashable, handle: Any, memories: tuple[Memory, ...]) -> None:
        self.key, self.handle, self.memories = key, handle, memories


class Bindings:
    """The compiled pipelines and bind groups of one device."""

    def __init__(self, device: Any, limits: Limits, counts: Counts, queue: Queue) -> None:
        self._device, self._limits, self._counts, self._queue = device, limits, counts, queue
        self._layouts: dict[tuple[bool, ...], Any] = {}
        self._pipelines: Lru[Any] = Lru(SOFTWARE_PIPELINES if limits.trips else PIPELINES)
        self._groups: Lru[_Group] = Lru(GROUPS)

    def pipeline(self, shader: Shader) -> Any:
        """Compiled at first use; KernelError with the compiler's message.

        Without the lock: it may take a second, and other threads continue meanwhile.
        """
        with self._queue.lock:
            cached = self._pipelines.get(shader)
        if cached is not None:
            return cached
        shared = shared_bytes(shader)
        if shared > self._limits.workgroup:
            raise KernelError(
                f"{shader.name}: its workgroups share {shared} bytes, and this device has {self._limits.workgroup}"
            )
        device = self._device
        try:
            layout = device.create_pipeline_layout(bind_group_layouts=[self._layout(shader.writes)])
            module = device.create_shader_module(label=shader.name, code=shader.source)
            pipeline = device.create_compute_pipeline(
                label=shader.name, layout=layout, compute={"module": module, "entry_point": "main"}
            )
        except Exception as error:
            raise self._queue.told(error, f"{shader.name} does not compile") from error
        with self._queue.lock:
            self._counts.pipelines += 1
            cached = self._pipelines.get(shader)  # another thread may have been first
            if cached is None:
                self._pipelines.put(shader, pipeline)
            return pipeline if cached is None else cached

    def _layout(self, writes: tuple[bool, ...]) -> Any:
        """Uniforms at an offset that each dispatch sets, then storage; declared explicitly, because a binding that a
        shader does not use would be missing from a layout that WebGPU derives."""
        with self._queue.lock:
            layout = self._layouts.get(writes)
            if layout is None:
                kinds: list[dict[str, Any]] = [{"type": "uniform", "has_dynamic_offset": True}]
                kinds += [{"type": "storage" if w else "read-only-storage"} for w in writes]
                entries = [{"binding": i, "visibility": COMPUTE, "buffer": kind} for i, kind in enumerate(kinds)]
                layout = self._layouts[writes] = self._device.create_bind_group_layout(entries=entries)
            return layout

    def group(self, key: Hashable) -> Any:
        """The bind group under this key, or None.  The caller holds the lock, here and below."""
        group = self._groups.get(key)
        return None if group is None else group.handle

    def bind(self, key: Hashable, shader: Shader, page: Page, buffers: Sequence[Buffer | View]) -> Any:
        """A new bind group; KernelError for invalid bindings."""
        self._verify(shader, buffers)
        bindings = [{"binding": 0, "resource": {"buffer": page.handle, "offset": 0, "size": page.size}}]
        for i, bound in enumerate(buffers):
            _, offset, nbytes = bound.part
            resource = {"buffer": bound.buffer.handle, "offset": offset, "size": nbytes}
            bindings.append({"binding": i + 1, "resource": resource})
        try:
            handle = self._device.create_bind_group(layout=self._layout(shader.writes), entries=bindings)
        except Exception as error:
            raise self._queue.told(error, f"{shader.name} cannot be bound") from error
        group = _Group(key, handle, tuple({b.buffer.memory for b in buffers}))
        for memory in group.memories:
            memory.groups.add(key)
        self._drop(self._groups.put(key, group))
        self._counts.bind_groups += 1
        return handle

    def _verify(self, shader: Shader, buffers: Sequence[Buffer | View]) -> None:
        if len(buffers) != len(shader.writes):
            raise KernelError(f"{shader.name}: {len(buffers)} buffers for {len(shader.writes)} bindings")
        most, alignment = self._limits.binding, self._limits.alignment
        written = {b.buffer for b, w in zip(buffers, shader.writes, strict=True) if w}
        for i, bound in enumerate(buffers):
            _, offset, nbytes = bound.part
            where = f"{shader.name}: binding {i + 1} is {nbytes} bytes from {offset} on"
            if nbytes <= 0 or nbytes % 4 or offset < 0 or offset % alignment:
                raise KernelError(f"{where}; it must be a multiple of 4, above 0, from a multiple of {alignment} on")
            if offset + nbytes > bound.buffer.nbytes:
                raise KernelError(f"{where}, and its array has {bound.buffer.nbytes}")
            if nbytes > most:
                raise KernelError(f"{where}, and this device binds {most} at most; split it, or compute on the CPU")
            if bound.buffer in written and any(bound.buffer is other.buffer for other in buffers[:i]):
                raise KernelError(f"{shader.name}: binding {i + 1} is bound twice, and written")

    def forget(self, blocks: Sequence[Memory]) -> None:
        """Drop the bind groups that keep these blocks alive."""
        for memory in blocks:
            for key in tuple(memory.groups):
                self._drop(self._groups.drop(key))

    @staticmethod
    def _drop(group: _Group | None) -> None:
        for memory in group.memories if group is not None else ():
            memory.groups.discard(group.key)  # type: ignore[union-attr]

    def clear(self) -> None:
        """Release everything."""
        self._groups.clear()
        self._pipelines.clear()
        self._layouts.clear()
