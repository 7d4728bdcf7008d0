"""`trueno_wgpu.Array`: shape and dtype over device memory that only kernels can access."""

from math import prod
from typing import Any, NoReturn

import numpy as np

from trueno_wgpu.device.gpu import Buffer, Gpu

Shape = tuple[int, ...]
HOME = "copy it to the host with trueno.numpy first"


class Array:
    """An array on the GPU: elements in C order from byte 0 of its buffer; int64 as pairs of words, the low one first.

    It never becomes a NumPy array automatically, and has no truth value.
    """

    __module__ = "trueno_wgpu"
    __slots__ = ("__weakref__", "buffer", "dtype", "shape")
    __array_ufunc__ = None  # NumPy's operators raise at once
    __hash__ = object.__hash__

    buffer: Buffer
    shape: Shape
    dtype: np.dtype[Any]

    def __init__(self, shape: Shape, dtype: Any, buffer: Buffer) -> None:
        self.shape = tuple(int(s) for s in shape)
        self.dtype = np.dtype(dtype)
        self.buffer = buffer

    @classmethod
    def empty(cls, gpu: Gpu, shape: Shape, dtype: Any) -> "Array":
        """An uninitialised array; OutOfMemory if there is no room."""
        return cls(shape, dtype, gpu.alloc(prod(shape) * np.dtype(dtype).itemsize))

    @classmethod
    def of(cls, gpu: Gpu, x: np.ndarray[Any, Any]) -> "Array":
        """A copy of a NumPy array, which may be read-only and have any strides."""
        array = cls.empty(gpu, x.shape, x.dtype.newbyteorder("="))
        array.write(x)
        return array

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def write(self, x: np.ndarray[Any, Any]) -> None:
        """Overwrite all elements with those of an array of this shape."""
        self.buffer.gpu.write(self.buffer, _bytes(np.ascontiguousarray(x, self.dtype)))

    def numpy(self, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """A copy on the host; in `out`, of this shape and dtype, if given."""
        direct = out if out is not None and out.flags.c_contiguous and out.flags.writeable else None
        host = np.empty(self.shape, self.dtype) if direct is None else direct
        if host.size:
            self.buffer.gpu.read(self.buffer, host.nbytes, into=_bytes(host))
        if out is None or direct is not None:
            return host
        np.copyto(out, host)
        return out

    async def numpy_async(self) -> np.ndarray[Any, Any]:
        """`numpy` while the event loop stays free."""
        data = await self.buffer.gpu.read_async(self.buffer, self.nbytes)
        return np.frombuffer(data, self.dtype).reshape(self.shape)

    def reshape(self, shape: Shape) -> "Array":
        """The same elements under another shape; ValueError if the number of elements differs."""
        if prod(shape) != self.size or any(s < 0 for s in shape):
            raise ValueError(f"cannot reshape an array of shape {self.shape} to {tuple(shape)}")
        return Array(shape, self.dtype, self.buffer)

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"a wgpu Array is not converted automatically: {HOME}")

    def __bool__(self) -> NoReturn:
        raise TypeError(f"a wgpu Array has no truth value: {HOME}")

    def __dlpack__(self, **_: Any) -> NoReturn:
        raise BufferError(f"a wgpu Array has no DLPack, because WebGPU gives its memory no address: {HOME}")

    def __dlpack_device__(self) -> NoReturn:
        self.__dlpack__()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a wgpu Array cannot be pickled or copied: {HOME}")

    def __repr__(self) -> str:
        return f"<wgpu Array {self.shape} {self.dtype}>"


def _bytes(x: np.ndarray[Any, Any]) -> Any:
    """The memory of a contiguous array."""
    return x.reshape(-1).view(np.uint8)
