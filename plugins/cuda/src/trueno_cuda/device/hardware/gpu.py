"""One GPU: arrays are CuPy's (`runtime`), everything else uses the driver.

Everything runs on CuPy's current stream in the calling thread, in the GPU's primary context, which
CuPy and PyTorch use as well.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from math import prod
from typing import Any, Final
from weakref import WeakSet

import numpy as np
from trueno.errors import DeviceError, DeviceLost, KernelError, OutOfMemory, TruenoError

from trueno_cuda.device.hardware import driver as cuda
from trueno_cuda.device.hardware import runtime, targets, tensor_maps
from trueno_cuda.device.hardware.blas import Blas
from trueno_cuda.device.hardware.contexts import Context
from trueno_cuda.device.hardware.driver import Driver
from trueno_cuda.device.hardware.failures import FORKED
from trueno_cuda.device.hardware.launches import Streams, prepared
from trueno_cuda.device.hardware.modules import Modules
from trueno_cuda.device.hardware.peers import follow
from trueno_cuda.device.hardware.recordings import Recorder, Recording
from trueno_cuda.device.hardware.status import StatusWords
from trueno_cuda.device.hardware.transfers import MOST_FETCHED, Mirror, Transfers
from trueno_cuda.device.protocol import Grid, Launch
from trueno_cuda.ptx import Kernel
from trueno_cuda.ptx.types import TYPES

CLOSED: Final = "the GPU was closed; its arrays are of no use any more"
MOST_MAPS: Final = 256
MOST_SINGLES: Final = 256
"""Recordings of single launches.  On an H200 and driver 580 the host launches a kernel in 3.6 us, and a graph of one
kernel in 1.8 (C, benchmarks/README.md); each takes 113 KB there.  What keeps the GPU busy for longer stays a launch, as
those may begin before what they follow has ended."""
IN_ORDER: Final = "give one that does, as cupy.ascontiguousarray makes it"


class Gpu:
    """The device (see `trueno_cuda.device.protocol.Device`).

    Any thread may use it; each has its own status word and recording.
    number: as CUDA counts.  capability: (9, 0).  name: the driver's.
    """

    software = False

    def __init__(self, driver: Driver, number: int) -> None:
        self.driver = driver
        self.number = number
        self.handle = driver.device(number)
        self.name = driver.name(self.handle)
        self.capability = driver.capability(self.handle)
        self.arch = targets.arch(self.capability)
        self.sms = driver.attribute(self.handle, cuda.SMS)
        self.shared = driver.attribute(self.handle, cuda.SHARED_OPTIN)
        self.alone = driver.count() == 1
        self._context = Context(driver, self.handle, self.alone)
        self.context = self._context.handle
        self.caller = self._current_stream = current = runtime.stream_of(number)
        self._recorder = Recorder(self._context)
        self._maps: dict[Any, bytes] = {}
        self._singles: WeakSet[Recording] = WeakSet()
        self._closing: TruenoError | None = None
        self._active = active = self._recorder.active
        self._streams = Streams(current, active, self._exceptional_stream)
        self._words = StatusWords(self._context, lambda: self.empty((1,), np.dtype(np.uint32)), self._current_stream)
        self._modules = Modules(driver, self.arch, self.capability, self.shared)
        self._transfers = Transfers(self._context)
        self._gathering: Callable[..., None] | None = None
        self._blas: Blas | None = None

    # ---- streams ---------------------------------------------------------------------------------------

    def _stream(self) -> int:
        """The handle of the stream for this thread's launches."""
        return self._exceptional_stream() if self._active else self._current_stream()

    def _exceptional_stream(self) -> int:
        """Where launches go while something is out of the ordinary: some thread records, or the GPU was closed."""
        gone = self._context.gone or self._closing
        if gone is not None:
            raise gone
        recording = self._recorder.current()
        return self._current_stream() if recording is None else recording.stream

    def _not_recording(self, what: str) -> None:
        if self._active and self._recorder.current() is not None:
            raise KernelError(f"cuda: {what} inside a recording, where nothing has run yet; do it after a replay")

    def stream(self) -> int:
        """The handle of the stream to which this thread's work goes."""
        return self._stream()

    def current(self) -> AbstractContextManager[Any]:
        """This GPU as the thread's current one, inside."""
        return self._context

    # ---- memory ----------------------------------------------------------------------------------------

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """An uninitialised array in C order, aligned to 256 bytes; OutOfMemory where there is no room."""
        if prod(shape) >> 48:  # CuPy counts in 64 bits, and beyond them from 0 again
            raise self._full(shape, dtype)
        try:
            if self.alone and not self._active:  # CuPy finds the context by itself
                return runtime.ndarray(shape, dtype)
            with self._context:
                array = runtime.ndarray(shape, dtype)
        except MemoryError:
            raise self._full(shape, dtype) from None
        except runtime.CudaFailure as error:
            raise self.driver.failure(error.code, f"cuda: an array of {shape} {np.dtype(dtype)}") from None
        recording = self._recorder.current()
        if recording is not None:
            recording.held.append(array)
        return array

    def unpooled(self) -> AbstractContextManager[Any]:
        """Arrays that this thread makes inside have memory of their own: compute-sanitizer sees where each ends."""
        return runtime.unpooled()

    def _full(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> OutOfMemory:
        nbytes, room = prod(map(int, shape)) * np.dtype(dtype).itemsize, ""
        with suppress(TruenoError), self._context:
            free, total = self.driver.memory()
            room = f", {free + runtime.kept()} of {total} are free on {self.name}"
        return OutOfMemory(
            f"cuda: no room for {nbytes} bytes ({tuple(shape)} {np.dtype(dtype)}){room}; free arrays, or work on "
            "smaller pieces"
        )

    def scratch(self, nbytes: int) -> Any:
        """Bytes for one call (see `device.Device.scratch`); CuPy's pool gives them to the stream's next call."""
        recording = self._recorder.current() if self._active else None
        if recording is None:
            return self.empty((nbytes,), np.dtype(np.uint8))
        if recording.scratch is None or recording.scratch.nbytes < nbytes:
            recording.scratch = self.empty((nbytes,), np.dtype(np.uint8))
        return recording.scratch

    def to_device(self, x: np.ndarray[Any, Any]) -> Any:
        """A copy of an array of the host."""
        array = self.empty(x.shape, x.dtype.newbyteorder("="))
        self._send(x, array)
        return array

    def write(self, x: np.ndarray[Any, Any], out: Any) -> None:
        """Overwrite an array with one of the host of its shape and dtype."""
        if x.shape != out.shape:
            raise KernelError(f"cuda: an array of shape {x.shape} does not go into one of {out.shape}")
        self._in_order(out)
        self._send(x, out)

    def _send(self, x: np.ndarray[Any, Any], out: Any) -> None:
        self._transfers.send(np.ascontiguousarray(x, out.dtype), out.data.ptr, self._current_stream())

    def to_host(self, x: Any, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """A copy on the host; waits for what computes it."""
        self._not_recording("an array cannot be read")
        x = self.contiguous(x)
        if out is not None and not out.flags.writeable:
            raise KernelError("cuda: the array to read into is read-only")
        direct = out is not None and out.flags.c_contiguous and out.dtype == x.dtype and out.shape == x.shape
        target = out if out is not None and direct else np.empty(x.shape, x.dtype)
        self._transfers.fetch(x.data.ptr, target, self._current_stream())
        if out is None or target is out:
            return target
        out[...] = target
        return out

    def mirror(self, host: np.ndarray[Any, Any]) -> Mirror:
        """Memory for what an array of bytes holds (see `trueno.discovery.protocol.Mirror`)."""
        return Mirror(self._context, self._stream, host, self.to_device(host), runtime.part)

    def fetch(self, x: Any) -> Callable[[], np.ndarray[Any, Any]]:
        """A copy on the host that has begun; the function waits for it and returns it."""
        self._not_recording("an array cannot be read")
        x = self.contiguous(x)
        nbytes = x.nbytes
        if not 0 < nbytes <= MOST_FETCHED:
            array = self.to_host(x)
            return lambda: array
        copy = self._gathering or self._gatherer(x)
        return self._transfers.begin(x.data.ptr, x.shape, x.dtype, nbytes, self._current_stream(), copy)

    def copy(self, x: Any, out: Any) -> None:
        """Inside the device, between arrays of one shape and dtype."""
        if x.shape != out.shape or x.dtype != out.dtype:
            raise KernelError(f"cuda: {x.shape} {x.dtype} cannot be copied to {out.shape} {out.dtype}")
        self._in_order(out)
        self._mine(x)
        if not x.flags.c_contiguous:
            self._gather(x, out)
        elif x.nbytes:
            with self._context:
                self.driver.call("cuMemcpyDtoDAsync_v2", out.data.ptr, x.data.ptr, x.nbytes, self._stream())

    def adopt(self, x: Any, owner: "Gpu") -> Any:
        """A copy of another GPU's array, in the order of both streams; the driver knows the shortest way."""
        self._not_recording("an array cannot be copied from another GPU")
        x = owner.contiguous(x)
        copy = self.empty(x.shape, x.dtype)
        if x.nbytes:
            follow(self, owner)
            with self._context:
                self.driver.call(
                    "cuMemcpyPeerAsync", copy.data.ptr, self._context.handle, x.data.ptr, owner._context.handle,
                    x.nbytes, self._current_stream(),
                )  # fmt: skip
            follow(owner, self)  # x may be freed, and its memory used again
        return copy

    def contiguous(self, x: Any) -> Any:
        """`x` itself where its elements lie in C order, else a copy in which they do.

        DeviceError for an array of another GPU.
        """
        if not self.alone:
            self._mine(x)
        if x._c_contiguous:
            return x
        copy = self.empty(x.shape, x.dtype)
        self._gather(x, copy)
        return copy

    def _gather(self, x: Any, out: Any) -> None:
        """Copy the elements of a strided array into C order."""
        copy = self._gathering or self._gatherer(x)
        copy(x.data.ptr, x.shape, x.strides, x.itemsize, out.data.ptr)

    def _gatherer(self, x: Any) -> Callable[..., None]:
        try:
            from trueno_cuda.kernels.copy import StridedCopy
        except ImportError:
            raise KernelError(f"cuda: an array of strides {x.strides} bytes lies not in C order; {IN_ORDER}") from None
        self._gathering = StridedCopy(self)
        return self._gathering

    def _mine(self, x: Any) -> None:
        if x.data.device_id != self.number:
            raise DeviceError(
                f"cuda: an array lives on GPU {x.data.device_id}, and this is GPU {self.number} ({self.name}); "
                f'copy it: trueno.to(x, "cuda:{self.number}")'
            )

    def _in_order(self, out: Any) -> None:
        self._mine(out)
        if not out.flags.c_contiguous:
            raise KernelError(f"cuda: a result of strides {out.strides} bytes lies not in C order; {IN_ORDER}")

    # ---- running ---------------------------------------------------------------------------------------

    def prepare(
        self, kernel: Kernel, grid: Grid, numbers: Sequence[int] = (), block: Grid | None = None, shared: int = -1,
    ) -> Callable[..., None]:  # fmt: skip
        """Load a kernel, once, and fix all of a launch but its pointers and floats (see `device.Device.prepare`).

        A tensor map stands among the pointers, as the 128 bytes that `tensor_map` gives.
        """
        threads = kernel.threads or block
        if threads is None:
            raise KernelError(f"{kernel.name} leaves its threads open: give block=")
        dynamic = kernel.dynamic_shared if shared < 0 else shared
        with self._context:
            function = self._modules.function(kernel, dynamic)
        small = prod(grid) <= self.sms
        single = self._single if small else lambda _: None
        return prepared(self._context, self._streams, kernel, function, grid, numbers, threads, dynamic, single)

    def _single(self, launch: Callable[[], None]) -> Recording | None:
        """A recording of one launch; None where there are enough of them, or the driver makes none."""
        if len(self._singles) >= MOST_SINGLES:
            return None
        try:
            with self.recording() as recording:
                launch()
        except TruenoError:
            return None
        self._singles.add(recording)
        return recording

    def blas(self, dtype: np.dtype[Any], m: int, n: int, depth: int, instead: Launch) -> Launch | None:
        """cuBLAS' launch of a product (see `blas.Blas.product`); None where it is not installed."""
        if self._blas is None:
            self._blas = Blas(
                self._context, self._current_stream, lambda: bool(self._active) and self._recorder.current() is not None
            )
        return self._blas.product(dtype, m, n, depth, instead)

    def figures(self, kernel: Kernel) -> dict[str, int]:
        """What the driver made of a kernel: registers and bytes of local memory a thread, of shared memory a block."""
        with self._context:
            return self._modules.figures(kernel)

    def tensor_map(
        self, address: int, element: str, shape: Sequence[int], box: Sequence[int], swizzle: int = 0
    ) -> bytes:
        """The 128 bytes for a launch's tensor map (see `device.Device.tensor_map`); the latest ones are kept."""
        key = address, element, tuple(shape), tuple(box), swizzle
        encoded = self._maps.get(key)
        if encoded is None:
            if len(self._maps) >= MOST_MAPS:
                self._maps.clear()
            pitches = [prod(shape[i:]) * TYPES[element].bytes for i in range(1, len(shape))]
            with self._context:
                encoded = tensor_maps.encoded(self.driver, address, element, shape, pitches, box, swizzle)
            self._maps[key] = encoded
        return encoded

    def status(self) -> int:
        """Address of the word into which this thread's guarded kernels OR their bits: 1 a NaN, 2 an Inf."""
        recording = self._recorder.current() if self._active else None
        if recording is None:
            return self._words.own()
        if recording.status is None:
            recording.status = self._words.new()
        return int(recording.status.data.ptr)

    def take_status(self) -> int:
        """Wait for this thread's guarded kernels; their bits since the last time, which are cleared."""
        if not self._words.asked:
            return 0
        self._not_recording("guards cannot be asked")
        return self._words.take()

    @contextmanager
    def recording(self) -> Iterator[Recording]:
        """What this thread launches inside is kept and not run; gives what `replay()`s it on the same arrays.

        Arrays that are made inside live as long as the recording.  Uploads inside happen at once; reading is an error.
        """
        with self._context, self._recorder.record(Recording(self._replay)) as recording:
            yield recording

    def _replay(self, recording: Recording) -> None:
        if not recording.graph:
            raise KernelError("cuda: this recording is not finished, or failed; it cannot be replayed")
        stream = self._stream()
        with recording.lock, self._context:
            self.driver.call("cuGraphLaunch", recording.graph, stream, what="cuda: a recording cannot be replayed")
        if recording.status is not None:
            self._words.ask(recording.status)

    def wait(self) -> None:
        """Until everything that this thread launched on its stream is done; raises what went wrong meanwhile."""
        self._not_recording("nothing can be waited for")
        stream = self._current_stream()
        with self._context:
            self.driver.call("cuStreamSynchronize", stream, what="cuda: a kernel that was launched before failed")

    # ---- facts and the end -----------------------------------------------------------------------------

    def memory(self) -> tuple[int, int]:
        """Free and total bytes, as the driver counts: what CuPy's pool keeps is not free."""
        with self._context:
            return self.driver.memory()

    def free(self) -> int:
        """Bytes that arrays can have: what the driver has free, and CuPy's pool."""
        with self._context:
            return self.driver.memory()[0] + runtime.kept()

    @property
    def closed(self) -> bool:
        return self._context.gone is not None

    def close(self) -> None:
        """Wait, and let go of everything; again is not an error."""
        if self.closed:
            return
        self._closing = DeviceLost(f"cuda: {CLOSED}")
        self._active[-1] = None  # from here on no thread launches
        with suppress(TruenoError), self._context:
            self.driver.call("cuCtxSynchronize")
        with suppress(TruenoError), self._context:
            self._recorder.close()
            self._transfers.close()
            self._modules.close()
            runtime.give_back()
        self._end(self._closing)
        with suppress(TruenoError):
            self._context.release()

    def after_fork(self) -> None:
        """In the child: all of it is the parent's."""
        self._recorder.forget()
        self._end(DeviceLost(f"cuda: {FORKED}"))

    def _end(self, why: TruenoError) -> None:
        self._context.gone = why
        self._active[-1] = None  # launches look here for whatever is out of the ordinary

    def __repr__(self) -> str:
        return f"<GPU {self.number}: {self.name}, {self.arch}, {self.sms} multiprocessors>"
