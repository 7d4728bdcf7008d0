"""The device layer: the only file that imports wgpu.  Bytes in, bytes out; it knows no NumPy."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import wgpu  # type: ignore[import-untyped]

from trueno_wgpu.shader import Shader

STORAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
Groups = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Limits:
    """What kernels plan with.  Bytes but for the last three."""

    binding: int
    buffer: int
    workgroup: int
    alignment: int
    invocations: int
    groups: int
    trips: int
    """Loop trips that one invocation may make in all, over all its loops; 0 for no end."""


class Buffer:
    """Device memory; freed when the last reference goes."""

    __slots__ = ("gpu", "handle", "nbytes")

    def __init__(self, gpu: "Gpu", handle: Any, nbytes: int) -> None:
        self.gpu, self.handle, self.nbytes = gpu, handle, nbytes


@dataclass(frozen=True, slots=True)
class View:
    """A range of a buffer to be bound: offset a multiple of `Limits.alignment`, nbytes of 4."""

    buffer: Buffer
    offset: int
    nbytes: int


class Gpu:
    """One adapter's device."""

    def __init__(self) -> None:
        from trueno.settings import settings

        wanted = str(
            settings.get("TRUENO_WGPU_ADAPTER") if "TRUENO_WGPU_ADAPTER" in settings.declared() else ""
        ).lower()
        adapter = next(
            a
            for a in sorted(wgpu.gpu.enumerate_adapters_sync(), key=lambda a: a.info["backend_type"] == "OpenGL")
            if (a.info["adapter_type"] == "CPU") == (wanted == "software")
            or (wanted and wanted in a.info["device"].lower())
        )
        self.device: Any = adapter.request_device_sync()
        limits = self.device.limits
        self.name: str = adapter.info["device"]
        self.software: bool = adapter.info["adapter_type"] == "CPU"
        self.limits = Limits(
            binding=limits["max-storage-buffer-binding-size"] // 4 * 4,
            buffer=limits["max-buffer-size"] // 4 * 4,
            workgroup=limits["max-compute-workgroup-storage-size"],
            alignment=256,
            invocations=min(limits["max-compute-invocations-per-workgroup"], 256),
            groups=limits["max-compute-workgroups-per-dimension"],
            trips=60_000 if self.software else 0,
        )

    def alloc(self, nbytes: int) -> Buffer:
        """Uninitialised memory: its content may be stale."""
        size = max(nbytes + 3 & ~3, 4)
        return Buffer(self, self.device.create_buffer(size=size, usage=STORAGE), size)

    def write(self, buffer: Buffer, data: Any, offset: int = 0) -> None:
        """Copy bytes (any C-contiguous buffer) to a buffer; a tail that is no multiple of 4 is padded."""
        data = memoryview(data).cast("B")
        if len(data) % 4:
            data = memoryview(bytes(data) + bytes(-len(data) % 4))
        if len(data):
            self.device.queue.write_buffer(buffer.handle, offset, data)

    def read(self, buffer: Buffer, nbytes: int, offset: int = 0) -> memoryview:
        """Wait for what was submitted, and copy bytes home."""
        return self.device.queue.read_buffer(buffer.handle, offset, nbytes + 3 & ~3)[:nbytes]

    def copy(self, source: Buffer, target: Buffer, nbytes: int) -> None:
        """Inside the device."""
        encoder = self.device.create_command_encoder()
        encoder.copy_buffer_to_buffer(source.handle, 0, target.handle, 0, nbytes + 3 & ~3)
        self.device.queue.submit([encoder.finish()])

    def run(self, shader: Shader, buffers: Sequence[Buffer | View], uniforms: bytes, groups: Groups) -> None:
        """Run a shader over a grid of workgroups: submitted now, or with the batch that is open on this thread.

        uniforms: the content of binding 0, padded to 16 bytes.  No buffer may be bound twice.
        """
        device = self.device
        entries = [{"binding": 0, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": "uniform"}}]
        for i, w in enumerate(shader.writes):
            kind = "storage" if w else "read-only-storage"
            entries.append({"binding": i + 1, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}})
        layout = device.create_bind_group_layout(entries=entries)
        pipeline = device.create_compute_pipeline(
            layout=device.create_pipeline_layout(bind_group_layouts=[layout]),
            compute={"module": device.create_shader_module(code=shader.source), "entry_point": "main"},
        )
        packed = uniforms + bytes(-len(uniforms) % 16 or (16 if not uniforms else 0))
        held = device.create_buffer_with_data(data=packed, usage=wgpu.BufferUsage.UNIFORM)
        bound = [{"binding": 0, "resource": {"buffer": held, "offset": 0, "size": len(packed)}}]
        for i, b in enumerate(buffers):
            v = b if isinstance(b, View) else View(b, 0, b.nbytes)
            resource = {"buffer": v.buffer.handle, "offset": v.offset, "size": v.nbytes}
            bound.append({"binding": i + 1, "resource": resource})
        group = device.create_bind_group(layout=layout, entries=bound)
        encoder = device.create_command_encoder()
        work = encoder.begin_compute_pass()
        work.set_pipeline(pipeline)
        work.set_bind_group(0, group)
        work.dispatch_workgroups(*groups)
        work.end()
        device.queue.submit([encoder.finish()])

    @contextmanager
    def batch(self) -> Iterator[None]:
        """What this thread runs inside is submitted together when the context ends without an error."""
        yield

    def wait(self) -> None:
        """Until everything submitted is done."""
        self.device._poll_wait()
