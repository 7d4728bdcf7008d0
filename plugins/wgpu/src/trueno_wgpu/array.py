"""`trueno_wgpu.Array`: shape and dtype over a device buffer."""

from math import prod
from typing import Any

import numpy as np

from trueno_wgpu.device import Buffer, Gpu


class Array:
    """An array on the GPU: float32, int64 (as pairs of 32-bit words, low first) or uint8; C order, from byte 0."""

    __module__ = "trueno_wgpu"
    __slots__ = ("__weakref__", "buffer", "dtype", "shape")
    __array_ufunc__ = None

    def __init__(self, shape: tuple[int, ...], dtype: Any, buffer: Buffer) -> None:
        self.shape = tuple(int(s) for s in shape)
        self.dtype = np.dtype(dtype)
        self.buffer = buffer

    @classmethod
    def empty(cls, gpu: Gpu, shape: tuple[int, ...], dtype: Any) -> "Array":
        return cls(shape, dtype, gpu.alloc(prod(shape) * np.dtype(dtype).itemsize))

    @classmethod
    def of(cls, gpu: Gpu, x: np.ndarray[Any, Any]) -> "Array":
        made = cls.empty(gpu, x.shape, x.dtype)
        gpu.write(made.buffer, np.ascontiguousarray(x).reshape(-1).view(np.uint8))
        return made

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def numpy(self) -> np.ndarray[Any, Any]:
        found = self.buffer.gpu.read(self.buffer, self.nbytes)
        return np.frombuffer(found, self.dtype).reshape(self.shape).copy()

    def reshape(self, shape: tuple[int, ...]) -> "Array":
        return Array(shape, self.dtype, self.buffer)
