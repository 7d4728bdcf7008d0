"""The WebGPU backend: any GPU through Vulkan, Metal or DX12.  `Array` is its array type, `CachedMatmul` keeps
weights on the GPU.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trueno_wgpu.array import Array
    from trueno_wgpu.cached import CachedMatmul

__all__ = ["Array", "CachedMatmul"]


def __getattr__(name: str) -> Any:
    if name == "Array":  # loads wgpu, which takes a fifth of a second and may not be installed
        from trueno_wgpu.array import Array

        return Array
    if name == "CachedMatmul":
        from trueno_wgpu.cached import CachedMatmul

        return CachedMatmul
    raise AttributeError(name)
