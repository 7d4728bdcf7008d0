"""The files of `trueno new-backend`, as templates: `«name»`, `«package»`, `«distribution»`, `«title»` are filled in."""

PROJECT = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "«distribution»"
version = "0.1.0"
description = "A backend of Trueno"
requires-python = ">=3.11"
dependencies = ["trueno>=0.1,<0.2", "numpy>=2.0"]

[project.optional-dependencies]
test = ["pytest>=8.4"]

[project.entry-points."trueno.backends"]  # the value names a file, so that discovery imports nothing
«name» = "«package»:backend.toml"

[tool.setuptools.packages.find]
where = ["src"]

[tool.setuptools.package-data]
"*" = ["*.toml"]
"""

MANIFEST = """
name = "«name»"
api = [1, 1]          # versions of the backend protocol that this speaks
kind = "cpu"          # cpu or gpu
tier = 15             # breaks ties of cost: scalar has 10, simd 20
opt_in = false        # true: used only when it is named
factory = "«package».backend:«title»Backend"
arrays = ["numpy:ndarray"]
install = "pip install «distribution»"

[require]             # looked at before any code of this package runs
modules = ["numpy"]
"""

INIT = '''
"""Trueno's backend «name».  Nothing is imported here: the manifest names the factory."""
'''

BACKEND = '''
"""The backend «name»: start with `relu`, add ops to KERNELS, run `trueno conformance «name»`."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from trueno.discovery.protocol import Accuracy, Call, Device, Kernel, Probe, Rates, Reject

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def relu(x: Any, y: Any) -> None:
    """max(x, 0) into y; both [n] or [rows, n], C-contiguous, of one dtype."""
    np.maximum(x, 0, out=y)


KERNELS: dict[str, Callable[..., None]] = {"relu": relu}
"""Name of the op to what runs: `function(*operands, *float parameters, *results)`."""


class «title»Backend:
    """Made once a process, without an argument."""

    name = "«name»"
    kind: Literal["cpu", "gpu"] = "cpu"
    # What the tests hold you to: error of each element function in ulp, and how many additions follow one another.
    accuracy = Accuracy(default=4.0, chain=76)

    def probe(self, level: int) -> Probe:
        """Level 1: look, but start nothing.  Level 2, in a process of its own: compute something and check it."""
        devices = (Device("NumPy " + np.__version__),)
        if level > 1:
            x, y = np.array([-1, 2], np.float32), np.empty(2, np.float32)
            relu(x, y)
            if y.tolist() != [0, 2]:
                return Probe(False, "relu is wrong here; reinstall numpy", devices)
        return Probe(True, devices=devices)

    def supports(self, call: Call) -> Reject | None:
        if call.op.name not in KERNELS:
            return Reject("unsupported_op", f"no kernel for {call.op.name}")
        if call.dtype not in FLOATS:
            return Reject("unsupported_dtype", f"{call.dtype}: float32 or float64")
        if call.guarded:
            return Reject("unguarded", "the core looks at the results")
        return None

    def kernel(self, call: Call) -> Kernel:
        run = KERNELS[call.op.name]

        def kernel(x: Any, y: Any) -> int:
            # What the key does not say is verified here; -1 means "not for me", and nothing may be written before.
            if x.shape != y.shape or x.ndim != call.rank:
                return -1
            if not (x.flags.c_contiguous and y.flags.c_contiguous and y.flags.writeable):
                return -1
            if x is not y and np.may_share_memory(x, y):
                return -1
            run(x, y)
            return 0

        return kernel

    def rates(self, call: Call) -> Rates:
        """Speeds for the selector: seconds to start, flops and bytes a second.  Conformance compares them."""
        return Rates(launch_s=2e-6, flops=8e9, bytes=3e10)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        return np.empty(shape, dtype)

    def to_device(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return x

    def to_host(self, x: np.ndarray[Any, Any], out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        if out is None:
            return x
        np.copyto(out, x)
        return out

    def synchronize(self) -> None:
        """Every call has finished when it returns."""

    def close(self) -> None:
        """Nothing is held."""
'''

TEST = '''
"""The whole conformance kit, on this backend: `pytest`, or `trueno conformance «name»`."""

from trueno.testing.suites import *  # noqa: F403

BACKEND = "«name»"
'''

README = """
# «distribution»

A backend of [Trueno](https://pypi.org/project/trueno/).

    pip install -e .
    trueno doctor
    trueno conformance «name»

`src/«package»/backend.toml` says what it is and what it needs; `src/«package»/backend.py` holds the kernels.
"""

FILES = {
    "pyproject.toml": PROJECT,
    "README.md": README,
    "src/«package»/__init__.py": INIT,
    "src/«package»/backend.toml": MANIFEST,
    "src/«package»/backend.py": BACKEND,
    "tests/test_conformance.py": TEST,
}
"""Path in the distribution → contents."""
