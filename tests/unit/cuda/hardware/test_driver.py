"""The driver by ctypes, against a libcuda that writes down what it is asked."""

import ctypes
import re
import struct
from pathlib import Path

import pytest
from trueno.errors import BackendUnavailable, DeviceLost, KernelError, OutOfMemory
from trueno_cuda.device import hardware
from trueno_cuda.device.hardware.driver import REGISTERS, Driver
from trueno_cuda.device.hardware.failures import absence, failure
from trueno_cuda.device.hardware.signatures import SIGNATURES
from trueno_cuda.device.hardware.tensor_maps import encoded


def test_facts(driver):
    assert driver.version == 13000
    assert driver.count() == 1
    device = driver.device(0)
    assert driver.name(device) == "Stub GPU"
    assert driver.bus(device) == "0000:01:00.0"
    assert driver.capability(device) == (9, 0)


def test_every_function_that_is_named_has_a_signature(driver):
    named = set()
    for path in Path(hardware.__file__).parent.glob("*.py"):
        named |= set(re.findall(r'"(cu[A-Z]\w+)"', path.read_text()))
    assert named == set(SIGNATURES)
    for name in SIGNATURES:
        driver._function(name)


def test_a_missing_driver_is_a_sentence():
    with pytest.raises(BackendUnavailable, match=r"no NVIDIA driver here \(/nowhere.*install it"):
        Driver("/nowhere/libcuda.so.1")


def test_a_function_that_an_old_driver_lacks_is_a_sentence(driver):
    del driver._functions["cuLaunchKernelEx"]
    driver.library = type("Old", (), {"__getitem__": lambda self, name: getattr(self, name)})()
    with pytest.raises(BackendUnavailable, match="too old: it has no cuLaunchKernelEx; update it"):
        driver.call("cuLaunchKernelEx", 0, 0, 0, 0)


@pytest.mark.parametrize(
    "code, words",
    [
        (100, "finds no GPU"),
        (46, "another process"),
        (3, "spawn"),
        (34, "stub"),
        (803, "restart the machine"),
        (999, "dmesg"),
        (12345, "CUDA_ERROR_STUB"),
    ],
)
def test_a_driver_that_does_not_start_is_a_sentence(stub, code, words):
    stub.fail("cuInit", code)
    with pytest.raises(BackendUnavailable, match=words):
        Driver(stub.path)


def test_calls_need_the_context_and_errors_have_names(driver, context):
    with pytest.raises(KernelError, match=r"cuMemGetInfo_v2: CUDA_ERROR_STUB \(said by the stub\)"):
        driver.memory()
    with context:
        assert driver.memory() == (1000, 1 << 30)


@pytest.mark.parametrize(
    "code, kind, words",
    [
        (2, OutOfMemory, "free arrays"),
        (700, DeviceLost, "outside of all arrays.*restart it; find it with TRUENO_BACKEND=cuda_emulated"),
        (716, DeviceLost, "not aligned"),
        (719, DeviceLost, "compute-sanitizer"),
        (46, DeviceLost, "exclusive"),
        (701, KernelError, "smaller block"),
        (222, KernelError, "update the driver"),
        (1, KernelError, "NAME"),
        (54321, KernelError, "NAME"),
    ],
)
def test_result_codes(code, kind, words):
    found = failure(code, "NAME", "text", "what was done")
    assert type(found) is kind
    assert str(found).startswith("what was done: NAME (text)")
    assert re.search(words, str(found))


def test_full_memory_while_opening_is_an_absence():
    assert "nvidia-smi" in str(absence(2, "CUDA_ERROR_OUT_OF_MEMORY", ""))


def test_the_jit_log_and_its_line_are_in_the_error(driver, context):
    text = b"// a\n.version 8.0\n    BROKEN %r1;\n"
    with context, pytest.raises(KernelError) as caught:
        driver.load(text, "add")
    assert "add cannot be loaded: CUDA_ERROR_INVALID_PTX" in str(caught.value)
    assert "line 3; error   : Unknown symbol 'BROKEN'\nline 3: BROKEN %r1;" in str(caught.value)


def test_modules_functions_and_linking(driver, context, stub):
    with context:
        module = driver.load(b"// text", "add")
        function = driver.handle("cuModuleGetFunction", module, b"add")
        assert driver.function_attribute(function, REGISTERS) == 32
        assert driver.link(b"// text", "add") == b"\x7fELF\x01machine code\0"
    assert stub.linked == 1


def test_a_tensor_map_lists_axes_from_the_innermost(driver):
    made = encoded(driver, 0x4000, "bf16", (100, 64), (256,), (32, 16), swizzle=128, nan=True)
    assert struct.unpack("<11Q", made[:88]) == (0x4000, 9, 2, 64, 100, 256, 16, 32, 3, 1, 1)
    assert len(made) == 128


@pytest.mark.parametrize(
    "change, words",
    [
        ({"shape": ()}, "one to five axes"),
        ({"box": (8,)}, "a box of as many"),
        ({"pitches": ()}, "one pitch less"),
        ({"element": "f99"}, "elements are u8"),
        ({"swizzle": 16}, "swizzle"),
    ],
)
def test_bad_tensor_maps(driver, change, words):
    given = {"element": "f32", "shape": (8, 8), "pitches": (32,), "box": (8, 8), "swizzle": 0} | change
    with pytest.raises(KernelError, match=words):
        encoded(driver, 0, **given)


def test_a_tensor_map_that_the_driver_refuses(driver, stub):
    stub.fail("cuTensorMapEncodeTiled", 1)
    with pytest.raises(KernelError, match=r"a tensor map of \(8, 8\) f32, pitches \(33,\), box \(8, 8\): "):
        encoded(driver, 0, "f32", (8, 8), (33,), (8, 8))


def test_memory_that_the_driver_knows(driver, stub):
    ctypes.c_uint64.in_dll(stub.library, "known").value = 0x5000
    assert driver.is_pinned(0x5000) and not driver.is_pinned(0x6000)
