"""Devices with arrays of their own, and each with one fault of memory."""

from math import prod
from typing import Any

import numpy as np
from trueno.backend import Call, Device, Kernel, Probe, ReferenceBackend

from trueno_chaos.running import control
from trueno_chaos.sound import Sound


class Box:
    """An array type of its own."""

    __array_ufunc__ = None

    def __init__(self, inside: np.ndarray[Any, Any]) -> None:
        self.inside = inside

    @property
    def shape(self) -> tuple[int, ...]:
        return self.inside.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.inside.dtype

    @property
    def ndim(self) -> int:
        return self.inside.ndim

    @property
    def size(self) -> int:
        return prod(self.inside.shape)

    def reshape(self, shape: tuple[int, ...]) -> "Box":
        return Box(self.inside.reshape(shape))

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a Box is not converted by itself")


class Boxes(Sound):
    """A sound device of boxes."""

    kind = "gpu"

    def probe(self, level: int) -> Probe:
        return Probe(True, devices=(Device("box"),))

    def kernel(self, call: Call) -> Kernel:
        right = ReferenceBackend().kernel(call)

        def kernel(*args: Any) -> Any:
            return right(*(a.inside if isinstance(a, Box) else a for a in args))

        return kernel

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return Box(np.empty(shape, dtype))

    def copy(self, x: Any, out: Any) -> None:
        out.inside[...] = x.inside

    def to_device(self, x: np.ndarray[Any, Any]) -> Any:
        return Box(np.array(x))

    def to_host(self, x: Any, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        if out is None:
            return np.array(x.inside)
        out[...] = x.inside
        return out


class WrongShape(Boxes):
    """Its fresh arrays have another shape, in which a careless kernel computes."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return Box(np.empty((2, *shape) if control.due() else shape, dtype))

    def kernel(self, call: Call) -> Kernel:
        right = super().kernel(call)

        def kernel(*args: Any) -> Any:
            out = args[-1]
            if out.shape and out.shape[0] == 2 and out.ndim == call.rank + 1:
                return right(*args[:-1], Box(out.inside[0]))
            return right(*args)

        return kernel


class WrongDtype(Boxes):
    """Its fresh arrays are of another type, in which a careless kernel computes."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return Box(np.empty(shape, np.float16 if control.due() else dtype))

    def kernel(self, call: Call) -> Kernel:
        right = super().kernel(call)

        def kernel(*args: Any) -> Any:
            out = args[-1]
            if out.dtype == np.float16:
                wide = np.empty(out.shape, call.dtype)
                status = right(*args[:-1], Box(wide))
                out.inside[...] = wide
                return status
            return right(*args)

        return kernel


class WrongHome(Boxes):
    """What comes back to the host is of another shape and type, and `out` is not written."""

    def to_host(self, x: Any, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        if control.due():
            return np.zeros((3, 1, 4), np.int8)
        return super().to_host(x, out)
