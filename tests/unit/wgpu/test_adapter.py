"""Which adapter is used: pure policy, and what is said where none will do."""

import os
import subprocess
import sys
from itertools import permutations

import pytest

pytest.importorskip("trueno_wgpu")
from trueno_wgpu.device.adapter import Adapter, absent, choose

H200 = Adapter("NVIDIA H200", "DiscreteGPU", "Vulkan")
H200_GL = Adapter("NVIDIA H200", "Unknown", "OpenGL")
IRIS = Adapter("Intel Iris Xe", "IntegratedGPU", "Vulkan")
ARC = Adapter("Intel Arc A770", "DiscreteGPU", "D3D12")
LLVMPIPE = Adapter("llvmpipe (LLVM 15.0.6, 256 bits)", "CPU", "Vulkan")
LLVMPIPE_GL = Adapter("llvmpipe (LLVM 15.0.6, 256 bits)", "CPU", "OpenGL")
SWIFT = Adapter("SwiftShader Device (Subzero)", "CPU", "Vulkan")


@pytest.mark.parametrize(
    "found, wanted, best",
    [
        ([H200, H200_GL, LLVMPIPE], "", H200),
        ([IRIS, H200, H200_GL], "", H200),
        ([IRIS, H200_GL], "", IRIS),
        ([H200_GL, LLVMPIPE], "", H200_GL),
        ([LLVMPIPE, LLVMPIPE_GL, SWIFT], "", None),
        ([LLVMPIPE_GL, LLVMPIPE, H200], "software", LLVMPIPE),
        ([H200], "software", None),
        ([LLVMPIPE, SWIFT, H200], "swiftshader", SWIFT),
        ([LLVMPIPE, LLVMPIPE_GL, H200], " LLVMpipe ", LLVMPIPE),
        ([IRIS, ARC, H200], "intel", ARC),
        ([IRIS, ARC, H200], "radeon", None),
        ([], "", None),
    ],
)
def test_policy(found, wanted, best):
    """Whatever the order in which they are found."""
    for order in permutations(found):
        assert choose(order, wanted) == best


def test_what_is_said_where_none_will_do():
    said = absent([], "", "linux")
    assert "no adapter was found" in said and "apt-get install mesa-vulkan-drivers libvulkan1" in said
    assert "apt-get" not in absent([], "", "win32")
    said = absent([LLVMPIPE, SWIFT], "", "linux")
    assert "only software" in said and "llvmpipe" in said and "TRUENO_WGPU_ADAPTER=software" in said
    said = absent([H200], "radeon", "linux")
    assert "TRUENO_WGPU_ADAPTER is 'radeon'" in said and "NVIDIA H200 (Vulkan, DiscreteGPU)" in said
    said = absent([H200], "software", "linux")
    assert "no software adapter" in said and "mesa-vulkan-drivers" in said


ASK = """
import sys
import trueno, trueno_wgpu
available = trueno_wgpu.is_available()
assert "wgpu" not in sys.modules
entry = trueno.backends()["wgpu"]
assert entry.available is available
print(entry.available, "|", entry.reason, "|", entry.code, "|", *(d.software for d in entry.devices))
"""


def ask(tmp_path, **extra):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TRUENO_") and k != "FORCE_CPU"}
    environment = kept | {"TRUENO_CACHE_DIR": str(tmp_path)} | extra
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    available, reason, code, software = map(str.strip, done.stdout.split("|"))
    assert (available == "True") == (not reason) == (not code)
    return available == "True", reason, code, software


def test_software_only_when_it_is_named(word, tmp_path):
    """With the kept verdict of one setting never taken for another's."""
    if word != "software":
        pytest.skip("this machine has a GPU")
    assert ask(tmp_path, TRUENO_WGPU_ADAPTER="software") == (True, "", "", "True")
    available, reason, code, _ = ask(tmp_path)
    assert not available and "TRUENO_WGPU_ADAPTER=software" in reason and code == "no_device"
    available, reason, code, _ = ask(tmp_path, TRUENO_WGPU_ADAPTER="riva 128")
    assert not available and "riva 128" in reason and code == "probe_failed", "what was asked for is missing"


def test_no_driver_at_all(word, tmp_path):
    """Neither Vulkan's loader nor Mesa's GL finds a driver: a sentence, no panic."""
    if not sys.platform.startswith("linux"):
        pytest.skip("drivers are hidden by variables of Linux's loaders")
    hidden = {
        "VK_DRIVER_FILES": "/nowhere.json",
        "VK_ICD_FILENAMES": "/nowhere.json",
        "__EGL_VENDOR_LIBRARY_FILENAMES": "/nowhere.json",
    }
    available, reason, code, _ = ask(tmp_path, **hidden)
    assert not available and code == "no_device" and ("no adapter was found" in reason or "only software" in reason)


def test_force_cpu_loads_nothing(word, tmp_path):
    available, reason, code, _ = ask(tmp_path, TRUENO_WGPU_ADAPTER=word, FORCE_CPU="1")
    assert not available and code == "forced_cpu" and "forces the CPU" in reason
