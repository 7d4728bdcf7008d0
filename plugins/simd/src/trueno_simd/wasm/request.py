"""What a batch's kernels are, said to the process that compiles them for WebAssembly (`trueno_simd.wasm.child`).

A row program travels as its printed text, since a chain of ops is in no table; a structured op by its name.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from trueno.backend import Call
from trueno.errors import KernelError

from trueno_simd.llvm import isa
from trueno_simd.rows.source import printed

STACK = 1 << 20
"""Bytes of the stack, from address 0 on; kernels keep some tens of kilobytes of a tile there."""
CHILD = "from trueno_simd.wasm import child; child.main()"
Steps = Sequence[tuple[Call, Sequence[Any]]]


def module(steps: Steps, memory: np.memmap[Any, Any]) -> tuple[bytes, int]:
    """A module that runs these calls in order, and where `memory`, which holds their arrays, begins in its memory.

    steps: calls of kernels with their arguments, arrays in `memory` and numbers.  The module exports its memory and
    `run()`, which gives 0, or the number of the step, from 1 on, whose kernel refused.  KernelError for a call that has
    no kernel for WebAssembly.
    """
    kernels: list[dict[str, Any]] = []
    numbers: dict[str, int] = {}
    described = []
    for call, arguments in steps:
        kernel = _kernel(call)
        key = json.dumps(kernel)
        if key not in numbers:
            numbers[key] = len(kernels)
            kernels.append(kernel)
        described.append({"op": call.op.name, "kernel": numbers[key],
                          "arguments": [_argument(memory, x) for x in arguments]})  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="trueno-wasm-") as folder:
        out = Path(folder) / "module.wasm"
        _compile({"memory": str(memory.filename), "base": STACK, "out": str(out), "kernels": kernels,
                  "steps": described})  # fmt: skip
        return out.read_bytes(), STACK


def _kernel(call: Call) -> dict[str, Any]:
    if call.op.structured:
        return {"op": call.op.name, "dtype": call.dtype.name, "layout": call.layout, "rank": call.rank,
                "sizes": call.sizes, "static": call.static}  # fmt: skip
    dtype = call.dtype.name
    block = isa.block(dtype, isa.WASM)
    text = printed(call.op, dtype, call.layout, call.rank, call.static, block=block)
    return {"name": call.op.name, "text": text}


def _argument(memory: np.memmap[Any, Any], x: Any) -> Any:
    if not isinstance(x, np.ndarray):
        return float(x)
    return [x.ctypes.data - memory.ctypes.data, x.shape, x.dtype.name]


def _compile(request: dict[str, Any]) -> None:
    """Run the child; KernelError with what it says."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment |= {"NUMBA_OPT": "0", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", CHILD], input=json.dumps(request), env=environment,
                          capture_output=True, text=True)  # fmt: skip
    try:
        problem = json.loads(done.stdout)["problem"]
    except ValueError:
        said = done.stderr.strip().splitlines()[-1:] or [f"it ended with {done.returncode}"]
        raise KernelError(f"WebAssembly: the process that compiles kernels failed ({said[0]})") from None
    if problem:
        raise KernelError(f"WebAssembly: {problem}")


__all__ = ["module"]
