"""The WebGPU backend: any GPU through Vulkan, Metal or DX12.  `Array` is its array type, `CachedMatmul` keeps
weights on the GPU, `is_available` says whether there is a GPU.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trueno_wgpu.device.array import Array
    from trueno_wgpu.kernels.cached_matmul import CachedMatmul

__all__ = ["Array", "CachedMatmul", "is_available"]


def is_available() -> bool:
    """Whether wgpu can run here: there is a GPU that it reaches, or software that TRUENO_WGPU_ADAPTER names.

    Never raises.  A child process probes it, and the answer is kept, so that this process loads no driver;
    `trueno.backends()["wgpu"].reason` says why not.  A setting that blocks GPUs makes it False.
    """
    entry = import_module("trueno").backends().get("wgpu")  # through the public API: a plugin must not use the registry
    return entry is not None and bool(entry.available)


if not TYPE_CHECKING:  # a type checker knows the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        if name == "Array":  # loads wgpu, which takes a fifth of a second and may not be installed
            from trueno_wgpu.device.array import Array

            return Array
        if name == "CachedMatmul":
            from trueno_wgpu.kernels.cached_matmul import CachedMatmul

            return CachedMatmul
        raise AttributeError(name)
