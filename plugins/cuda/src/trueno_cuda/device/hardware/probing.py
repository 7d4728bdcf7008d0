# mypy: disable-error-code="valid-type"
"""Whether there is a GPU for the kernels, and if not, the reason: a sentence with its remedy, never a traceback."""

from importlib import metadata, util
from typing import Any, Final

import numpy as np
from trueno.backend import Device as Found
from trueno.backend import Probe
from trueno.errors import BackendUnavailable, TruenoError

from trueno_cuda.device.hardware import driver as cuda
from trueno_cuda.device.hardware import targets
from trueno_cuda.device.hardware.driver import Driver
from trueno_cuda.device.hardware.failures import NoDevice
from trueno_cuda.ptx import f32, kernel, ptr

_WHEELS: Final = ("cupy-cuda12x", "cupy-cuda13x", "cupy-cuda11x", "cupy")
_INSTALL: Final = "pip install 'trueno[cuda]', or trueno[cuda12] where the driver is older than 580"


@kernel(threads=1)
def one_and_one(k: Any, a: ptr(f32), out: ptr(f32)) -> None:
    """out[0] = a[0] + a[1].   What level 2 runs."""
    out.store(0, a.load(0) + a.load(1))


def probe(level: int) -> Probe:
    """Level 1 sees whether a driver and a CuPy are there that fit, and starts neither: where a driver has been started,
    forked children cannot use the GPU.  Level 2, in a child process, adds on the GPU that would be used.
    """
    try:
        cupy_is_here()
        version = cuda.version()
        if level < 2:
            from trueno_cuda.device.hardware import runtime  # and CuPy, a third of a second
            from trueno_cuda.device.hardware.choice import outdated

            outdated(version, runtime.VERSION)
            return Probe(True)
        driver = cuda.opened()
        from trueno_cuda.device.hardware import opened
        from trueno_cuda.device.hardware.choice import refusal

        _, number = opened.chosen()
        add(opened.gpu())
    except BackendUnavailable as error:
        return Probe(False, str(error), absent=isinstance(error, NoDevice))
    except TruenoError as error:
        return Probe(False, f"the GPU cannot add: {error}")
    except ImportError as error:
        return Probe(False, f"CuPy cannot be imported ({error}); {_INSTALL}")
    others = [other for other in range(driver.count()) if other != number and not refusal(driver, other)]
    return Probe(True, devices=tuple(_found(driver, one) for one in (number, *others)))


def cupy_is_here() -> None:
    """BackendUnavailable where CuPy is not installed, or twice, which breaks it."""
    here = [name for name in _WHEELS if _installed(name)]
    if len(here) > 1:
        both = " and ".join(here)
        raise BackendUnavailable(
            f"{both} are installed and overwrite each other's files; pip uninstall -y {' '.join(here)}, then {_INSTALL}"
        )
    if not here and util.find_spec("cupy") is None:
        raise BackendUnavailable(f"CuPy is not installed; {_INSTALL}")


def add(device: Any) -> None:
    """Run the smallest kernel, and check it; BackendUnavailable where the sum is wrong."""
    x, out = device.to_device(np.ones(2, np.float32)), device.to_device(np.zeros(1, np.float32))
    device.prepare(one_and_one.build(arch=device.arch), (1, 1, 1))((x.data.ptr, out.data.ptr))
    value = float(device.to_host(out)[0])
    if value != 2.0:
        raise BackendUnavailable(
            f"{device.name} adds 1 and 1 to {value}; do not trust it, and look for errors with dmesg"
        )


def _found(driver: Driver, number: int) -> Found:
    device = driver.device(number)
    return Found(driver.name(device), targets.arch(driver.capability(device)))


def _installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True
