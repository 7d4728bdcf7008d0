"""A browser's device, queue, encoder and buffers, with the methods of wgpu that the device layer calls.

WebGPU's objects that are only passed on (layouts, pipelines, bind groups, command buffers) stay JavaScript's.

A browser throws for almost nothing: it reports errors later, to a scope that was open or to the device.  So where
Python may wait, compiling and allocating look into a scope at once; everywhere else the device keeps the first error,
and the next read raises it.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from trueno.errors import OutOfMemory

from trueno_wgpu.device.browser.values import JsException, array, create_proxy, may_wait, record, told, wait

READ = 1
"""WebGPU's flag of a map for reading."""
LIMITS = {
    "max-storage-buffer-binding-size": "maxStorageBufferBindingSize",
    "max-buffer-size": "maxBufferSize",
    "max-compute-workgroup-storage-size": "maxComputeWorkgroupStorageSize",
    "max-compute-invocations-per-workgroup": "maxComputeInvocationsPerWorkgroup",
    "max-compute-workgroup-size-x": "maxComputeWorkgroupSizeX",
    "max-compute-workgroups-per-dimension": "maxComputeWorkgroupsPerDimension",
    "max-storage-buffers-per-shader-stage": "maxStorageBuffersPerShaderStage",
}
"""Limits that are requested as high as the adapter has them: wgpu's names and the browser's."""


@contextmanager
def thrown() -> Iterator[None]:
    """What JavaScript throws inside is an error of Python's, as wgpu raises it."""
    try:
        yield
    except JsException as error:
        raise RuntimeError(told(error)) from error


class Buffer:
    """A buffer; those that are mapped have the methods that read."""

    __slots__ = ("_device", "handle")

    def __init__(self, device: "Device", handle: Any) -> None:
        self._device, self.handle = device, handle

    def map_async(self, _mode: str, offset: int, nbytes: int) -> "Mapping":
        """Begin to map for reading."""
        with thrown():
            return Mapping(self._device, self.handle.mapAsync(READ, offset, nbytes))

    def read_mapped(self, offset: int, nbytes: int, *, copy: bool = False) -> memoryview:
        """The mapped bytes; always a copy, since Python cannot see a browser's memory."""
        with thrown():
            return self.handle.getMappedRange(offset, nbytes).to_memoryview().cast("B")  # type: ignore[no-any-return]

    def unmap(self) -> None:
        """Give the memory back to the device."""
        self.handle.unmap()


class Mapping:
    """A map that was asked for."""

    __slots__ = ("_device", "_promise")

    def __init__(self, device: "Device", promise: Any) -> None:
        self._device, self._promise = device, promise

    async def _done(self) -> None:
        with thrown():
            await self._promise
        self._device.check()

    def __await__(self) -> Any:
        return self._done().__await__()

    def sync_wait(self) -> None:
        """Wait until it is mapped."""
        wait(self._done(), "await trueno.aio.numpy(x), or Batch.read_async")


class Queue:
    """The queue of a device."""

    __slots__ = ("_handle",)

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def write_buffer(self, buffer: Buffer, offset: int, data: Any) -> None:
        """Copy bytes to a buffer."""
        with thrown():
            self._handle.writeBuffer(buffer.handle, offset, array(bytes(data)))

    def submit(self, commands: list[Any]) -> None:
        """Submit command buffers."""
        self._handle.submit(array(commands))

    def done(self) -> Any:
        """A promise that is kept when all work is done."""
        return self._handle.onSubmittedWorkDone()


class Pass:
    """A compute pass."""

    __slots__ = ("_handle",)

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def set_pipeline(self, pipeline: Any) -> None:
        """Of the dispatches from here on."""
        self._handle.setPipeline(pipeline)

    def set_bind_group(self, index: int, group: Any, offsets: tuple[int, ...]) -> None:
        """What the next dispatch binds, with the offsets of its uniforms."""
        self._handle.setBindGroup(index, group, array(offsets))

    def dispatch_workgroups(self, x: int, y: int, z: int) -> None:
        """Run the pipeline over a grid."""
        self._handle.dispatchWorkgroups(x, y, z)

    def end(self) -> None:
        """End the pass."""
        self._handle.end()


class Encoder:
    """A command encoder."""

    __slots__ = ("_device", "_handle")

    def __init__(self, device: "Device", handle: Any) -> None:
        self._device, self._handle = device, handle

    def begin_compute_pass(self) -> Pass:
        """Open a pass; the encoder is locked until it ends."""
        return Pass(self._handle.beginComputePass())

    def copy_buffer_to_buffer(self, source: Buffer, at: int, target: Buffer, to: int, nbytes: int) -> None:
        """Bytes inside of the device."""
        self._handle.copyBufferToBuffer(source.handle, at, target.handle, to, nbytes)

    def clear_buffer(self, target: Buffer, offset: int, nbytes: int) -> None:
        """Write zeros."""
        self._handle.clearBuffer(target.handle, offset, nbytes)

    def finish(self) -> Any:
        """The command buffer; RuntimeError if the device is lost, as from wgpu."""
        self._device.alive()
        with thrown():
            return self._handle.finish()


class Device:
    """A device.  lost: why it is; "" as long as it works."""

    def __init__(self, handle: Any, features: tuple[str, ...]) -> None:
        self._handle = handle
        self.features = features
        self.limits = {name: int(getattr(handle.limits, of)) for name, of in LIMITS.items()}
        self.queue = Queue(handle.queue)
        self.lost = ""
        self._problem: Exception | None = None
        self._poller: Any = None  # a page has no thread that could poll
        self._listener = create_proxy(self._on_error)  # as long as the device lives
        handle.lost.then(self._on_lost)
        handle.addEventListener("uncapturederror", self._listener)

    def _on_lost(self, info: Any) -> None:
        self.lost = str(info.message or info.reason) or "for a reason that the browser does not say"

    def _on_error(self, event: Any) -> None:
        event.preventDefault()  # it is raised, and need not be in the console, too
        if self._problem is None:
            self._problem = _error(event.error)

    def alive(self) -> None:
        """RuntimeError if the device is lost."""
        if self.lost:
            raise RuntimeError(f"device is lost: {self.lost}")

    def check(self) -> None:
        """The error that the browser reported since the last time, if there is one."""
        self.alive()
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem

    # ---- objects ---------------------------------------------------------------------------------------

    def create_buffer(self, *, size: int, usage: int) -> Buffer:
        """A buffer of zeros; MemoryError if there is no room, as far as the browser says so at once."""
        self.alive()
        with self._scope("out-of-memory"), thrown():
            return Buffer(self, self._handle.createBuffer(record(size=size, usage=usage)))

    def create_bind_group_layout(self, *, entries: list[dict[str, Any]]) -> Any:
        """A layout; RuntimeError if the device is lost."""
        self.alive()
        kinds = [{"type": e["buffer"]["type"], "hasDynamicOffset": e["buffer"].get("has_dynamic_offset", False)}
                 for e in entries]  # fmt: skip
        translated = [{**e, "buffer": kind} for e, kind in zip(entries, kinds, strict=True)]
        return self._handle.createBindGroupLayout(record(entries=translated))

    def create_pipeline_layout(self, *, bind_group_layouts: list[Any]) -> Any:
        """The layout of a pipeline."""
        return self._handle.createPipelineLayout(record(bindGroupLayouts=bind_group_layouts))

    def create_shader_module(self, *, label: str, code: str) -> tuple[str, str]:
        """A module's text, which the pipeline compiles: one scope then has the errors of both."""
        return label, code

    def create_compute_pipeline(self, *, label: str, layout: Any, compute: dict[str, Any]) -> Any:
        """A pipeline; RuntimeError with the compiler's message, where Python may wait for it."""
        self.alive()
        name, code = compute["module"]
        with self._scope("validation"), thrown():
            module = self._handle.createShaderModule(record(label=name, code=code))
            stage = {"module": module, "entryPoint": compute["entry_point"]}
            return self._handle.createComputePipeline(record(label=label, layout=layout, compute=stage))

    def create_bind_group(self, *, layout: Any, entries: list[dict[str, Any]]) -> Any:
        """A bind group."""
        bound = [{**e, "resource": {**e["resource"], "buffer": e["resource"]["buffer"].handle}} for e in entries]
        with thrown():
            return self._handle.createBindGroup(record(layout=layout, entries=bound))

    def create_command_encoder(self) -> Encoder:
        """An encoder."""
        return Encoder(self, self._handle.createCommandEncoder())

    def _poll_wait(self) -> None:
        """Wait until all submitted work is done."""
        wait(self._waited(), "await what reads a result, as trueno.aio.numpy(x)")

    async def _waited(self) -> None:
        with thrown():
            await self.queue.done()
        self.check()

    @contextmanager
    def _scope(self, kind: str) -> Iterator[None]:
        """What the browser reports of the calls inside is raised at once, where Python may wait."""
        if not may_wait():
            yield
            return
        self._handle.pushErrorScope(kind)
        try:
            yield
        except BaseException:
            with suppress(JsException):
                self._handle.popErrorScope()
            raise
        error = wait(self._handle.popErrorScope(), "")
        if error:  # else it is null, which some versions of Pyodide do not make None
            raise _error(error)


def _error(error: Any) -> Exception:
    """A GPUError as wgpu would raise it."""
    text = str(error.message)
    if error.constructor.name == "GPUOutOfMemoryError":
        return OutOfMemory(f"wgpu: the GPU has no room ({text})")
    return RuntimeError(text)
