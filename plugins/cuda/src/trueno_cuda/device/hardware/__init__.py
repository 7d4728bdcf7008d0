"""The device on real hardware.

CuPy gives arrays and memory, and `runtime` is the one file that imports it; everything else uses the driver
directly (`driver`), because CuPy has no JIT log, no launch attributes and no tensor maps, and its launches are slow.
Nothing here may need NVRTC, which CuPy's wheels lack: no element-wise ops, no casts, no `arange` of CuPy.
"""

from typing import TYPE_CHECKING

from trueno.backend import Probe

if TYPE_CHECKING:
    from trueno_cuda.device.hardware.gpu import Gpu


def device() -> "Gpu":
    """The process's GPU, opened when it is first asked for; BackendUnavailable where none can be."""
    from trueno_cuda.device.hardware import opened

    return opened.gpu()


def probe(level: int) -> Probe:
    """Whether there is a GPU that kernels can run on, and why not.  Level 1 opens none; level 2 adds on one."""
    from trueno_cuda.device.hardware import probing

    return probing.probe(level)
