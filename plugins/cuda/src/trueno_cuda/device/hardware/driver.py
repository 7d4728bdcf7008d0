"""The CUDA driver API, through ctypes: the functions that are needed here, with errors for result codes.

Handles are integers.  Structures and constants are those of `cuda.h`, whose layout the driver never changes.
"""

import ctypes
import os
import re
import sys
from ctypes import byref, c_char, c_char_p, c_int, c_size_t, c_uint, c_void_p
from threading import Lock
from typing import Any, Final

from trueno.errors import BackendUnavailable, KernelError, TruenoError

from trueno_cuda.device.hardware.failures import NoDevice, absence, failure
from trueno_cuda.device.hardware.signatures import LETTERS, SIGNATURES

# CUdevice_attribute
SHARED_OPTIN, SMS, MAJOR, MINOR, COMPUTE_MODE = 97, 16, 75, 76, 20
PROHIBITED: Final = 2  # CUcomputemode
# CUfunction_attribute
MAX_THREADS, STATIC_SHARED, LOCAL, REGISTERS, DYNAMIC_SHARED, WIDE_CLUSTERS = 0, 1, 3, 4, 8, 14
# CUjit_option
_ERROR_LOG, _ERROR_BYTES = 5, 6
_LOG_BYTES: Final = 16 * 1024
_PTX: Final = 1  # CUjitInputType
_MEMORY_TYPE: Final = 2  # CUpointer_attribute
_RELAXED: Final = 2  # CUstreamCaptureMode: other threads may do what they like meanwhile
_NON_BLOCKING: Final = 1  # CUstream_flags
_NO_TIMING: Final = 2  # CUevent_flags
_PORTABLE: Final = 1  # CU_MEMHOSTALLOC: pinned for every context


class Config(ctypes.Structure):
    """CUlaunchConfig.  kept: what its addresses lead to."""

    kept: Any
    _fields_ = (
        ("grid", c_uint * 3), ("block", c_uint * 3), ("shared", c_uint), ("stream", c_void_p), ("attributes", c_void_p),
        ("count", c_uint),
    )  # fmt: skip


class Attribute(ctypes.Structure):
    """CUlaunchAttribute: a union of 64 bytes after its number."""

    _fields_ = (("id", c_int), ("_", c_char * 4), ("value", c_uint * 16))


PROGRAMMATIC: Final = 6
"""CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: may begin before what it follows on its stream has ended."""


class Driver:
    """libcuda, opened and started.  Any thread may call it; most calls want the device's context current there."""

    def __init__(self, path: str | None = None) -> None:
        self.library = _open(path)
        self._functions: dict[str, Any] = {}
        code = int(self._function("cuInit")(0))
        if code:
            raise absence(code, *self.words(code))
        self.run = self._function("cuLaunchKernelEx")
        self.run.argtypes = None  # it is given `byref`s, made once, which need no conversion
        self.replay = self.library["cuGraphLaunch"]  # as `call` has it, but for arguments that were converted before
        self.replay.restype = c_int
        version = c_int()
        self.call("cuDriverGetVersion", byref(version))
        self.version = version.value
        """Of CUDA, as 13000 for 13.0."""

    def _function(self, name: str) -> Any:
        function = self._functions.get(name)
        if function is None:
            try:
                function = self.library[name]  # a new object, whose types no other code sets
            except AttributeError:
                raise BackendUnavailable(
                    f"the NVIDIA driver is too old: it has no {name}; update it to 525 or newer"
                ) from None
            function.argtypes = [LETTERS[letter] for letter in SIGNATURES[name].strip("-")]
            function.restype = c_int
            self._functions[name] = function
        return function

    def call(self, name: str, *args: Any, what: str = "") -> None:
        """Call a function; the error that its result code stands for.  what: was being done, for the message."""
        code = self._function(name)(*args)
        if code:
            raise self.failure(code, what or name)

    def handle(self, name: str, *args: Any, what: str = "") -> int:
        """Call a function that gives a handle through its first argument."""
        handle = c_void_p()
        self.call(name, byref(handle), *args, what=what)
        return handle.value or 0

    def words(self, code: int) -> tuple[str, str]:
        """The driver's name and text of a result code."""
        name, text = c_char_p(), c_char_p()
        self._function("cuGetErrorName")(code, byref(name))
        self._function("cuGetErrorString")(code, byref(text))
        return (name.value or f"CUDA error {code}".encode()).decode(), (text.value or b"").decode()

    def failure(self, code: int, what: str) -> TruenoError:
        """The error for a result code."""
        return failure(code, *self.words(code), what)

    # ---- devices ---------------------------------------------------------------------------------------

    def count(self) -> int:
        """How many GPUs this process may see."""
        count = c_int()
        self.call("cuDeviceGetCount", byref(count))
        return count.value

    def device(self, number: int) -> int:
        device = c_int()
        self.call("cuDeviceGet", byref(device), number)
        return device.value

    def name(self, device: int) -> str:
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, len(text), device)
        return text.value.decode(errors="replace")

    def bus(self, device: int) -> str:
        """Its place, as NVML names it too: 0000:4b:00.0."""
        text = ctypes.create_string_buffer(32)
        self.call("cuDeviceGetPCIBusId", text, len(text), device)
        return text.value.decode(errors="replace")

    def attribute(self, device: int, which: int) -> int:
        attribute = c_int()
        self.call("cuDeviceGetAttribute", byref(attribute), which, device)
        return attribute.value

    def capability(self, device: int) -> tuple[int, int]:
        """Compute capability: (9, 0)."""
        return self.attribute(device, MAJOR), self.attribute(device, MINOR)

    def reaches(self, device: int, other: int) -> bool:
        """Whether kernels of one GPU can read and write another one's memory."""
        answer = c_int()
        self.call("cuDeviceCanAccessPeer", byref(answer), device, other)
        return bool(answer.value)

    def retain(self, device: int) -> int:
        """The primary context, which CuPy and PyTorch use as well; BackendUnavailable where there can be none."""
        context = c_void_p()
        code = self._function("cuDevicePrimaryCtxRetain")(byref(context), device)
        if code:
            raise absence(code, *self.words(code))
        return context.value or 0

    def current(self) -> int:
        """The context of this thread; 0 for none."""
        return self.handle("cuCtxGetCurrent")

    def memory(self) -> tuple[int, int]:
        """Free and total bytes of the context's device."""
        free, total = c_size_t(), c_size_t()
        self.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    # ---- code ------------------------------------------------------------------------------------------

    def load(self, image: bytes, name: str) -> int:
        """A module from PTX or a cubin; KernelError with the JIT's own words, and the lines of PTX that they name."""
        options = _JitLog()
        module = c_void_p()
        code = self._function("cuModuleLoadDataEx")(byref(module), image, *options.arguments)
        if code:
            raise self._refused(code, image, name, options)
        return module.value or 0

    def link(self, ptx: bytes, name: str) -> bytes:
        """The cubin that the driver's linker makes of PTX; KernelError as in `load`."""
        options = _JitLog()
        state, cubin, size = c_void_p(), c_void_p(), c_size_t()
        code = self._function("cuLinkCreate_v2")(*options.arguments, byref(state))
        if code:
            raise self._refused(code, ptx, name, options)
        try:
            text = ptx + b"\0"
            code = self._function("cuLinkAddData_v2")(state, _PTX, text, len(text), name.encode(), 0, None, None)
            code = code or self._function("cuLinkComplete")(state, byref(cubin), byref(size))
            if code:
                raise self._refused(code, ptx, name, options)
            return ctypes.string_at(cubin, size.value)  # it is the state's own memory
        finally:
            self._function("cuLinkDestroy")(state)

    def _refused(self, code: int, image: bytes, name: str, options: "_JitLog") -> TruenoError:
        error = self.failure(code, f"{name} cannot be loaded")
        if not isinstance(error, KernelError) or not options.error:
            return error
        lines = [options.error]
        if image[:4] != b"\x7fELF":
            text = image.decode("ascii", "replace").splitlines()
            named = dict.fromkeys(int(n) for n in re.findall(r"line (\d+)", options.error)[:5])
            lines += [f"line {n}: {text[n - 1].strip()}" for n in named if 0 < n <= len(text)]
        return type(error)("\n".join([str(error), *lines]))

    def function_attribute(self, function: int, which: int) -> int:
        attribute = c_int()
        self.call("cuFuncGetAttribute", byref(attribute), which, function)
        return attribute.value

    # ---- streams, graphs, events, pinned memory --------------------------------------------------------

    def stream(self) -> int:
        """A new stream that waits for no other."""
        return self.handle("cuStreamCreate", _NON_BLOCKING)

    def begin(self, stream: int) -> None:
        """From here on keep what is submitted to a stream, for a graph."""
        self.call("cuStreamBeginCapture_v2", stream, _RELAXED, what="a recording cannot begin")

    def end(self, stream: int) -> int:
        """The graph of what was submitted since `begin`."""
        graph = c_void_p()
        self.call("cuStreamEndCapture", stream, byref(graph), what="a recording failed")
        return graph.value or 0

    def instantiate(self, graph: int) -> int:
        """A graph made ready to run."""
        return self.handle("cuGraphInstantiateWithFlags", graph, 0, what="a recording cannot be made a graph")

    def event(self) -> int:
        return self.handle("cuEventCreate", _NO_TIMING)

    def pinned(self, nbytes: int) -> int:
        """Address of new host memory that the GPU can copy from and to by itself."""
        return self.handle("cuMemHostAlloc", nbytes, _PORTABLE, what=f"pinning {nbytes} bytes of the host's memory")

    def is_pinned(self, address: int) -> bool:
        """Whether host memory is known to the driver, so that an asynchronous copy really is one."""
        kind, wanted = c_uint(), c_int(_MEMORY_TYPE)
        to = (c_void_p * 1)(ctypes.addressof(kind))
        # of memory that it does not know this one gives 0, where cuPointerGetAttribute gives an error
        self.call("cuPointerGetAttributes", 1, byref(wanted), to, address)
        return kind.value != 0


class _JitLog:
    """The options of a load that ask for its error log."""

    def __init__(self) -> None:
        self._errors = ctypes.create_string_buffer(_LOG_BYTES)
        self._keys = (c_int * 2)(_ERROR_LOG, _ERROR_BYTES)
        self._values = (c_void_p * 2)(ctypes.addressof(self._errors), _LOG_BYTES)
        self.arguments = (2, self._keys, self._values)

    @property
    def error(self) -> str:
        return self._errors.value.decode("utf-8", "replace").strip()


_lock = Lock()
_opened: Driver | None = None


def opened() -> Driver:
    """The process's driver; BackendUnavailable where there is none, or it has no GPU."""
    global _opened
    with _lock:
        if _opened is None:
            _opened = Driver()
        return _opened


def _after_fork() -> None:
    """A child asks the driver again, which says whether it can be used there."""
    global _opened, _lock
    _opened, _lock = None, Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def version(path: str | None = None) -> int:
    """CUDA's version that the driver knows, as 13000 for 13.0, without starting it; BackendUnavailable without one."""
    number = c_int()
    _open(path).cuDriverGetVersion(byref(number))  # the one function that may come before cuInit
    return number.value


def _open(path: str | None) -> Any:
    if path is not None:
        names: tuple[str, ...] = (path,)
    elif sys.platform == "win32":
        names = ("nvcuda.dll",)
    else:
        names = ("libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1")
    errors = []
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            errors.append(error)
    raise NoDevice(
        f"there is no NVIDIA driver here ({errors[0]}); install it, and start a container with docker run --gpus all"
    )
