"""The device's arrays: shape and dtype for everyone, elements only for the device's own kernels."""

from math import prod
from typing import Any, NoReturn

import numpy as np
from trueno.errors import DeviceLost, OutOfMemory

from trueno_fake.control import control
from trueno_fake.ledger import LEDGER

Shape = tuple[int, ...]
GARBAGE = 0xFF
"""Fills fresh memory: NaN in every float type, so that an element which nobody wrote shows."""


class Buffer:
    """One allocation; it is freed when the last array on it goes."""

    __slots__ = ("elements", "nbytes", "user")

    def __init__(self, count: int, dtype: np.dtype[Any]) -> None:
        self.nbytes = 0
        control.step("alloc")
        needed = count * dtype.itemsize
        if control.memory is not None and LEDGER.live_bytes + needed > control.memory:
            free = max(control.memory - LEDGER.live_bytes, 0)
            raise OutOfMemory(f"the fake device has {free} bytes left, but {needed} were asked for")
        self.elements = np.full(needed, GARBAGE, np.uint8).view(dtype)
        self.nbytes, self.user = needed, LEDGER.user
        LEDGER.add(allocs=1, live=1, live_bytes=needed)

    def __del__(self) -> None:
        if hasattr(self, "elements") and self.user == LEDGER.user:  # an allocation that failed has no elements
            LEDGER.add(frees=1, live=-1, live_bytes=-self.nbytes)


class Array:
    """An array on the fake device.  It never becomes NumPy's by itself, and has no truth value."""

    __module__ = "trueno_fake"
    __slots__ = ("__buffer", "__weakref__", "dtype", "shape")
    __array_ufunc__ = None  # NumPy's operators give up at once
    __hash__ = object.__hash__

    shape: Shape
    dtype: np.dtype[Any]

    def __init__(self, shape: Shape, dtype: Any, buffer: Buffer | None = None) -> None:
        self.shape = tuple(int(s) for s in shape)
        self.dtype = np.dtype(dtype)
        self.__buffer = Buffer(prod(self.shape), self.dtype) if buffer is None else buffer

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def reshape(self, shape: Shape) -> "Array":
        """The same elements under another shape; ValueError if it has not as many."""
        if prod(shape) != self.size or any(s < 0 for s in shape):
            raise ValueError(f"cannot reshape an array of shape {self.shape} to {tuple(shape)}")
        return Array(shape, self.dtype, self.__buffer)

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a fake Array is not converted by itself: trueno.numpy(x) brings it home")

    def __bool__(self) -> NoReturn:
        raise TypeError("a fake Array has no truth value")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a fake Array cannot be pickled or copied: copy it to the host with trueno.numpy first")

    def __repr__(self) -> str:
        return f"<fake Array {self.shape} {self.dtype}>"

    def _elements(self) -> np.ndarray[Any, Any]:
        """For the device alone."""
        if control.lost:
            raise DeviceLost("the fake device is lost, and this array with it")
        return self.__buffer.elements.reshape(self.shape)

    def _shares(self, other: "Array") -> bool:
        return self.__buffer is other.__buffer
