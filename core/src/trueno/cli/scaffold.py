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
api = [1, 1]          # versions of the backend protocol that this implements
kind = "cpu"          # cpu or gpu
tier = 15             # breaks ties of cost: scalar has 10, simd 20
opt_in = false        # true: used only when the user names it
factory = "«package».backend:«title»Backend"
arrays = ["numpy:ndarray"]
install = "pip install «distribution»"

[require]             # checked before any code of this package runs
modules = ["numpy"]
"""

INIT = '''
"""Trueno's backend «name».  Nothing is imported here: the manifest names the factory."""
'''

BACKEND = '''
"""The backend «name»: add functions to KERNELS, run `trueno conformance «name»`."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from trueno.backend import Accuracy, Call, Device, Kernel, Probe, Rates, Reject
from trueno.errors import ShapeError

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def relu(x: Any, y: Any) -> None:
    """max(x, 0) into y."""
    np.maximum(x, 0, out=y)


def sub(x: Any, y: Any, z: Any) -> None:
    """x - y into z; either may be one row for all, one value a row, or one value: NumPy broadcasts."""
    np.subtract(x, y, out=z)


def largest(x: Any, y: Any) -> None:
    """The largest of each row into y."""
    np.max(x, axis=-1, out=y)


KERNELS: dict[str, Callable[..., None]] = {"relu": relu, "sub": sub, "max": largest}
"""Name of the op to its function: `function(*operands, *float parameters, *results, **static parameters)`."""

AXES = {"e": ("rows", "n"), "w": ("n",), "r": ("rows",), "u": ()}
"""What the letters of a layout stand for; a call of rank 1 has no rows."""


def agree(call: Call, operands: tuple[Any, ...], results: tuple[Any, ...]) -> bool:
    """Whether the shapes belong to one call.  The key does not say: the core may pass (3,) beside (4,)."""
    op = call.op
    if op.structured:
        try:
            wanted = op.result_shapes(tuple(x.shape for x in operands), dict(call.static))
        except ShapeError:
            return False
        return tuple(wanted) == tuple(y.shape for y in results)
    along = ("e" if op.over is None or op.over in spec.dims else "r" for spec in op.signature.outputs)
    sizes: dict[str, int] = {}
    for letter, x in zip((*call.layout, *along), (*operands, *results), strict=True):
        axes = [axis for axis in AXES[letter] if call.rank == 2 or axis == "n"]
        if x.ndim != len(axes) or any(sizes.setdefault(a, size) != size for a, size in zip(axes, x.shape, strict=True)):
            return False
    return True


class «title»Backend:
    """Created once per process, without an argument."""

    name = "«name»"
    kind: Literal["cpu", "gpu"] = "cpu"
    # Conformance checks this: errors in ulp of functions such as exp, and the number of successive additions.
    accuracy = Accuracy(default=4.0, chain=76)

    def probe(self, level: int) -> Probe:
        """Level 1: inspect, but start nothing.  Level 2, in a child process: compute something and check it."""
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
            return Reject("unguarded", "the core checks the results")
        return None

    def kernel(self, call: Call) -> Kernel:
        run, op, static = KERNELS[call.op.name], call.op, dict(call.static)
        count, outs = len(op.operands), len(op.signature.outputs)
        # One value per row must be a column for NumPy, which would broadcast it as a row.
        columns = [i for i, letter in enumerate(call.layout) if letter == "r" and call.rank == 2]

        def kernel(*arguments: Any) -> int:
            operands, floats, results = arguments[:count], arguments[count:-outs], arguments[-outs:]
            # The key does not say this, so it is checked here; -1 refuses the call, and nothing may be written before.
            if not agree(call, operands, results):
                return -1
            if not all(x.flags.c_contiguous for x in operands) or not all(y.flags.carray for y in results):
                return -1
            for k, y in enumerate(results):
                if any(np.may_share_memory(y, x) for x in (*operands, *results[:k])):
                    return -1
            given = [x[:, None] if i in columns else x for i, x in enumerate(operands)]
            with np.errstate(all="ignore"):  # inf - inf is NaN; the caller of an op must not see a warning
                run(*given, *floats, *results, **static)
            return 0

        return kernel

    def rates(self, call: Call) -> Rates:
        """Speeds for the selector: seconds to start, flops and bytes per second.  Conformance compares them."""
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
        """This backend holds no resources."""
'''

TEST = '''
"""The whole conformance kit, on this backend: `pytest`, or `trueno conformance «name»`."""

from trueno.testing.suites import *  # noqa: F403

BACKEND = "«name»"
'''

README = """
# «distribution»

A backend of [Trueno](https://pypi.org/project/trueno/).

    pip install -e '.[test]'
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
