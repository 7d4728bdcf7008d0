"""A pretended GPU that costs nothing and counts its calls, and the program of the gate F-TRUENO-006 around it.

It is registered in a child process, because a registered backend stays.
"""

import json
import sys
from importlib import import_module
from typing import Any

import numpy as np

from trueno.discovery.protocol import Call, Device, Kernel, Probe, Rates
from trueno.discovery.registry import register
from trueno.ops import TABLE
from trueno.ops.op import Op
from trueno.reference import ReferenceBackend
from trueno.testing.case import keywords
from trueno.testing.cases import natural

NAME = "pretended_gpu"
LARGE = 1_000_000
ROWS = 4


class PretendedGpu(ReferenceBackend):
    """NumPy's results at a price of almost nothing."""

    name, kind = NAME, "gpu"
    runs = 0

    def probe(self, level: int) -> Probe:
        return Probe(True, devices=(Device("a pretended GPU", ""),))

    def rates(self, call: Call) -> Rates:
        return Rates(launch_s=1e-12, flops=1e18, bytes=1e18, link_s=1e-12, link_bytes=1e18)

    def kernel(self, call: Call) -> Kernel:
        kernel = super().kernel(call)

        def counted(*arguments: Any) -> Any:
            self.runs += 1
            return kernel(*arguments)

        return counted


def main() -> None:
    """Print the record as JSON; the argument is the number of elements."""
    gpu = PretendedGpu()
    register({"name": NAME, "api": [1, 1], "kind": "gpu", "tier": 99, "install": "nowhere"}, factory=gpu)
    trueno: Any = import_module("trueno")
    rng, elements = np.random.default_rng(), int(sys.argv[1])
    calls = {op.name: _call(trueno, op, rng, elements) for op in TABLE.values() if not op.structured}
    side = round(elements**0.5)
    a, b = rng.standard_normal((2, side, side), np.float32)
    calls |= {"matmul": lambda: trueno.matmul(a, b), "matvec": lambda: trueno.matvec(a, b[0])}
    reached, named = [], 0
    for name, call in calls.items():
        before = gpu.runs
        call()
        reached += [name] * (gpu.runs > before)
    for call in calls.values():
        before = gpu.runs
        with trueno.use(NAME):
            call()
        named += gpu.runs > before
    before = gpu.runs
    trueno.relu(rng.standard_normal(LARGE, np.float32))
    record = {"elements": elements, "ops": len(calls), "on_gpu_unnamed": reached, "on_gpu_named": named}
    print(json.dumps(record | {"million_on_gpu": gpu.runs > before}))


def _call(trueno: Any, op: Op, rng: np.random.Generator, elements: int) -> Any:
    """A call of a row op on as many elements in all."""
    shapes = {"e": (ROWS, elements // ROWS), "w": (elements // ROWS,), "r": (ROWS, 1), "u": (1,)}
    operands = [natural(op, rng, shapes[kind]).astype(np.float32) for kind in op.layout]
    return lambda: getattr(trueno, op.name)(*operands, **keywords(op)[0])
