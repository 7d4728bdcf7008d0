"""The meaning of the driver's result codes: which error they become, and with which remedy."""

import os
from typing import Final

from trueno.errors import BackendUnavailable, DeviceLost, KernelError, OutOfMemory, TruenoError

OUT_OF_MEMORY: Final = 2
NOT_INITIALIZED: Final = 3
NO_DEVICE: Final = 100
INVALID_CONTEXT: Final = 201
INVALID_HANDLE: Final = 400
ELSEWHERE: Final = (INVALID_CONTEXT, INVALID_HANDLE)
"""What a launch answers where the thread has no context yet, or that of another GPU; nothing was run."""
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"

FORKED: Final = (
    "the GPU was used before this process was forked, and CUDA does not survive that; start processes with the "
    'method "spawn"'
)

_CAUSES: Final = {
    1: "a value that the driver does not take",
    209: "it was compiled for another GPU",
    218: "the driver's JIT refuses its PTX",
    222: "its PTX is newer than the driver; update the driver",
    300: "its text is damaged",
    301: "a file is missing",
    500: "it has no such name",
    701: "a block asks for more registers, threads or shared memory than a multiprocessor has; use a smaller block",
    720: "more blocks than fit on the GPU at once for a cooperative launch",
    900: "this cannot be done inside a recording",
    901: "something that cannot be recorded ran inside a recording, which is lost; record again without it",
    904: "the recording reaches into work outside of it",
    912: "a cluster has more blocks than fit together; use a smaller one",
}
_LOST: Final = {
    4: "the driver is shutting down with the process",
    46: "another process has the GPU to itself (compute mode exclusive)",
    214: "an uncorrectable memory error: look at nvidia-smi -q -d ECC",
    219: "a page fault in the driver",
    220: "a link between GPUs failed",
    226: "the GPU contained a memory error",
    700: "a kernel read or wrote outside of all arrays",
    702: "a kernel ran longer than the display's watchdog allows",
    709: "the context was destroyed by another",
    710: "an assertion in a kernel failed",
    714: "a kernel damaged its stack",
    715: "a kernel ran an illegal instruction",
    716: "a kernel used an address that is not aligned",
    717: "a kernel used an address of another memory space",
    718: "a kernel jumped to nowhere",
    719: "a kernel failed",
    819: "the MPS server ended",
    999: "the driver does not know what",
}
"""After these nothing works on this GPU until the process ends: the context is corrupt."""
_FIND: Final = "find it with TRUENO_BACKEND=cuda_emulated or compute-sanitizer"

_ABSENT: Final = {
    3: FORKED,
    34: "libcuda.so.1 is the toolkit's stub and no driver; take the folder `stubs` out of LD_LIBRARY_PATH",
    46: "another process has the GPU to itself (compute mode exclusive), or it is busy; wait, or choose another GPU",
    101: "there is no GPU of this number; unset TRUENO_CUDA_DEVICE",
    802: "the system is not ready; start nvidia-fabricmanager, which GPUs behind NVSwitch need",
    803: "libcuda and the kernel's driver are of different versions; restart the machine after the driver's update",
    804: "the forward-compatibility libcuda does not take this GPU; remove the package cuda-compat",
    999: "the driver cannot start (CUDA_ERROR_UNKNOWN); see dmesg, and whether /dev/nvidia-uvm exists",
}


def failure(code: int, name: str, text: str, what: str) -> TruenoError:
    """The error for a result code of the driver.  name, text: the driver's own of the code; what: was being done."""
    message = f"{what}: {name} ({text})" if text else f"{what}: {name}"
    if code == OUT_OF_MEMORY:
        return OutOfMemory(f"{message}; free arrays, or work on smaller pieces")
    if code == NOT_INITIALIZED:
        return DeviceLost(f"{message}: {FORKED}")
    if code in _LOST:
        find = f"; {_FIND}" if 700 <= code < 720 and code not in (702, 709) else ""
        return DeviceLost(f"{message}: {_LOST[code]}. This process can use the GPU no more: restart it{find}")
    if code in _CAUSES:
        return KernelError(f"{message}: {_CAUSES[code]}")
    return KernelError(message)


def absence(code: int, name: str, text: str) -> BackendUnavailable:
    """Why there is no device, from the code with which the driver refused to start."""
    if code == OUT_OF_MEMORY:
        return BackendUnavailable("the GPU's memory is full of other processes' data; end them (nvidia-smi lists them)")
    if code == NO_DEVICE:
        return nothing()
    reason = _ABSENT.get(code) or f"the driver cannot be used: {name} ({text}); see whether nvidia-smi works"
    return BackendUnavailable(reason)


class NoDevice(BackendUnavailable):
    """There is no GPU, which is nothing wrong with the installation."""


def nothing() -> BackendUnavailable:
    """Why there is a driver and no GPU."""
    if VISIBLE in os.environ:
        return NoDevice(
            f"{VISIBLE} is {os.environ[VISIBLE]!r}, which hides every GPU; unset it, or name one that exists"
        )
    return NoDevice("the driver finds no GPU; see whether nvidia-smi lists one, and whether the container was given it")
