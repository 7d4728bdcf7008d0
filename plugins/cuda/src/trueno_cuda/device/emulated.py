"""A device that is the PTX emulator: every kernel runs on NumPy, and every finding is an error."""

import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import prod
from threading import Lock, local
from typing import Any, ClassVar, NoReturn

import numpy as np
from trueno.errors import DeviceError, KernelError, OutOfMemory

from trueno_cuda.device.protocol import Grid
from trueno_cuda.ptx import TARGETS, Kernel
from trueno_cuda.ptx.emulate import Report, TensorMap, load
from trueno_cuda.ptx.emulate.errors import LaunchError
from trueno_cuda.ptx.types import TYPES, Type, ptr
from trueno_cuda.ptx.types import TensorMap as MapType

ALIGN = 256
SMS = 4
"""Few, so that grids are small and a block has several turns, as on a full GPU."""
BYTES = np.dtype(np.uint8)
LINES = "build(loc=True) makes these name the kernel's lines of Python"
HOME = "copy it to the host with trueno.numpy first"


class Memory:
    """Bytes of one allocation.  ptr: its address.  device_id: the number of the emulated GPU that has it."""

    __slots__ = ("__weakref__", "bytes", "device_id", "ptr")

    def __init__(self, nbytes: int, device_id: int = 0) -> None:
        self.device_id = device_id
        try:
            whole = np.empty(nbytes + ALIGN, np.uint8)
        except MemoryError as error:
            raise OutOfMemory(f"cuda_emulated: no room for {nbytes} bytes ({error})") from None
        start = -int(whole.ctypes.data) % ALIGN
        self.bytes = whole[start : start + nbytes]
        self.ptr = int(whole.ctypes.data) + start


class Piece:
    """A part of a memory, which it keeps."""

    __slots__ = ("bytes", "device_id", "ptr", "whole")

    def __init__(self, whole: "Memory | Piece", start: int, nbytes: int) -> None:
        if not 0 <= start <= start + nbytes <= len(whole.bytes):
            raise KernelError(f"cuda_emulated: {nbytes} bytes from {start} on are not in {len(whole.bytes)}")
        self.whole, self.device_id = whole, whole.device_id
        self.ptr, self.bytes = whole.ptr + start, whole.bytes[start : start + nbytes]


class Array:
    """An array on the emulated device.  It never becomes a NumPy array automatically, and has no truth value."""

    __module__ = "trueno_cuda.device.emulated"
    __slots__ = ("__weakref__", "data", "dtype", "shape")
    _c_contiguous = True
    __array_ufunc__ = None  # NumPy's operators raise at once
    __hash__ = object.__hash__

    def __init__(self, shape: tuple[int, ...], dtype: Any, data: Memory | Piece) -> None:
        self.shape = tuple(int(s) for s in shape)
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

    @property
    def elements(self) -> np.ndarray[Any, Any]:
        """Its memory as a NumPy array, for the device alone."""
        return self.data.bytes[: self.nbytes].view(self.dtype).reshape(self.shape)

    def reshape(self, shape: tuple[int, ...]) -> "Array":
        if prod(shape) != self.size or any(s < 0 for s in shape):
            raise ValueError(f"cannot reshape an array of shape {self.shape} to {tuple(shape)}")
        return Array(shape, self.dtype, self.data)

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"an array on cuda_emulated is not converted automatically: {HOME}")

    def __bool__(self) -> NoReturn:
        raise TypeError(f"an array on cuda_emulated has no truth value: {HOME}")

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"an array on cuda_emulated cannot be pickled or copied: {HOME}")

    def __repr__(self) -> str:
        return f"<cuda_emulated Array {self.shape} {self.dtype}>"


class Mirror:
    """Memory that gets what an array of bytes holds."""

    def __init__(self, host: np.ndarray[Any, Any], there: Array) -> None:
        self._host, self._there = host, there

    def part(self, start: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return Array(shape, dtype, Piece(self._there.data, start, prod(shape) * np.dtype(dtype).itemsize))

    def send(self, nbytes: int) -> None:
        self._there.data.bytes[:nbytes] = self._host[:nbytes]


class _Here(local):
    """What each thread has."""

    status: Array | None = None
    guarded = False
    recorded: "Recording | None" = None
    reports: list[Report] | None = None


class Recording:
    """Launches that were kept.  held: arrays that were made meanwhile, which live as long."""

    def __init__(self) -> None:
        self.launches: list[Callable[[], None]] = []
        self.held: list[Array] = []
        self.scratch: Array | None = None

    def replay(self) -> None:
        for launch in self.launches:
            launch()


class Emulator:
    """The device (see `trueno_cuda.device.protocol.Device`).

    number: of this GPU among those that are emulated.  Addresses are the host's, so kernels of one may read what
    another has, as GPUs with peer access do.
    """

    name = "PTX emulator"
    software = True
    sms = SMS
    _lock = Lock()
    _memories: ClassVar["weakref.WeakValueDictionary[int, Memory]"] = weakref.WeakValueDictionary()

    def __init__(self, arch: str = "sm_90", number: int = 0) -> None:
        self.arch = arch
        self.shared = TARGETS[arch].shared
        self.number = number
        self.alone = number == 0
        self._here = _Here()

    # ---- memory ---------------------------------------------------------------------------------------

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        memory = Memory(prod(shape) * np.dtype(dtype).itemsize, self.number)
        memory.bytes.fill(0xAB)  # programs must not rely on zeros
        with self._lock:
            self._memories[memory.ptr] = memory
        array = Array(shape, dtype, memory)
        if self._here.recorded is not None:
            self._here.recorded.held.append(array)
        return array

    def scratch(self, nbytes: int) -> Array:
        recording = self._here.recorded
        if recording is None:
            return self.empty((nbytes,), BYTES)
        if recording.scratch is None or recording.scratch.nbytes < nbytes:
            recording.scratch = self.empty((nbytes,), BYTES)
        return recording.scratch

    def to_device(self, x: np.ndarray[Any, Any]) -> Array:
        array = self.empty(x.shape, x.dtype.newbyteorder("="))
        array.elements[...] = x
        return array

    def to_host(self, x: Array, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        if out is None:
            return x.elements.copy()
        out[...] = x.elements
        return out

    def write(self, x: np.ndarray[Any, Any], out: Array) -> None:
        out.elements[...] = x

    def mirror(self, host: np.ndarray[Any, Any]) -> "Mirror":
        return Mirror(host, self.to_device(host))

    def fetch(self, x: Array) -> Callable[[], np.ndarray[Any, Any]]:
        copy = x.elements.copy()
        return lambda: copy

    def adopt(self, x: Array, owner: Any) -> Array:
        return self.to_device(x.elements)

    def copy(self, x: Array, out: Array) -> None:
        def run() -> None:
            out.elements[...] = x.elements

        if self._here.recorded is not None:
            self._here.recorded.launches.append(run)
        else:
            run()

    def contiguous(self, x: Array) -> Array:
        if not self.alone and x.data.device_id != self.number:
            raise DeviceError(
                f"cuda_emulated: an array lives on GPU {x.data.device_id}, and this is GPU {self.number}; trueno.to "
                "copies it"
            )
        return x

    def _at(self, pointer: int | TensorMap, dtype: np.dtype[Any] = BYTES) -> Any:
        """All memory from an address on, to the end of its allocation; as elements, or as bytes if they do not fit.

        A tensor map has separate memory.
        """
        if isinstance(pointer, TensorMap):
            return pointer
        with self._lock:
            starts = sorted(self._memories)
            index = bisect_right(starts, pointer) - 1
            memory = self._memories.get(starts[index]) if index >= 0 else None
        if memory is None or pointer > memory.ptr + len(memory.bytes):
            raise KernelError(f"cuda_emulated: {pointer:#x} is not an address of an array")
        rest = memory.bytes[pointer - memory.ptr :]
        return rest if len(rest) % dtype.itemsize else rest.view(dtype)

    # ---- running --------------------------------------------------------------------------------------

    def prepare(
        self, kernel: Kernel, grid: Grid, numbers: Sequence[int] = (), block: Grid | None = None, shared: int = -1,
    ) -> Callable[..., None]:  # fmt: skip
        if not runs(kernel.arch, self.arch):
            raise KernelError(
                f"{kernel.name} is built for {kernel.arch}, and cuda_emulated plays {self.arch}; build it for that, or "
                f"set TRUENO_CUDA_EMULATED_ARCH={kernel.arch}"
            )
        module = load(kernel.text)
        threads = kernel.threads or block
        if threads is None:
            raise KernelError(f"{kernel.name} leaves its threads open: give block=")
        dynamic = kernel.dynamic_shared if shared < 0 else shared
        kinds = [p.type for p in kernel.params if isinstance(p.type, (ptr, MapType))]
        elements = [_dtype(kind.element) if isinstance(kind, ptr) else BYTES for kind in kinds]
        pointers = len(elements)

        def run(given: Sequence[int | TensorMap], floats: Sequence[float]) -> None:
            arrays = map(self._at, given, elements)
            args = [*arrays, *map(int, numbers), *map(float, floats)]
            try:
                report = module.launch(kernel.name, grid, threads, args, shared=dynamic)
            except LaunchError as error:
                raise KernelError(f"cuda_emulated: {error}") from error
            if report.findings:
                more = "" if all(f.source for f in report.findings) else f"\n{LINES}"
                raise KernelError(f"{kernel.name} on cuda_emulated:\n{report}{more}")
            if self._here.reports is not None:
                self._here.reports.append(report)

        def launch(given: Sequence[int | TensorMap], floats: Sequence[float] = ()) -> None:
            if len(given) != pointers:
                raise KernelError(f"{kernel.name} takes {pointers} pointers, not {len(given)}")
            if (recorded := self._here.recorded) is not None:
                kept = tuple(given), tuple(floats)
                recorded.launches.append(lambda: run(*kept))
            else:
                run(given, floats)

        launch.bound = lambda given: lambda: launch(given)  # type: ignore[attr-defined]
        return launch

    def host(self, function: Callable[[], None]) -> None:
        """Run a function of the host in the order of the launches."""
        if self._here.recorded is not None:
            self._here.recorded.launches.append(function)
        else:
            function()

    def tensor_map(
        self, address: int, element: str, shape: Sequence[int], box: Sequence[int], swizzle: int = 0
    ) -> TensorMap:
        if address % 16:
            raise KernelError(f"cuda_emulated: a tensor map begins at a multiple of 16, not at {address:#x}")
        size = TYPES[element].bytes
        whole = self._at(address)[: prod(shape) * size]
        try:  # as integers: bits are copied
            return TensorMap(whole.view(f"u{size}").reshape(shape), box, swizzle, rounds=element == "tf32")
        except (LaunchError, ValueError) as error:
            raise KernelError(f"cuda_emulated: {error}") from error

    def unpooled(self) -> AbstractContextManager[Any]:
        """All arrays here have separate memory."""
        return nullcontext()

    @contextmanager
    def recording(self) -> Iterator[Recording]:
        recording, before = Recording(), self._here.recorded
        self._here.recorded = recording
        try:
            yield recording
        finally:
            self._here.recorded = before

    @contextmanager
    def reports(self) -> Iterator[list[Report]]:
        """The reports of the launches that this thread runs inside, in order: what each moved and computed."""
        before, self._here.reports = self._here.reports, []
        try:
            yield self._here.reports
        finally:
            self._here.reports = before

    def status(self) -> int:
        here = self._here
        if here.status is None:
            here.status = self.to_device(np.zeros(1, np.uint32))
        here.guarded = True
        return here.status.data.ptr

    def take_status(self) -> int:
        here = self._here
        if not here.guarded or here.status is None:
            return 0
        bits = int(here.status.elements[0])
        here.status.elements[0], here.guarded = 0, False
        return bits

    def wait(self) -> None:
        """Every launch has finished when it returns."""

    def free(self) -> int:
        """As much as the host gives."""
        return 1 << 62

    def close(self) -> None:
        """This device holds no resources."""


def _dtype(element: Type) -> np.dtype[Any]:
    """NumPy's type of an element, for messages; unsigned integers where NumPy has none."""
    kind = {"f16": "f", "f32": "f", "f64": "f"}.get(element.name, "i" if element.kind == "s" else "u")
    return np.dtype(f"{kind}{element.bytes}")


def runs(built: str, played: str) -> bool:
    """Whether a GPU takes a kernel: of its own architecture or an older one, and with an `a` of its own alone."""
    return built == played if TARGETS[built].special else TARGETS[built].number <= TARGETS[played].number
