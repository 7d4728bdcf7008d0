"""A GPU on paper: it gives out addresses, keeps every launch, and runs and copies nothing.

Kernels choose their launches by shapes, addresses and the size of the GPU, so they choose here what they would choose
on hardware.  Small arrays of the host, such as the lengths of sequences, keep their contents, because they decide how
much a launch reads.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np
from trueno.backend import Call
from trueno.errors import KernelError

from trueno_cuda.device.protocol import Grid
from trueno_cuda.ptx import TARGETS, Kernel
from trueno_cuda.ptx.types import TYPES

ALIGN = 256
FIRST = 1 << 40
"""The address of the first array."""
SMALL = 1 << 16
"""Bytes of the largest host array whose contents are kept."""
BYTES = np.dtype(np.uint8)


@dataclass(slots=True)
class Memory:
    """Addresses of one array.  contents: its bytes, where the host has them."""

    ptr: int
    nbytes: int
    contents: np.ndarray[Any, Any] | None = None


class Place(NamedTuple):
    """The memory of an array: from an address on."""

    ptr: int


class Array:
    """An array of the GPU: a shape, a dtype and an address."""

    __slots__ = ("__weakref__", "data", "dtype", "shape")
    _c_contiguous = True
    __array_ufunc__ = None
    __hash__ = object.__hash__

    def __init__(self, shape: tuple[int, ...], dtype: Any, data: Place) -> None:
        self.shape = tuple(int(n) for n in shape)
        self.dtype = np.dtype(dtype)
        self.data = data

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def reshape(self, shape: tuple[int, ...]) -> Any:
        if prod(shape) != self.size:
            raise ValueError(f"cannot reshape an array of shape {self.shape} to {tuple(shape)}")
        return type(self)(shape, self.dtype, self.data)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("an array of a plan has no elements")


class TensorMap(NamedTuple):
    """A launch argument that selects boxes of an array."""

    address: int
    nbytes: int


@dataclass(eq=False, slots=True)
class Request:
    """One call of an op's kernel, with its operands and results; they are arrays, and numbers among them."""

    call: Call
    arguments: tuple[Any, ...]

    @property
    def operands(self) -> tuple[Any, ...]:
        return self.arguments[: len(self.call.op.signature.inputs)]

    @property
    def results(self) -> tuple[Any, ...]:
        return self.arguments[len(self.arguments) - len(self.call.op.signature.outputs) :]


@dataclass(eq=False, slots=True)
class Launch:
    """One launch.  numbers: the kernel's whole numbers.  request: the call that it is a part of."""

    kernel: Kernel
    grid: Grid
    block: Grid
    shared: int
    numbers: tuple[int, ...]
    pointers: tuple[int | TensorMap, ...]
    request: Request | None = None

    @property
    def named(self) -> dict[str, int]:
        """The whole numbers by the names of the kernel's parameters."""
        names = [p.name for p in self.kernel.params[len(self.pointers) :]]
        return dict(zip(names, self.numbers, strict=False))


@dataclass(eq=False, slots=True)
class Recording:
    """Launches that a batch replays."""

    device: "Planner"
    launches: list[Launch] = field(default_factory=list)

    def replay(self) -> None:
        self.device.launches += self.launches


class Planner:
    """The device (see `trueno_cuda.device.protocol.Device`).  launches: all so far.  kind: the class of its arrays."""

    alone = software = True

    def __init__(self, arch: str, card: str, sms: int, kind: type[Array] = Array) -> None:
        self.name, self.arch, self.sms, self.kind = card, arch, sms, kind
        self.shared = TARGETS[arch].shared
        self.launches: list[Launch] = []
        self.request: Request | None = None
        self._memories: list[Memory] = []
        self._starts: list[int] = []
        self._end = FIRST
        self._status = 0

    # ---- memory ---------------------------------------------------------------------------------------

    def _take(self, nbytes: int) -> Memory:
        memory = Memory(self._end, nbytes)
        self._memories.append(memory)
        self._starts.append(memory.ptr)
        self._end += -(-max(nbytes, 1) // ALIGN) * ALIGN
        return memory

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return self.kind(shape, dtype, Place(self._take(prod(shape) * np.dtype(dtype).itemsize).ptr))

    def scratch(self, nbytes: int) -> Array:
        return self.empty((nbytes,), BYTES)

    def to_device(self, x: np.ndarray[Any, Any]) -> Array:
        array = self.empty(x.shape, x.dtype.newbyteorder("="))
        if x.nbytes <= SMALL:
            self._memories[-1].contents = np.frombuffer(np.ascontiguousarray(x).tobytes(), np.uint8)
        return array

    def to_host(self, x: Array, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """Zeros: nothing was computed."""
        if out is None:
            return np.zeros(x.shape, x.dtype)
        out[...] = 0
        return out

    def write(self, x: np.ndarray[Any, Any], out: Array) -> None:
        memory = self.memory(out.data.ptr)
        if memory.ptr == out.data.ptr and x.nbytes == memory.nbytes <= SMALL:
            memory.contents = np.frombuffer(np.ascontiguousarray(x).tobytes(), np.uint8)

    def mirror(self, host: np.ndarray[Any, Any]) -> "Mirror":
        memory = self._take(host.nbytes)
        memory.contents = host
        return Mirror(self.kind, memory.ptr)

    def fetch(self, x: Array) -> Callable[[], np.ndarray[Any, Any]]:
        return lambda: self.to_host(x)

    def copy(self, x: Array, out: Array) -> None:
        """A copy is not a kernel's launch."""

    def contiguous(self, x: Array) -> Array:
        return x

    def memory(self, address: int) -> Memory:
        """The array that an address is in."""
        at = bisect_right(self._starts, address) - 1
        if at < 0 or address > self._memories[at].ptr + self._memories[at].nbytes:
            raise KernelError(f"{address:#x} is not an address of an array of this plan")
        return self._memories[at]

    def contents(self, x: Array) -> np.ndarray[Any, Any] | None:
        """The elements of an array, where the host has them."""
        memory = self.memory(x.data.ptr)
        if memory.contents is None:
            return None
        start = x.data.ptr - memory.ptr
        return memory.contents[start : start + x.nbytes].view(x.dtype).reshape(x.shape)

    # ---- launches -------------------------------------------------------------------------------------

    def prepare(
        self, kernel: Kernel, grid: Grid, numbers: Sequence[int] = (), block: Grid | None = None, shared: int = -1,
    ) -> Callable[..., None]:  # fmt: skip
        threads = kernel.threads or block
        if threads is None:
            raise KernelError(f"{kernel.name} leaves its threads open: give block=")
        nbytes = kernel.static_shared + (kernel.dynamic_shared if shared < 0 else shared)

        def launch(pointers: Sequence[int | TensorMap], floats: Sequence[float] = ()) -> None:
            one = Launch(kernel, grid, threads, nbytes, tuple(numbers), tuple(pointers), self.request)
            self.launches.append(one)

        launch.bound = lambda pointers: lambda: launch(pointers)  # type: ignore[attr-defined]
        return launch

    def tensor_map(
        self, address: int, element: str, shape: Sequence[int], box: Sequence[int], swizzle: int = 0
    ) -> TensorMap:
        return TensorMap(address, prod(shape) * TYPES[element].bytes)

    @contextmanager
    def recording(self) -> Iterator[Recording]:
        """What is launched inside is kept for `replay`, and not among the launches before that."""
        outer, self.launches = self.launches, []
        recording = Recording(self)
        try:
            yield recording
        finally:
            recording.launches, self.launches = self.launches, outer

    # ---- what never happens ---------------------------------------------------------------------------

    def unpooled(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def status(self) -> int:
        self._status = self._status or self._take(4).ptr
        return self._status

    def take_status(self) -> int:
        return 0

    def wait(self) -> None:
        """No launch runs."""

    def free(self) -> int:
        return 1 << 62

    def close(self) -> None:
        """This device holds no resources."""


class Mirror:
    """Addresses for what an array of bytes holds."""

    def __init__(self, kind: type[Array], ptr: int) -> None:
        self._kind, self._ptr = kind, ptr

    def part(self, start: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return self._kind(shape, dtype, Place(self._ptr + start))

    def send(self, nbytes: int) -> None:
        """The contents are the host's own."""
