"""The device as kernels see it, hardware or emulator: memory, and launches that are prepared once.

Nothing here imports CuPy.  `trueno_cuda.device.hardware` and `trueno_cuda.device.emulated` each have one of these.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np

from trueno_cuda.ptx import Kernel

Grid = tuple[int, int, int]


class Memory(Protocol):
    """The memory of an array's elements, like `cupy.ndarray.data`.  ptr: address of the first element, in bytes."""

    ptr: int


class Array(Protocol):
    """The type of a device's arrays: `cupy.ndarray`, or the emulator's."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    size: int
    nbytes: int
    data: Memory
    _c_contiguous: bool
    """Whether its elements are in C order: as `flags`, in a sixth of the time."""

    def reshape(self, shape: tuple[int, ...]) -> Any:
        """The same elements under another shape."""


class Launch(Protocol):
    """A kernel with its grid and its integers, ready to run on the current stream; any thread may call it."""

    bound: Callable[[Sequence[int]], Callable[[], None]]
    """Gives the launch with fixed pointers, which takes less host time, for our own kernels without floats."""

    def __call__(self, pointers: Sequence[int], floats: Sequence[float] = ()) -> None:
        """pointers: values of the kernel's first parameters, all of them addresses.  floats: those of its last ones."""


class ArrayLaunch(NamedTuple):
    """One launch of a call.  offsets: bytes from where each array begins, () if there are none."""

    launch: Launch
    offsets: tuple[int, ...] = ()


class Device(Protocol):
    """One GPU.  number: as CUDA counts.  arch: what kernels are built for, `sm_90a`.  sms: its multiprocessors.
    shared: bytes of shared memory that a block may have.  alone: whether every array is its own, as there is no other
    GPU.  software: whether it is emulated.
    """

    name: str
    number: int
    arch: str
    sms: int
    shared: int
    alone: bool
    software: bool

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """An uninitialised array in C order, aligned to 256 bytes; OutOfMemory where there is no room."""

    def scratch(self, nbytes: int) -> Any:
        """Bytes for what the launches of one call pass to each other: the next call on the stream may get the same.

        All calls of a recording share what the largest of them needs.  A call asks once.
        """

    def to_device(self, x: np.ndarray[Any, Any]) -> Any:
        """A copy of a host array."""

    def to_host(self, x: Any, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """A copy on the host; waits for the kernels that compute it."""

    def write(self, x: np.ndarray[Any, Any], out: Any) -> None:
        """Overwrite an array with a host array of its shape and dtype."""

    def mirror(self, host: np.ndarray[Any, Any]) -> Any:
        """Memory for what an array of bytes holds (see `trueno.discovery.protocol.Mirror`)."""

    def fetch(self, x: Any) -> Callable[[], np.ndarray[Any, Any]]:
        """Begin a copy to the host, after what this thread launched; the function waits for it and returns it."""

    def adopt(self, x: Any, owner: Any) -> Any:
        """A copy of an array of another GPU, `owner`."""

    def copy(self, x: Any, out: Any) -> None:
        """Copy inside the device, between arrays of one shape and dtype."""

    def contiguous(self, x: Any) -> Any:
        """`x` itself if its elements are in C order, otherwise a copy in which they are."""

    def prepare(
        self, kernel: Kernel, grid: Grid, numbers: Sequence[int] = (), block: Grid | None = None, shared: int = -1,
    ) -> Launch:  # fmt: skip
        """Load a kernel, once, and fix all of a launch but its pointers and floats.

        The kernel's parameters are pointers, then the integers `numbers`, then floats.  block: if the kernel leaves its
        threads open.  shared: dynamic bytes, by default the kernel's own.
        KernelError if the device does not support it.
        """

    def tensor_map(self, address: int, element: str, shape: Sequence[int], box: Sequence[int], swizzle: int = 0) -> Any:
        """The launch argument for a tensor map, which selects boxes of an array in C order.

        address: of the array, a multiple of 16.  element: as the builder names it; `tf32` rounds float32 to that.
        shape, box: up to five axes in NumPy's order; what lies outside reads as 0.  swizzle: 0, 32, 64 or 128 bytes.
        KernelError if the hardware does not support such a map.
        """

    def unpooled(self) -> AbstractContextManager[Any]:
        """This thread's arrays that are created inside get separate memory, so that tools know where it ends."""

    def status(self) -> int:
        """Address of the word into which this thread's guarded kernels OR their bits: 1 a NaN, 2 an Inf."""

    def take_status(self) -> int:
        """Wait for this thread's guarded kernels; their bits since the last time, which are cleared.  0 where none ran
        since.
        """

    def recording(self) -> AbstractContextManager[Any]:
        """Record this thread's launches and copies inside without running them.

        Gives what `replay()`s them on the same arrays.
        """

    def wait(self) -> None:
        """Wait until all launches are done; raises errors that occurred meanwhile."""

    def free(self) -> int:
        """Bytes that arrays can have."""

    def close(self) -> None:
        """Release everything; closing twice is not an error."""
