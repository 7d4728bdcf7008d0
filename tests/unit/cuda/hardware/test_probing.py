"""Reasons why there is no GPU: sentences with a remedy, and never a traceback."""

import sys

import numpy as np
import pytest
from trueno.errors import BackendUnavailable
from trueno_cuda.device.hardware import choice, probing, targets
from trueno_cuda.device.hardware import driver as cuda
from unit.cuda.hardware import fake_cupy


def test_a_good_machine(machine):
    found = probing.probe(1)
    assert found.ok and not found.devices
    found = probing.probe(2)
    assert found.ok, found.reason
    assert [(d.name, d.isa) for d in found.devices] == [("Stub GPU", "sm_90a")]


def test_level_1_starts_nothing(machine):
    machine.stub.fail("cuInit", 999)  # which is not called
    assert probing.probe(1).ok
    assert machine.opened._gpu is None


def test_level_2_looks_at_the_sum(machine, monkeypatch):
    monkeypatch.setattr(machine.gpu(), "to_host", lambda x: np.array([3.0], np.float32))
    found = probing.probe(2)
    assert not found.ok and "adds 1 and 1 to 3.0; do not trust it" in found.reason


@pytest.mark.parametrize(
    "change, level, words",
    [
        (lambda m: m.stub.set(devices=0), 2, "the driver finds no GPU; see whether nvidia-smi"),
        (lambda m: m.stub.fail("cuInit", 999), 2, "the driver cannot start"),
        (lambda m: m.stub.fail("cuInit", 804), 2, "remove the package cuda-compat"),
        (lambda m: m.stub.set(major=7, minor=5), 2, "has compute capability 7.5, and the kernels need 8.0"),
        (lambda m: m.stub.set(mode=2), 2, "compute mode prohibited.*nvidia-smi -i 0 -c DEFAULT"),
        (
            lambda m: m.stub.set(version=12040),
            1,
            r"supports CUDA 12.4.* for CUDA 13; pip install 'trueno\[cuda12\]', or",
        ),
        (lambda m: m.stub.set(version=11080), 1, "supports CUDA 11.8.* for CUDA 13; update the driver to 580 or newer"),
        (lambda m: setattr(fake_cupy.KNOBS, "device_error", 46), 2, "another process has the GPU to itself"),
        (lambda m: m.stub.fail("cuDevicePrimaryCtxRetain", 46), 2, "another process has the GPU to itself"),
        (lambda m: m.stub.fail("cuDevicePrimaryCtxRetain", 2), 2, "full of other processes' data"),
        (lambda m: m.stub.fail("cuLaunchKernelEx", 719), 2, "the GPU cannot add: cuda: one_and_one"),
        (lambda m: setattr(fake_cupy.KNOBS, "room", 0), 2, "the GPU cannot add: cuda: no room for 8 bytes"),
    ],
)
def test_reasons(machine, change, level, words):
    import re

    change(machine)
    found = probing.probe(level)
    assert not found.ok and not found.devices
    assert re.search(words, found.reason), found.reason
    assert "\n" not in found.reason
    assert found.absent == ("finds no GPU" in words)


def test_a_probe_asks_again(machine):
    machine.stub.fail("cuInit", 802)
    assert "nvidia-fabricmanager" in probing.probe(2).reason
    assert probing.probe(2).ok


@pytest.mark.parametrize("value", ["", "-1"])
def test_hidden_gpus(machine, monkeypatch, value):
    machine.stub.set(devices=0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert f"CUDA_VISIBLE_DEVICES is {value!r}, which hides every GPU; unset it" in probing.probe(2).reason


def test_no_driver(machine, monkeypatch):
    def missing(path):
        raise BackendUnavailable("there is no NVIDIA driver here")

    monkeypatch.setattr(cuda, "_open", missing)
    assert probing.probe(1).reason == "there is no NVIDIA driver here"


def test_no_cupy(machine, monkeypatch):
    monkeypatch.setattr(probing, "_installed", lambda name: False)
    monkeypatch.setattr(probing.util, "find_spec", lambda name: None)
    assert probing.probe(1).reason.startswith("CuPy is not installed; pip install 'trueno[cuda]'")


def test_a_cupy_that_cannot_be_imported(machine, monkeypatch):
    import trueno_cuda.device.hardware as package

    for name in ("runtime", "gpu", "opened"):
        monkeypatch.delitem(sys.modules, f"trueno_cuda.device.hardware.{name}", raising=False)
        monkeypatch.delattr(package, name, raising=False)
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(probing.util, "find_spec", lambda name: object())
    assert probing.probe(1).reason.startswith("CuPy cannot be imported (")


def test_two_wheels(machine, monkeypatch):
    monkeypatch.setattr(probing, "_installed", lambda name: name in ("cupy-cuda12x", "cupy-cuda13x"))
    reason = probing.probe(1).reason
    assert "cupy-cuda12x and cupy-cuda13x are installed and overwrite" in reason
    assert "pip uninstall -y cupy-cuda12x cupy-cuda13x" in reason


@pytest.mark.parametrize(
    "wanted, words", [("5", "there are the GPUs 0 to 1"), ("-1", "0 to 1"), ("x", "a GPU's number")]
)
def test_a_gpu_that_does_not_exist(driver, stub, wanted, words):
    stub.set(devices=2)
    with pytest.raises(BackendUnavailable, match=words):
        choice.choose(driver, wanted, 0)
    assert choice.choose(driver, "1", 0) == choice.choose(driver, "", 1) == choice.choose(driver, None, 1) == 1


@pytest.mark.parametrize(
    "capability, arch",
    [
        ((8, 0), "sm_80"), ((8, 6), "sm_86"), ((8, 7), "sm_86"), ((8, 9), "sm_89"), ((9, 0), "sm_90a"),
        ((10, 0), "sm_100"), ((10, 3), "sm_100"), ((11, 0), "sm_100"), ((12, 0), "sm_120"), ((12, 1), "sm_120"),
        ((13, 5), "sm_120"),
    ],
)  # fmt: skip
def test_architectures(capability, arch):
    assert targets.arch(capability) == arch
