"""Launch kernels once each on the GPU, as the program that compute-sanitizer watches: `python sanitizer_run.py JOB`.

JOB is a file of JSON: `cases`, each with `ptx`, `operands`, `entry`, `grid`, `block` and `shared`; `status`, a file for
what became of them; and `limit`, the seconds after which the process ends itself.  The exit code is always 0, since
compute-sanitizer passes on another one in place of its own.

It calls the driver through ctypes.  That takes a tenth of a second to start, where CuPy takes more than one; every
operand is an allocation of its own, so that memcheck sees where it ends; and the JIT's words are kept.
"""

import ctypes
import json
import signal
import sys
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path

import numpy as np

JIT_LOG, JIT_LOG_BYTES, MOST_DYNAMIC_SHARED = 5, 6, 8  # of cuda.h
LOG = 4096


class Failure(Exception):
    """A call of the driver, and its error's name."""


class Driver:
    """libcuda."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")

    def call(self, name: str, *arguments) -> None:
        code = getattr(self.library, name)(*arguments)
        if code:
            words = ctypes.c_char_p()
            self.library.cuGetErrorName(c_int(code), byref(words))
            raise Failure(f"{name}: {(words.value or str(code).encode()).decode()}")


def operands(path):
    """What `sanitizer_prepare.save` wrote: "pointer", "value" or "empty" (memory that nothing sets), and an array."""
    kinds = {"p": "pointer", "v": "value", "e": "empty"}
    with np.load(path) as file:
        names = sorted(file.files, key=lambda name: int(name[1:]))
        return [(kinds[name[0]], np.ascontiguousarray(file[name])) for name in names]


def device(driver) -> str:
    """Make the GPU's context current; its name."""
    number, context, name = c_int(), c_void_p(), ctypes.create_string_buffer(256)
    driver.call("cuInit", c_uint(0))
    driver.call("cuDeviceGet", byref(number), c_int(0))
    driver.call("cuDeviceGetName", name, c_int(256), number)
    driver.call("cuDevicePrimaryCtxRetain", byref(context), number)
    driver.call("cuCtxSetCurrent", context)
    return name.value.decode()


def load(driver, text: bytes) -> c_void_p:
    module, log = c_void_p(), ctypes.create_string_buffer(LOG)
    options = (c_int * 2)(JIT_LOG, JIT_LOG_BYTES)
    values = (c_void_p * 2)(ctypes.addressof(log), LOG)
    try:
        driver.call("cuModuleLoadDataEx", byref(module), ctypes.c_char_p(text), c_uint(2), options, values)
    except Failure as error:
        raise Failure(f"{error}; {log.value.decode(errors='replace').strip()}") from None
    return module


def launch(driver, case) -> str:
    """Load, launch and wait; "ran", "refused: …" or "failed: …"."""
    function = c_void_p()
    try:
        module = load(driver, Path(case["ptx"]).read_bytes())
        driver.call("cuModuleGetFunction", byref(function), module, case["entry"].encode())
    except Failure as error:
        return f"refused: {error}"
    memory, values = [], []
    try:
        for kind, array in operands(case["operands"]):
            if kind == "value":
                values.append(ctypes.create_string_buffer(array.tobytes(), max(8, array.nbytes)))
                continue
            address = c_uint64()
            driver.call("cuMemAlloc_v2", byref(address), c_size_t(max(1, array.nbytes)))
            memory.append(address)
            if kind == "pointer" and array.nbytes:
                driver.call("cuMemcpyHtoD_v2", address, c_void_p(array.ctypes.data), c_size_t(array.nbytes))
            values.append(address)
        if case["shared"]:
            driver.call("cuFuncSetAttribute", function, c_int(MOST_DYNAMIC_SHARED), c_int(case["shared"]))
        pointers = (c_void_p * max(1, len(values)))(*(ctypes.addressof(value) for value in values))
        sizes = [c_uint(n) for n in (*case["grid"], *case["block"], case["shared"])]
        driver.call("cuLaunchKernel", function, *sizes, c_void_p(), pointers, c_void_p())
        driver.call("cuCtxSynchronize")
        for address in memory:
            driver.call("cuMemFree_v2", address)
        driver.call("cuModuleUnload", module)
    except Failure as error:
        return f"failed: {error}"
    return "ran"


def main(path: str) -> None:
    job = json.loads(Path(path).read_text("utf-8"))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(job["limit"])  # ends the process even in the middle of a call of the driver
    driver, states = Driver(), []

    def note(name: str) -> None:
        Path(job["status"]).write_text(json.dumps({"device": name, "states": states}), "utf-8")

    name = device(driver)
    for case in job["cases"]:
        states.append("started")
        note(name)
        states[-1] = launch(driver, case)
        note(name)


if __name__ == "__main__":
    main(sys.argv[1])
