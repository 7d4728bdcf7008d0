"""How well the selector chooses where there is a GPU, of host arrays and of arrays that live on it.

A backend's time is that of the whole way: for host arrays a GPU's kernel is ferried there and back, as a call does it;
for the GPU's arrays a CPU's kernel has them copied to the host, and its results back.  Speeds are measured first, of
those classes of ops that race here; they hold for this run and are not kept.  A spread of ops and sizes, not all: it is
over in a minute and a half, compiling included.  The reference, which never is the fastest, races only if it is chosen.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from trueno.calibrate import measure
from trueno.calibrate.timing import race
from trueno.discovery import registry
from trueno.discovery.protocol import Backend, Call
from trueno.dispatch.transfer import stage
from trueno.ops import TABLE
from trueno.ops.op import Op
from trueno.select import calibration, cost, policy
from trueno.select.decision import Request

from benchmarks.compare import Record
from benchmarks.inputs import required
from benchmarks.rows import CALIBRATION, Cell, Plan, text
from benchmarks.rows import SIZES as USUAL
from benchmarks.timing import OURS

OPS = ("add", "gelu", "sum", "softmax", "rms_norm", "matvec", "transpose", "matmul")
SIZES = (1_048_576, 16_777_216, 65_536, 4_194_304, 1_024)
"""The most telling first, in case that time runs out."""
QUICK = (4_096, 262_144)
MOST_FLOPS = 4e10
"""Of one call: a matmul of 2048³ is in, of 4096³ not."""
CALIBRATION_S, CELL_S = 20.0, 0.12
DEADLINE_S = 80.0
"""From the beginning of the calibration: cells that would begin later are left out, and say so."""
HOST, THERE = ", host arrays with a GPU", ", arrays on the GPU"
"""How the names of the cells end, by which the targets find them."""
Make = Callable[[], list[np.ndarray[Any, Any]]]

_began: list[float] = []


def gpu() -> str:
    """The GPU that automatic choices consider, the best by tier; empty where there is none."""
    entries = registry.entries()
    return next((n for n in measure.available() if entries[n].kind == "gpu" and entries[n].foreign), "")


def cells(plan: Plan, shapes: Callable[[Op, int], Any], operands: Callable[..., Any]) -> Iterator[Cell]:
    """One cell to calibrate, then two of every op at every size."""
    asked = plan.sizes not in (USUAL, Plan.short().sizes)
    sizes = plan.sizes if asked else QUICK if plan.quick else SIZES
    dtype = np.dtype(plan.dtype)
    if gpu():
        yield Cell("regret", CALIBRATION, "", partial(_calibrate, dtype, CALIBRATION_S / (10 if plan.quick else 1)))
    for size in sizes:
        for op in map(TABLE.__getitem__, OPS):
            *_, operand_shapes = shapes(op, size)  # of ops along rows the many rows, where there are enough elements
            call = request(op, dtype, operand_shapes)
            if cost.work(call).flops <= MOST_FLOPS:
                label = " ".join(text(s) for s in operand_shapes[: len(operand_shapes) if op.structured else 1])
                for end, race_of in ((HOST, _from_host), (THERE, _on_gpu)):
                    name = op.name + end
                    one = partial(_one, race_of, name, label, call, partial(operands, op, dtype, operand_shapes))
                    yield Cell("regret", name, label, one)


def request(op: Op, dtype: np.dtype[Any], shapes: Any, residency: str = "host") -> Call:
    counts = tuple(int(np.prod(s)).bit_length() for s in (shapes if op.structured else shapes[:1]))
    static = tuple((p.name, p.default) for p in op.static)
    return Call(op, dtype, op.layout, len(shapes[0]), counts, static, residency=residency)


def _calibrate(dtype: np.dtype[Any], seconds: float) -> list[Record]:
    _began[:] = [perf_counter()]
    kinds = {cost.op_class(TABLE[name]) for name in OPS}
    items = [item for item in measure.items(measure.available(), [dtype.name]) if item.kind in kinds]
    rows = [row for item in items for row in measure.measure(item, seconds / len(items)).rows]
    calibration.hold(rows)
    return []


def _one(
    race_of: Callable[..., dict[str, Callable[[], Any]]], name: str, label: str, call: Call, make: Make
) -> list[Record]:
    """The race of one cell, and who was chosen for it."""
    record = Record("regret", name, label, family=call.op.family)
    device = gpu()
    if not device:
        return [record]
    if _began and perf_counter() - _began[0] > DEADLINE_S:
        record.problem = f"left out, as {DEADLINE_S:g} s are over"
        return [record]
    operands = make()
    there = race_of is _on_gpu
    key = request(call.op, call.dtype, [x.shape for x in operands], device if there else "host")
    if there and registry.load(device).supports(key) is not None:
        return [record]
    choice = policy.decide(key, Request(automatic=True)).chosen
    calls = race_of(
        [name for name in measure.available() if name in (choice, device) or name != "reference"], key, operands
    )
    for run in calls.values():
        run()  # compiled, and its pages touched
    timings, failed = race(calls, CELL_S)
    record.problem = "; ".join(f"{who}: {error}" for who, error in failed.items())
    record.seconds = {who: best for who, (best, _, _) in timings.items()}
    if choice not in record.seconds:
        return [record]
    record.peer = min(record.seconds, key=record.seconds.__getitem__)
    record.seconds = {OURS: record.seconds[choice]} | record.seconds
    record.value = record.seconds[OURS] / record.seconds[record.peer]
    record.ratios = [record.value]
    return [record]


def _parts(call: Call, operands: list[np.ndarray[Any, Any]]) -> tuple[list[float], list[np.ndarray[Any, Any]]]:
    """Scalars and results, which have been written once: fresh memory costs everybody its page faults."""
    op, keywords = call.op, required(call.op)
    params = [float(keywords.get(p.name, p.default)) for p in op.params if p.symbolic]
    shapes = op.result_shapes(tuple(x.shape for x in operands), {p.name: p.default for p in op.static})
    outs = [np.ones(s, o.holds(call.dtype)) for s, o in zip(shapes, op.signature.outputs, strict=True)]
    return params, outs


def _able(names: Sequence[str], call: Call) -> Iterator[Backend]:
    return (b for b in map(registry.load, names) if b.supports(call) is None)


def _foreign(backend: Backend) -> bool:
    return registry.entries()[backend.name].foreign


def _from_host(names: Sequence[str], call: Call, operands: list[np.ndarray[Any, Any]]) -> dict[str, Callable[[], Any]]:
    params, outs = _parts(call, operands)
    calls: dict[str, Callable[[], Any]] = {}
    for backend in _able(names, call):
        kernel = backend.kernel(call)
        if _foreign(backend):
            kernel = stage(kernel, backend, call, guarded=False)
        calls[backend.name] = partial(_taken, kernel, *operands, *params, *outs)
    return calls


def _on_gpu(names: Sequence[str], call: Call, operands: list[np.ndarray[Any, Any]]) -> dict[str, Callable[[], Any]]:
    params, outs = _parts(call, operands)
    backend = registry.load(call.residency)
    inputs = [backend.to_device(x) for x in operands]
    results = [backend.empty(o.shape, o.dtype) for o in outs]
    kernel = backend.kernel(call)

    def resident() -> None:
        _taken(kernel, *inputs, *params, *results)
        backend.synchronize()

    def home(kernel: Any) -> None:
        _taken(kernel, *(backend.to_host(x) for x in inputs), *params, *outs)
        for out in outs:
            backend.to_device(out)
        backend.synchronize()

    host = request(call.op, call.dtype, [x.shape for x in operands])
    others = {b.name: partial(home, b.kernel(host)) for b in _able(names, host) if not _foreign(b)}
    return {backend.name: resident, **others}


def _taken(kernel: Any, *arguments: Any) -> None:
    if kernel(*arguments) == -1:
        raise ValueError("its kernel refuses these operands")
