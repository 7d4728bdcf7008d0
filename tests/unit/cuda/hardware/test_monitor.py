"""Readings through NVML's binding where it is, by the driver alone where it is not."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
from trueno.errors import BackendUnavailable
from trueno_cuda.device.hardware.monitor import Reading, monitor


class NVMLError(Exception):
    pass


@pytest.fixture
def nvml(monkeypatch):
    """A pynvml of one GPU that does not tell its power."""
    made, open_ = ModuleType("pynvml"), []

    def refused(handle):
        raise NVMLError

    def by_bus(bus):
        assert bus == b"0000:01:00.0" and open_
        return "handle"

    made.__dict__.update(
        NVMLError=NVMLError, NVML_CLOCK_SM=1, NVML_CLOCK_MEM=2, NVML_TEMPERATURE_GPU=0, open=open_,
        nvmlInit=lambda: open_.append(1), nvmlShutdown=open_.pop, nvmlDeviceGetHandleByPciBusId=by_bus,
        nvmlSystemGetDriverVersion=lambda: "580.1", nvmlDeviceGetPowerUsage=refused,
        nvmlDeviceGetMemoryInfo=lambda h: SimpleNamespace(used=3 << 30, total=8 << 30),
        nvmlDeviceGetUtilizationRates=lambda h: SimpleNamespace(gpu=0, memory=12),
        nvmlDeviceGetClockInfo=lambda h, which: {1: 1980, 2: 3201}[which],
        nvmlDeviceGetTemperature=lambda h, which: 41, nvmlDeviceGetEnforcedPowerLimit=lambda h: 700_000,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "pynvml", made)
    return made


def test_everything(machine, nvml):
    assert monitor() == Reading(
        "Stub GPU", "580.1 (CUDA 13.0)", 3 << 30, 8 << 30, 0, 12, 1980, 3201, 41, None, 700.0
    )  # fmt: skip
    assert str(monitor()) == "Stub GPU, 3.0 of 8.0 GiB, 0% busy, 1980 MHz, 41 °C"
    assert not nvml.open


def test_without_nvml(machine, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert monitor() == Reading("Stub GPU", "CUDA 13.0")
    machine.gpu()
    assert monitor() == Reading("Stub GPU", "CUDA 13.0", (1 << 30) - 1000, 1 << 30)


def test_an_nvml_that_does_not_start(machine, nvml):
    def broken():
        raise NVMLError

    nvml.nvmlInit = broken
    assert monitor() == Reading("Stub GPU", "CUDA 13.0")


def test_no_gpu(machine):
    with pytest.raises(BackendUnavailable, match="GPUs 0 to 0"):
        monitor(1)
    machine.stub.set(devices=0)
    with pytest.raises(BackendUnavailable, match="no GPU"):
        monitor()
