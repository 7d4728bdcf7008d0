"""The WebGPU backend: any GPU through Vulkan, Metal or DX12.  `Array` is its array type."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trueno_wgpu.array import Array

__all__ = ["Array"]


def __getattr__(name: str) -> Any:
    if name == "Array":  # loads wgpu, which takes a fifth of a second and may not be installed
        from trueno_wgpu.array import Array

        return Array
    raise AttributeError(name)
