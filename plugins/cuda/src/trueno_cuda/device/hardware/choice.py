"""The choice of the GPU, and the reason why one cannot be used."""

import os
from typing import Final

from trueno.backend import settings
from trueno.errors import BackendUnavailable

from trueno_cuda.device.hardware.driver import COMPUTE_MODE, PROHIBITED, Driver
from trueno_cuda.device.hardware.failures import VISIBLE, nothing
from trueno_cuda.device.hardware.targets import LEAST

SETTING: Final = "TRUENO_CUDA_DEVICE"

NEEDED: Final = {12: "525 or newer", 13: "580 or newer"}
"""Drivers, by CUDA's major."""


def wanted() -> object:
    """The number that the setting names; None where it names none."""
    return settings.get(SETTING) if SETTING in settings.declared() else None


def choose(driver: Driver, wanted: object, current: int) -> int:
    """The number of the GPU that is wanted, else of the current one.  BackendUnavailable where that will not do."""
    count = driver.count()
    if count == 0:
        raise nothing()
    number = current
    if wanted is not None and wanted != "":
        try:
            number = int(str(wanted))
        except ValueError:
            raise BackendUnavailable(f"{SETTING} is {wanted!r}, and must be a GPU's number: 0 to {count - 1}") from None
    if not 0 <= number < count:
        seen = f" ({VISIBLE} is {os.environ[VISIBLE]!r})" if VISIBLE in os.environ else ""
        raise BackendUnavailable(f"{SETTING} is {number}, and there are the GPUs 0 to {count - 1}{seen}")
    reason = refusal(driver, number)
    if reason:
        raise BackendUnavailable(reason)
    return number


def numbered(driver: Driver, number: int) -> int:
    """The number itself; BackendUnavailable where there is no such GPU, or it will not do."""
    count = driver.count()
    if not 0 <= number < count:
        there = "the only GPU is number 0" if count == 1 else f"GPUs have the numbers 0 to {count - 1}"
        seen = f" ({VISIBLE} is {os.environ[VISIBLE]!r})" if VISIBLE in os.environ else ""
        raise nothing() if count == 0 else BackendUnavailable(f"cuda:{number} is not there: {there}{seen}")
    if reason := refusal(driver, number):
        raise BackendUnavailable(reason)
    return number


def refusal(driver: Driver, number: int) -> str:
    """Why a GPU cannot be used; empty where it can."""
    device = driver.device(number)
    name, capability = driver.name(device), driver.capability(device)
    if capability < LEAST:
        return (
            f"GPU {number} ({name}) has compute capability {capability[0]}.{capability[1]}, and the kernels need "
            f"{LEAST[0]}.{LEAST[1]} (Ampere) or newer; use another GPU ({SETTING}), or the backend wgpu"
        )
    if driver.attribute(device, COMPUTE_MODE) == PROHIBITED:
        return f"GPU {number} ({name}) takes no work (compute mode prohibited); run nvidia-smi -i {number} -c DEFAULT"
    return ""


def outdated(version: int, wanted: int) -> None:
    """BackendUnavailable where CuPy was built for a newer CUDA than the driver has; within a major any will do."""
    have, major = version // 1000, wanted // 1000
    if have < major:
        older = f"pip install 'trueno[cuda{have}]', or " if have >= min(NEEDED) else ""
        raise BackendUnavailable(
            f"the NVIDIA driver supports CUDA {have}.{version % 1000 // 10}, and the installed CuPy is for CUDA "
            f"{major}; {older}update the driver to {NEEDED.get(major, 'the newest')}"
        )
