"""The CUDA backend: kernels as generated PTX, launched on CuPy's arrays; and `cuda_emulated`, which needs no GPU.

`trueno_cuda.ptx` builds kernels, `prepared` and `run` launch them, `monitor` watches the GPU.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trueno_cuda.device.hardware.monitor import monitor
    from trueno_cuda.device.launching import prepared, run

__all__ = ["monitor", "prepared", "run"]


if not TYPE_CHECKING:  # a type checker knows the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        if name in ("prepared", "run"):
            from trueno_cuda.device import launching

            return getattr(launching, name)
        if name == "monitor":
            from trueno_cuda.device.hardware.monitor import monitor

            return monitor
        raise AttributeError(name)
