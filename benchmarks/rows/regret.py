"""How well the selector chooses: the time of its choice over the time of the best backend, op by op, size by size.

The backends are measured first, as `trueno calibrate` does; these speeds hold for this run and are not kept.  Then
the bare kernels of all backends race, and the selector, which has seen none of these times, says which it would choose.
A backend that is ten times slower than the best is tried in one run only.  Ops on quantized matrices are left out: the
`quant` rows say how fast they are, and only simd has kernels to choose from; of pages of LZ4 the `lz4` rows do.

Where there is a GPU, the rows of `regret_gpu` are measured instead, with the GPU among the candidates; under
TRUENO_FORCE_CPU=1 these.
"""

from collections.abc import Iterator
from functools import partial
from math import prod
from typing import Any

import numpy as np
from trueno.calibrate import measure
from trueno.discovery import registry
from trueno.discovery.protocol import Call
from trueno.ops import TABLE
from trueno.ops.op import Op
from trueno.select import calibration, cost, policy
from trueno.select.decision import Request

from benchmarks.compare import Record
from benchmarks.inputs import kind, required, values
from benchmarks.rows import CALIBRATION, Cell, Plan, regret_gpu, text
from benchmarks.rows import SIZES as USUAL
from benchmarks.timing import OURS, Budget, bind, fastest, race

SIZES = (1, 16, 256, 4_096, 65_536, 1_048_576, 16_777_216)
QUICK = (16, 4_096, 65_536)
ROW = 1024
CALIBRATION_S = 60.0
MOST_FLOPS = 5e9
"""Of one call: 16 million elements are a matmul of 4096³, which takes seconds and tells nothing new."""
ONE = Budget(rounds=6, seconds=0.06, turn=0.2e-3, runs=2)
TRIAL = Budget(rounds=3, seconds=0.02, turn=0.05e-3, runs=1)
HOPELESS = 10.0
Shapes = tuple[tuple[int, ...], ...]


def cells(plan: Plan) -> Iterator[Cell]:
    """One cell to calibrate, then every op at every size; ops along rows also on many rows."""
    yield from regret_gpu.cells(plan, _shapes, _operands)
    if regret_gpu.gpu():
        return
    sizes = QUICK if plan.quick else SIZES if plan.sizes == USUAL else plan.sizes
    dtype = np.dtype(plan.dtype)
    seconds = CALIBRATION_S / 10 if plan.quick else CALIBRATION_S
    yield Cell("regret", CALIBRATION, "", partial(_calibrate, dtype, seconds))
    for size in sizes:
        for op in (op for op in TABLE.values() if not op.quantized and op.family != "compression"):
            for shapes in _shapes(op, size):
                if cost.work(_call(op, dtype, shapes)).flops <= MOST_FLOPS:
                    label = " ".join(text(s) for s in shapes[: len(shapes) if op.structured else 1])
                    yield Cell("regret", op.name, label, partial(_one, op, dtype, shapes, label))


def _calibrate(dtype: np.dtype[Any], seconds: float) -> list[Record]:
    items = measure.items(measure.available(), [dtype.name])
    rows = [row for item in items for row in measure.measure(item, seconds / len(items)).rows]
    calibration.hold(rows)
    return []


def _shapes(op: Op, size: int) -> Iterator[Shapes]:
    if op.structured:
        yield measure.shapes(op, size)
        return
    yield tuple({"e": (size,), "w": (size,), "r": ()}[letter] for letter in op.layout)
    if op.over is not None and size >= 16 * ROW:
        yield tuple({"e": (size // ROW, ROW), "w": (ROW,), "r": (size // ROW,)}[letter] for letter in op.layout)


def _call(op: Op, dtype: np.dtype[Any], shapes: Shapes) -> Call:
    counts = tuple(prod(s).bit_length() for s in (shapes if op.structured else shapes[:1]))
    return Call(op, dtype, op.layout, len(shapes[0]), counts, tuple((p.name, p.default) for p in op.static))


def _operands(op: Op, dtype: np.dtype[Any], shapes: Shapes) -> list[np.ndarray[Any, Any]]:
    arrays = [values(kind(op), shape, i).astype(dtype, copy=False) for i, shape in enumerate(shapes)]
    for i, spec in enumerate(op.signature.inputs):
        if spec.index:
            indices = np.random.default_rng(i).integers(0, len(arrays[0]), shapes[i])
            arrays[i] = np.sort(indices) if spec.name.startswith("offsets") else indices
    if op.name == "symmetric_eigen":
        arrays[0] = np.ascontiguousarray(arrays[0] + arrays[0].T)
    return arrays


def _one(op: Op, dtype: np.dtype[Any], shapes: Shapes, label: str) -> list[Record]:
    record = Record("regret", op.name, label, family=op.family)
    operands, keywords = _operands(op, dtype, shapes), required(op)
    params = [float(keywords.get(p.name, p.default)) for p in op.params if p.symbolic]
    static = {p.name: p.default for p in op.static}
    results = op.result_shapes(shapes, static)
    outs = [np.empty(s, np.int64 if o.index else dtype) for s, o in zip(results, op.signature.outputs, strict=True)]
    call, calls, arguments = _call(op, dtype, shapes), {}, (*operands, *params, *outs)
    for name in measure.available():
        backend = registry.load(name)
        if registry.entries()[name].foreign or backend.supports(call) is not None:
            continue
        kernel = backend.kernel(call)
        if kernel(*arguments) == -1:
            record.problem = f"{name} refuses these operands"
            continue
        calls[name] = bind(kernel, *arguments)
    first = race(calls, TRIAL, tuple(calls))[0]
    least = min(first.values())
    hopeful = {name: call for name, call in calls.items() if first[name] <= HOPELESS * least}
    runs = race(hopeful, ONE, tuple(hopeful))
    record.seconds = first | fastest(runs)
    choice = policy.decide(call, Request()).chosen
    record.peer = min(record.seconds, key=record.seconds.__getitem__)
    record.ratios = [run.get(choice, first[choice]) / min(run.values()) for run in runs]
    record.seconds = {OURS: record.seconds[choice]} | record.seconds
    record.value = record.seconds[OURS] / record.seconds[record.peer]
    return [record]
