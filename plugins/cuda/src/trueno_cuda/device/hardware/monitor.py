"""The GPU's current state: memory, load, clocks, temperature.

It comes from NVML; NVIDIA maintains a binding (`pip install nvidia-ml-py`), which is used if installed.  Otherwise
only the driver is queried, which knows the name and the memory.
"""

import sys
from dataclasses import dataclass
from typing import Any

from trueno.errors import TruenoError

from trueno_cuda.device.hardware import driver as cuda
from trueno_cuda.device.hardware.choice import choose, wanted


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at a GPU; None for what cannot be read here.

    memory_used, memory_total: bytes, of all processes.  gpu_load, memory_load: percent of the last second in which a
    kernel ran, and in which memory was read or written.  sm_clock, memory_clock: MHz.  temperature: degrees Celsius.
    power, power_limit: watts.
    """

    name: str
    driver: str
    memory_used: int | None = None
    memory_total: int | None = None
    gpu_load: int | None = None
    memory_load: int | None = None
    sm_clock: int | None = None
    memory_clock: int | None = None
    temperature: int | None = None
    power: float | None = None
    power_limit: float | None = None

    def __str__(self) -> str:
        words = [self.name]
        if self.memory_used is not None and self.memory_total is not None:
            words.append(f"{self.memory_used / 2**30:.1f} of {self.memory_total / 2**30:.1f} GiB")
        for value, unit in (
            (self.gpu_load, "% busy"), (self.sm_clock, " MHz"), (self.temperature, " °C"), (self.power, " W"),
        ):  # fmt: skip
            if value is not None:
                words.append(f"{value:.0f}{unit}")
        return ", ".join(words)


def monitor(number: int | None = None) -> Reading:
    """Look at a GPU; by default at the one that is used.  BackendUnavailable without a driver or a GPU of that number.

    NVML's figures cost no context on the GPU.  Without NVML the memory is read only where the GPU is in use already.
    """
    driver = cuda.opened()
    used = _in_use()
    number = choose(driver, wanted() if number is None else number, 0 if used is None else used.number)
    device = driver.device(number)
    name = driver.name(device)
    version = f"CUDA {driver.version // 1000}.{driver.version % 1000 // 10}"
    try:
        import pynvml
    except ImportError:
        return Reading(name, version, *_memory(number))
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return Reading(name, version, *_memory(number))
    try:
        return _read(pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(driver.bus(device).encode()), name, version)
    except pynvml.NVMLError:
        return Reading(name, version, *_memory(number))
    finally:
        pynvml.nvmlShutdown()


def _read(nvml: Any, handle: Any, name: str, version: str) -> Reading:
    def asked(function: str, *args: Any) -> Any:
        try:
            return getattr(nvml, function)(handle, *args)
        except nvml.NVMLError:  # not of this GPU, or not for this user
            return None

    memory, load = asked("nvmlDeviceGetMemoryInfo"), asked("nvmlDeviceGetUtilizationRates")
    power, limit = asked("nvmlDeviceGetPowerUsage"), asked("nvmlDeviceGetEnforcedPowerLimit")
    return Reading(
        name,
        f"{_text(nvml.nvmlSystemGetDriverVersion())} ({version})",
        memory_used=memory and int(memory.used),
        memory_total=memory and int(memory.total),
        gpu_load=load and int(load.gpu),
        memory_load=load and int(load.memory),
        sm_clock=asked("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
        memory_clock=asked("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
        temperature=asked("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        power=None if power is None else power / 1000,
        power_limit=None if limit is None else limit / 1000,
    )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _in_use() -> Any:
    """The process's GPU, if it was opened; importing CuPy for that would be much."""
    module = sys.modules.get("trueno_cuda.device.hardware.opened")
    return module and module.in_use()


def _memory(number: int) -> tuple[int | None, int | None]:
    gpu = _in_use()
    if gpu is None or gpu.number != number:
        return None, None
    try:
        free, total = gpu.memory()
    except TruenoError:
        return None, None
    return total - free, total
