"""The backend: row programs printed as WGSL, structured ops by kernels written by hand."""

from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, Literal

import numpy as np
from trueno.discovery.protocol import Accuracy, Call, Device, Kernel, Probe, Rates, Reject

from trueno_wgpu.array import Array
from trueno_wgpu.device import Gpu

FLOAT32 = np.dtype(np.float32)


def _part(name: str) -> Any:
    try:
        return import_module(f"trueno_wgpu.{name}")
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("trueno_wgpu"):
            return None
        raise


class WgpuBackend:
    """One GPU."""

    name = "wgpu"
    kind: Literal["cpu", "gpu"] = "gpu"

    def __init__(self) -> None:
        self._gpu: Gpu | None = None

    @property
    def gpu(self) -> Gpu:
        if self._gpu is None:
            self._gpu = Gpu()
        return self._gpu

    @property
    def accuracy(self) -> Accuracy:
        found = _part("wgsl.accuracy")
        return found.ACCURACY if found else Accuracy(default=64.0, chain=4096, subnormals=False)

    def probe(self, level: int) -> Probe:
        gpu = self.gpu
        return Probe(True, devices=(Device(gpu.name, "wgpu", gpu.software),))

    def supports(self, call: Call) -> Reject | None:
        if call.dtype != FLOAT32:
            return Reject("unsupported_dtype", f"{call.dtype}: float32")
        if call.op.structured:
            kernels = _part("kernels")
            if kernels is None or call.op.name not in kernels.KERNELS:
                return Reject("unsupported_op", f"no kernel for {call.op.name}")
            return kernels.refusal(call) if hasattr(kernels, "refusal") else None
        if _part("rowprogram") is None:
            return Reject("unsupported_op", "no printer yet")
        return None

    def kernel(self, call: Call) -> Kernel:
        if call.op.structured:
            return _part("kernels").KERNELS[call.op.name](self.gpu, call)
        return _part("rowprogram").kernel(self.gpu, call)

    def rates(self, call: Call) -> Rates:
        if self.gpu.software:
            return Rates(2e-4, 2e9, 2e9, 1e-4, 3e9)
        return Rates(1e-4, 5e12, 5e11, 1e-4, 1e10)

    def limits(self) -> dict[str, int | None]:
        found = self.gpu.limits
        return {name: getattr(found, name) for name in found.__slots__}

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return Array.empty(self.gpu, shape, dtype)

    def to_device(self, x: np.ndarray[Any, Any]) -> Array:
        return Array.of(self.gpu, x)

    def to_host(self, x: Array, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        found = x.numpy()
        if out is None:
            return found
        np.copyto(out, found)
        return out

    def copy(self, x: Array, out: Array) -> None:
        self.gpu.copy(x.buffer, out.buffer, x.nbytes)

    def write(self, x: np.ndarray[Any, Any], out: Array) -> None:
        self.gpu.write(out.buffer, np.ascontiguousarray(x).reshape(-1).view(np.uint8))

    def batch(self) -> AbstractContextManager[None]:
        return self.gpu.batch()

    def synchronize(self) -> int:
        self.gpu.wait()
        return 0

    def close(self) -> None:
        self._gpu = None
