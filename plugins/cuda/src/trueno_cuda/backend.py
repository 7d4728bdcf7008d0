"""The backends: `cuda` on hardware, `cuda_emulated` on the PTX emulator.  Both run the same kernels."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from trueno.backend import Accuracy, Call, Kernel, Probe, Rates, Reject, settings
from trueno.backend import Device as Found
from trueno.errors import BackendUnavailable

from trueno_cuda.device.protocol import Device

if TYPE_CHECKING:
    from trueno_cuda.kernels.cast import Cast
    from trueno_cuda.kernels.copy import StridedCopy

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
EMULATED = 8
"""The most emulated GPUs: as many as one host has."""
HALVES = ("float16", "bfloat16")
"""What row programs are printed for; the table of structured kernels says it of each."""


class PtxBackend:
    """The common part of both backends: everything but the device."""

    name: str
    kind: Literal["cpu", "gpu"] = "gpu"
    device: Device
    """The process's device, opened at first use."""
    _made: "tuple[StridedCopy, Cast] | None" = None

    @cached_property
    def accuracy(self) -> Accuracy:
        """The measured bounds of the element functions."""
        from trueno_cuda.rows.accuracy import ACCURACY

        return ACCURACY

    def supports(self, call: Call) -> Reject | None:
        if call.guarded and call.dtype.name in HALVES:
            return Reject("unguarded", "guards check values in float32")
        if call.op.structured:
            from trueno_cuda.kernels import KERNELS

            return KERNELS.refusal(call)
        if call.dtype not in FLOATS and call.dtype.name not in HALVES:
            return Reject("unsupported_dtype", f"{call.dtype}: float32 or float64")
        from trueno_cuda.rows import rowprogram

        return rowprogram.refusal(call)

    def kernel(self, call: Call) -> Kernel:
        if call.op.structured:
            from trueno_cuda.kernels import KERNELS

            return KERNELS.kernel(call, self.device)
        from trueno_cuda.rows.rowprogram import kernel

        return kernel(self.device, call)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return self.device.empty(shape, dtype)

    def to_device(self, x: np.ndarray[Any, Any]) -> Any:
        return self.device.to_device(x)

    def to_host(self, x: Any, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        return self.device.to_host(x, out)

    def copy(self, x: Any, out: Any) -> None:
        self.device.copy(x, out)

    def write(self, x: np.ndarray[Any, Any], out: Any) -> None:
        self.device.write(x, out)

    def mirror(self, host: np.ndarray[Any, Any]) -> Any:
        return self.device.mirror(host)

    def fetch(self, x: Any) -> Callable[[], np.ndarray[Any, Any]]:
        return self.device.fetch(x)

    def contiguous(self, x: Any) -> Any:
        """`x`, or a copy in C order: NVRTC would have to compile CuPy's own copy kernel."""
        return self.device.contiguous(x)

    def strided(self, x: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        device = self.device
        x, size = device.contiguous(x), x.dtype.itemsize
        result = device.empty(shape, x.dtype)
        self._moves(device)[0](x.data.ptr, shape, tuple(s * size for s in strides), size, result.data.ptr)
        return result

    def cast(self, x: Any, out: Any) -> None:
        self._moves(self.device)[1](x, out)

    def _moves(self, device: Device) -> "tuple[StridedCopy, Cast]":
        """Copies and casts on the process's device, which may be a different one after a fork."""
        if self._made is None or self._made[0].device is not device:
            from trueno_cuda.kernels.cast import Cast
            from trueno_cuda.kernels.copy import StridedCopy

            self._made = StridedCopy(device), Cast(device)
        return self._made

    def number(self, x: Any) -> int | None:
        there: int = x.data.device_id
        return None if there == self.device.number else there

    def recording(self) -> AbstractContextManager[Any]:
        return self.device.recording()

    def synchronize(self) -> int:
        """Wait; return the status bits of this thread's guarded kernels."""
        bits = self.device.take_status()
        self.device.wait()
        return bits

    def limits(self) -> dict[str, int | None]:
        """The number of multiprocessors, the bytes of shared memory that a block may have, and a GPU's free memory."""
        device = self.device
        free = {} if device.software else {"free_bytes": device.free()}
        return {"sms": device.sms, "shared": device.shared, **free}

    def close(self) -> None:
        self.device.close()


class CudaBackend(PtxBackend):
    """One NVIDIA GPU: the one of a number, or the one that is chosen for this process."""

    def __init__(self, number: int | None = None) -> None:
        self.name = "cuda" if number is None else f"cuda:{number}"
        self._number = number

    @cached_property
    def _opened(self) -> ModuleType:
        """Imported once: this imports CuPy, and `device` is used at every call."""
        from trueno_cuda.device.hardware import opened

        return opened

    @property
    def device(self) -> Device:  # type: ignore[override]
        return self._opened.gpu(self._number)

    def numbered(self, number: int) -> "CudaBackend":
        """The backend of another GPU, with arrays and kernels of its own; itself for its own number."""
        if number == self.device.number:
            return self
        self._opened.chosen(number)  # BackendUnavailable where there is none
        return CudaBackend(number)

    def adopt(self, x: Any) -> Any:
        """A copy of another GPU's array, by the link between them."""
        from trueno_cuda.device.hardware import runtime

        if not runtime.is_array(x):
            return None
        owner = self._opened.of(x.data.device_id) or self._opened.gpu(x.data.device_id)
        return self.device.adopt(x, owner)

    def own_environment(self, call: Call) -> bool:
        """A GPU is independent of the caller's modes; the host rounds numbers to the kernel's dtype."""
        return not call.op.symbolic

    def probe(self, level: int) -> Probe:
        """Level 1 starts no driver; level 2 uses the GPU that would run the calls."""
        from trueno_cuda.device.hardware import probe

        if self._number is not None:  # this process has opened another one, and asks for this one by name
            return Probe(True, devices=(Found(self.device.name, self.device.arch),))
        return probe(level)

    def rates(self, call: Call) -> Rates:
        """An H200's, as they stand beside each structured kernel and beside what runs row programs."""
        if call.op.structured:
            from trueno_cuda.kernels import KERNELS

            return KERNELS.rates(call)
        from trueno_cuda.rows.rowprogram import RATES

        return RATES


class EmulatedBackend(PtxBackend):
    """The PTX emulator: runs only when it is named."""

    def __init__(self, number: int = 0) -> None:
        self.name = f"cuda_emulated:{number}" if number else "cuda_emulated"
        self._number = number

    @cached_property
    def device(self) -> Device:  # type: ignore[override]
        from trueno_cuda.device.emulated import Emulator
        from trueno_cuda.device.hardware.targets import LEAST
        from trueno_cuda.ptx import TARGETS

        wanted = str(settings.get("TRUENO_CUDA_EMULATED_ARCH"))
        known = [t.name for t in TARGETS.values() if t.number >= LEAST[0] * 10 + LEAST[1]]
        if wanted not in known:
            raise BackendUnavailable(f"TRUENO_CUDA_EMULATED_ARCH is {wanted!r}; it must be one of {', '.join(known)}")
        return Emulator(wanted, self._number)

    def numbered(self, number: int) -> "EmulatedBackend":
        """The backend of another emulated GPU, for programs that use several."""
        if number >= EMULATED:
            raise BackendUnavailable(
                f"{self.name}:{number} is not there: emulated GPUs are numbers 0 to {EMULATED - 1}"
            )
        return self if number == self._number else EmulatedBackend(number)

    def adopt(self, x: Any) -> Any:
        """A copy of another emulated GPU's array."""
        from trueno_cuda.device.emulated import Array

        return self.device.adopt(x, None) if isinstance(x, Array) else None

    def probe(self, level: int) -> Probe:
        try:
            arch = self.device.arch
        except BackendUnavailable as error:
            return Probe(False, str(error))
        return Probe(True, devices=(Found("PTX emulator", arch, software=True),))

    def rates(self, call: Call) -> Rates:
        """Python's speed; the emulator is chosen only by name, so this ranks it nowhere."""
        return Rates(launch_s=1e-3, flops=1e6, bytes=1e6, link_s=1e-5, link_bytes=1e9)
