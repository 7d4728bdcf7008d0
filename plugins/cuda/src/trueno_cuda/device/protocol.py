"""What kernels see of a device, be it hardware or the emulator: memory, and launches that are prepared once.

Nothing here imports CuPy.  `trueno_cuda.device.hardware` and `trueno_cuda.device.emulated` each have one of these.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from trueno_cuda.ptx import Kernel

Grid = tuple[int, int, int]


class Memory(Protocol):
    """What an array's elements lie in, as `cupy.ndarray.data` has it.  ptr: address of the first element, in bytes."""

    ptr: int


class Array(Protocol):
    """Of what type a device's arrays are: `cupy.ndarray`, or the emulator's."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    size: int
    nbytes: int
    data: Memory
    _c_contiguous: bool
    """Whether its elements lie in C order: what `flags` reads, in a sixth of the time."""

    def reshape(self, shape: tuple[int, ...]) -> Any:
        """The same elements under another shape."""


class Launch(Protocol):
    """A kernel with its grid and its whole numbers, ready to go on the current stream; any thread may call it."""

    bound: Callable[[Sequence[int]], Callable[[], None]]
    """Gives the launch with fixed pointers, which takes the host less, of a kernel of ours that takes no floats."""

    def __call__(self, pointers: Sequence[int], floats: Sequence[float] = ()) -> None:
        """pointers: values of the kernel's first parameters, addresses all.  floats: those of its last ones."""


class Device(Protocol):
    """One GPU.  arch: what kernels are built for, `sm_90a`.  sms: its multiprocessors.  shared: bytes of shared memory
    that a block may have.  alone: whether every array is its own, as there is no other GPU.  software: whether it is
    emulated.
    """

    name: str
    arch: str
    sms: int
    shared: int
    alone: bool
    software: bool

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """An uninitialised array in C order, aligned to 256 bytes; OutOfMemory where there is no room."""

    def to_device(self, x: np.ndarray[Any, Any]) -> Any:
        """A copy of an array of the host."""

    def to_host(self, x: Any, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """A copy on the host; waits for what computes it."""

    def write(self, x: np.ndarray[Any, Any], out: Any) -> None:
        """Overwrite an array with one of the host of its shape and dtype."""

    def copy(self, x: Any, out: Any) -> None:
        """Inside the device, between arrays of one shape and dtype."""

    def contiguous(self, x: Any) -> Any:
        """`x` itself where its elements lie in C order, else a copy in which they do."""

    def prepare(
        self, kernel: Kernel, grid: Grid, numbers: Sequence[int] = (), block: Grid | None = None, shared: int = -1
    ) -> Launch:
        """Load a kernel, once, and fix all of a launch but its pointers and floats.

        The kernel's parameters are pointers, then the whole `numbers`, then floats.  block: where the kernel leaves its
        threads open.  shared: dynamic bytes, by default the kernel's own.  KernelError where the device does not take
        it.
        """

    def tensor_map(self, address: int, element: str, shape: Sequence[int], box: Sequence[int], swizzle: int = 0) -> Any:
        """What stands among a launch's pointers for a tensor map, which cuts boxes out of an array in C order.

        address: of the array, a multiple of 16.  element: as the builder names it; `tf32` rounds float32 to that.
        shape, box: up to five axes in NumPy's order; what lies outside reads as 0.  swizzle: 0, 32, 64 or 128 bytes.
        KernelError where the hardware takes no such map.
        """

    def unpooled(self) -> AbstractContextManager[Any]:
        """This thread's arrays that are made inside get memory of their own, of which tools know where it ends."""

    def status(self) -> int:
        """Address of the word into which this thread's guarded kernels OR their bits: 1 a NaN, 2 an Inf."""

    def take_status(self) -> int:
        """Wait for this thread's guarded kernels; their bits since the last time, which are cleared.  0 where none ran
        since.
        """

    def recording(self) -> AbstractContextManager[Any]:
        """What this thread launches inside is kept and not run; gives what `replay()`s it on the same arrays."""

    def wait(self) -> None:
        """Until everything launched is done; raises what went wrong meanwhile."""

    def close(self) -> None:
        """Let go of everything; again is no error."""
