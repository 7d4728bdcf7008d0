"""Row kernels called directly on the emulator, and judged by the program's own bound."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from trueno.discovery.protocol import Call
from trueno.judge.bound import bound, judge
from trueno.ops import TABLE
from trueno_cuda.device.emulated import Array, Emulator
from trueno_cuda.rows.accuracy import ACCURACY
from trueno_cuda.rows.rowprogram import RowKernel


class Inside:
    """An array that begins inside of another's memory, as views do."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, ptr: int) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.data = type("Memory", (), {"ptr": ptr})()


def key(
    op: Any, layout: str = "", dtype: Any = np.float32, rank: int = 2, guarded: bool = False, **static: Any
) -> Call:
    op = TABLE[op] if isinstance(op, str) else op
    chosen = {p.name: p.typical for p in op.static} | static
    return Call(op, np.dtype(dtype), layout or op.layout, rank, (5,), tuple(chosen.items()), "cuda_emulated", guarded)


def results(made: Call, operands: Sequence[Any]) -> list[tuple[tuple[int, ...], Any]]:
    """Shapes and types of what a kernel writes."""
    program = made.op.program(made.layout, **dict(made.static))
    shape: dict[str, int] = {}
    for kind, x in zip(made.layout, operands, strict=True):
        shape |= dict(zip({"e": ("rows", "n"), "w": ("n",), "r": ("rows",), "u": ()}[kind], x.shape, strict=True))
    nodes = [program.nodes[o] for o in program.outputs]
    both = (shape.get("rows", 1), shape.get("n", 1))
    return [(both if n.space == "e" else both[:1], np.int64 if n.type == "index" else made.dtype) for n in nodes]


def run(
    device: Emulator, made: Call, operands: Sequence[Any], params: Sequence[float] = (), schedule: str = ""
) -> list[Any]:
    """Results of a kernel, as NumPy's arrays."""
    outs = [device.empty(shape, np.dtype(dtype)) for shape, dtype in results(made, operands)]
    assert RowKernel(device, made, schedule)(*map(device.to_device, operands), *params, *outs) == 0
    return [device.to_host(out) for out in outs]


def judged(
    device: Emulator, op: Any, operands: Sequence[Any], params: Sequence[float] = (), schedule: str = "", **more: Any
) -> list[Any]:
    """As `run`, after its results have been found right."""
    call = key(op, dtype=operands[0].dtype, **more)
    got = run(device, call, operands, params, schedule)
    program = call.op.program(call.layout, **dict(call.static))
    bounds = bound(program, operands, params, call.dtype, ACCURACY)
    for out, one in zip(got, bounds, strict=True):
        verdict = judge(out.reshape(one.value.shape), one)
        assert verdict, f"{call.op.name} {schedule} {[x.shape for x in operands]}: {verdict}"
    return got


def elements(x: Array) -> Any:
    return x.elements
