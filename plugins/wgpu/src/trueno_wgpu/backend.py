"""The backend: row programs printed as WGSL, structured ops by hand-written kernels."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from trueno.backend import Accuracy, Call, Device, Kernel, Probe, Rates, Reject
from trueno.errors import BackendUnavailable, DeviceError

from trueno_wgpu.device import door, opened
from trueno_wgpu.device.adapter import NoAdapter
from trueno_wgpu.device.array import Array
from trueno_wgpu.device.gpu import Gpu
from trueno_wgpu.device.recordings import Recording
from trueno_wgpu.device.shader import Shader

FLOAT32 = np.dtype(np.float32)
SOFTWARE = Rates(launch_s=1e-4, flops=2e9, bytes=2e9, link_s=1e-4, link_bytes=3e9)
"""Of llvmpipe on two cores; it is chosen only by name, so this ranks it nowhere."""
NEVER = Rates(launch_s=1e9, flops=1.0, bytes=1.0)
"""Where a page may not wait for results, and where software in a browser plays the GPU: only if it is named."""
ONE = Shader(
    "one and one",
    """struct P { n: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < p.n) { y[id.x] = x[id.x] + x[id.x]; }
}
""",
    (False, True),
)


class WgpuBackend:
    """One GPU through WebGPU."""

    name = "wgpu"
    kind: Literal["cpu", "gpu"] = "gpu"

    @property
    def gpu(self) -> Gpu:
        """The process's device, opened at first use."""
        return opened.gpu()

    @cached_property
    def accuracy(self) -> Accuracy:
        """The measured bounds of the printer's element functions."""
        from trueno_wgpu.rows.accuracy import ACCURACY

        return ACCURACY

    def probe(self, level: int) -> Probe:
        """Level 1 only loads wgpu: looking for adapters would load a driver that does not survive a fork.

        Level 2, in a child process, finds an adapter, opens it and computes one sum on it.  A page has no child
        process: there level 1 looks for an adapter, if it may wait for one.
        """
        if level < 2 and not door.IN_BROWSER:
            return Probe(True)
        devices: tuple[Device, ...] = ()
        try:
            devices = self._devices()
            if door.IN_BROWSER:
                return Probe(True, devices=devices)
            adapter = door.adapter()
            x = Array.of(self.gpu, np.arange(65, dtype=np.float32))
            y = Array.empty(self.gpu, (65,), FLOAT32)
            self.gpu.run(ONE, (x.buffer, y.buffer), np.uint32(65).tobytes(), (2, 1, 1))
            if y.numpy().tolist() != [2.0 * i for i in range(65)]:
                return Probe(False, f"{adapter}: one and one is not two; update the GPU's driver", devices)
        except NoAdapter as error:  # a named adapter that does not exist is an error
            return Probe(False, str(error), absent=not error.wanted)
        except DeviceError:  # whether there is one shows when `open_async` is awaited
            return Probe(True)
        except BackendUnavailable as error:
            return Probe(False, str(error), devices)
        return Probe(True, devices=devices)

    def _devices(self) -> tuple[Device, ...]:
        adapter = door.adapter()
        return (Device(adapter.name, adapter.through.lower(), adapter.software),)

    async def open_async(self) -> tuple[Device, ...]:
        """Open the device, if it is not open; for a page, where no call may wait for it."""
        if not opened.is_open():
            await door.prepare()
            opened.gpu()
        return self._devices()

    def supports(self, call: Call) -> Reject | None:
        if call.op.structured:
            from trueno_wgpu.kernels import KERNELS

            return KERNELS.refusal(call)
        if call.dtype != FLOAT32:
            return Reject("unsupported_dtype", f"{call.dtype}: float32")
        from trueno_wgpu.rows import rowprogram

        return rowprogram.refusal(call)

    def kernel(self, call: Call) -> Kernel:
        if call.op.structured:
            from trueno_wgpu.kernels import KERNELS

            return KERNELS.kernel(call, self.gpu)
        from trueno_wgpu.rows.rowprogram import kernel

        return kernel(self.gpu, call)

    def own_environment(self, call: Call) -> bool:
        """A GPU is independent of the caller's modes; the host rounds numbers to the kernel's dtype."""
        return not call.op.symbolic

    def rates(self, call: Call) -> Rates:
        """Those of a mid-size discrete GPU, declared beside the kernels; software's own if software was named."""
        if not door.may_wait():
            return NEVER
        if door.adapter().software:
            return NEVER if door.IN_BROWSER else SOFTWARE
        if call.op.structured:
            from trueno_wgpu.kernels import KERNELS

            return KERNELS.rates(call)
        from trueno_wgpu.rows.rowprogram import RATES

        return RATES

    def limits(self) -> dict[str, int | None]:
        """The limits of one binding, buffer, workgroup and grid; memory: the bytes of all arrays."""
        return {**asdict(self.gpu.limits), "memory": self.gpu.memory}

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return Array.empty(self.gpu, shape, dtype)

    def to_device(self, x: np.ndarray[Any, Any]) -> Array:
        return Array.of(self.gpu, x)

    def to_host(self, x: Array, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        return x.numpy(out)

    async def to_host_async(self, x: Array) -> np.ndarray[Any, Any]:
        return await x.numpy_async()

    def copy(self, x: Array, out: Array) -> None:
        self.gpu.copy(x.buffer, out.buffer, x.nbytes)

    def write(self, x: np.ndarray[Any, Any], out: Array) -> None:
        out.write(x)

    def batch(self) -> AbstractContextManager[None]:
        return self.gpu.batch()

    def recording(self) -> AbstractContextManager[Recording]:
        return self.gpu.recording()

    @contextmanager
    def scripting(self) -> Iterator[Any]:
        """What this thread runs inside is written down for `write_page`, and not run; what the context gives."""
        from trueno_wgpu.web.script import Script

        with self.gpu.taping(Script(self.gpu)) as script:
            yield script

    def write_page(self, script: Any, folder: Path, inputs: Mapping[str, Array], outputs: Mapping[str, Array],
                   kept: Sequence[Array], wasm: Any = None) -> int:  # fmt: skip
        """Write what a web page needs to run a script, into an empty folder; the bytes of constants and weights.

        inputs, outputs: the arrays that the page gives and gets.  kept: arrays whose contents count at the start.
        wasm: the same for pages without a GPU (`trueno.web`), or None.
        """
        from trueno_wgpu.web import folder as files

        return files.write(script, folder, inputs, outputs, kept, wasm)

    def synchronize(self) -> int:
        """Wait; return the status bits of this thread's guarded kernels."""
        bits = self.gpu.take_status()
        self.gpu.wait()
        return bits

    def close(self) -> None:
        self.gpu.close()
