"""What `trueno report` measures: roofs, times of ops on every backend, and their accuracy, each within a time limit."""

from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from functools import partial
from math import isfinite, prod
from time import perf_counter
from typing import Any

import numpy as np

import trueno
from trueno.cli import crew
from trueno.cli.peers import numpy_peer
from trueno.cli.samples import Sample, sample
from trueno.cli.timing import race
from trueno.cli.warmup import warm
from trueno.discovery import registry
from trueno.judge.bound import Bound, judge
from trueno.ops.op import Op
from trueno.report.facts import Judged, Point, Roof
from trueno.select import cost
from trueno.testing.checks import rejected
from trueno.testing.expected import expected, verdict

COLD_S = 0.4
"""A first call that takes longer has compiled something."""
SLOW_S, SLOWER = 0.25, 30.0
"""A backend is not timed at the next size after a call that took this long, or this many times the fastest."""
JUDGED = 1000
"""Elements of the calls that are judged."""
CELL_S = {True: 0.004, False: 0.012}
"""Seconds of timing for one op at one size, quickly and thoroughly."""

Tick = Callable[[str], None]


def roofs(quick: bool) -> list[Roof]:
    """Bytes per second from memory and from caches, and flops per second of products of matrices: the best found.

    Measure them twice, some time apart, and take the higher: other load hides what the machine can do.
    """
    found = []
    for name, elements in (("memory", (4 if quick else 16) << 20), ("cache", 1 << 17)):
        x, y, out = (np.ones(elements, np.float32) for _ in range(3))
        calls: dict[str, Callable[[], Any]] = {
            "NumPy's copy": partial(np.copyto, out, x),
            "trueno.relu": partial(trueno.relu, x, out=out),
            "trueno.add": partial(trueno.add, x, y, out=out),
        }
        seconds = race(calls, 0.08 if quick else 0.4)
        rates = {key: (3 if key.endswith("add") else 2) * x.nbytes / t for key, t in seconds.items()}
        best = max(rates, key=rates.__getitem__)
        found.append(Roof(name, "bytes", rates[best], f"{best} on arrays of {x.nbytes // 1024} KiB"))
    for dtype in ("float32",) if quick else ("float32", "float64"):
        rates = {}
        for n in (256, 512, 1024):  # a short product fits between what else the machine does, a long one fills it
            a = np.ones((n, n), dtype)
            out = np.empty_like(a)
            calls = {"NumPy's matmul": partial(np.matmul, a, a, out=out),
                     "trueno.matmul": partial(trueno.matmul, a, a, out=out)}  # fmt: skip
            for key, t in race(calls, 0.05 if quick else 0.2).items():
                rates[f"{key} of {n}×{n}"] = 2.0 * n**3 / t
        best = max(rates, key=rates.__getitem__)
        found.append(Roof(dtype, "flops", rates[best], best))
    return found


class Measuring:
    """Times of ops, until a deadline; notes: what was left out, and why."""

    def __init__(self, backends: Sequence[str], quick: bool, tick: Tick) -> None:
        self.backends = list(backends)
        self.quick = quick
        self.tick = tick
        self.notes: list[str] = []
        self._warmed = False

    def points(self, plan: Sequence[tuple[Op, Sequence[int]]], deadline: float) -> list[Point]:
        """Each op at its sizes."""
        measured: list[Point] = []
        late = []
        for i, (op, sizes) in enumerate(plan):
            slow: set[str] = set()
            for size in sizes:
                self.tick(op.name)
                if perf_counter() > deadline:
                    late.append(op.name)
                    continue
                try:
                    point, first = self._point(op, size, slow, size == sizes[-1])
                except Exception as error:  # a kernel may raise anything, and the other ops are wanted all the same
                    self.notes.append(f"{op.name} at {size} elements: {type(error).__name__}: {error}")
                    continue
                if point is not None:
                    measured.append(point)
                if first > COLD_S and not self._warmed and len(plan) - i > 3:
                    self._compile(plan[i + 1 :])
        if late:
            self.notes.append(f"no time was left for the times of {', '.join(dict.fromkeys(late))}")
        return measured

    def _compile(self, rest: Sequence[tuple[Op, Sequence[int]]]) -> None:
        """Nothing is compiled yet: child processes compile what is to come, side by side."""
        self._warmed = True
        for backend in self.backends:
            work: list[crew.Work] = []
            for op, sizes in rest:
                if rejected(op, backend, "float32") is None:
                    firsts = [sample(op, "float32", size).operands[0] for size in sizes]
                    work.append((op.name, "float32", [(x.ndim, x.size.bit_length()) for x in firsts]))
            if work:
                warm(backend, work, min(crew.processors(), len(work)))

    def _point(self, op: Op, size: int, slow: set[str], peer: bool) -> tuple[Point | None, float]:
        """One op at one size, and the longest first call; `slow` names backends that are left out from now on."""
        inputs = sample(op, "float32", size)
        calls: dict[str, Callable[[], Any]] = {}
        within: dict[str, Context] = {}
        left_out: dict[str, str] = {}
        first = 0.0
        results: tuple[Any, ...] = ()
        for name in self.backends:
            reject = rejected(op, name, "float32", inputs.kwargs)
            if reject is not None or name in slow:
                left_out[name] = "slow at smaller sizes" if reject is None else reject.detail or reject.code
                continue
            with trueno.use(name):
                within[name] = copy_context()
                function = partial(getattr(trueno, op.name), *inputs.operands, **inputs.kwargs)
                start = perf_counter()
                result = function()
                first = max(first, perf_counter() - start)
            results = result if isinstance(result, tuple) else (result,)
            outs: Any = tuple(np.empty(np.shape(r), np.asarray(r).dtype) for r in results)
            calls[name] = partial(function, out=outs if len(outs) > 1 else outs[0])
        if not calls:
            self.notes.append(f"{op.name} at {size} elements: {'; '.join(f'{k}: {v}' for k, v in left_out.items())}")
            return None, first
        if peer:
            calls["numpy"] = numpy_peer(op, inputs.operands, inputs.kwargs)
        seconds = race(calls, CELL_S[self.quick], within)
        numpy = seconds.pop("numpy", None)
        best = min(seconds.values())
        slow |= {name for name, t in seconds.items() if t > SLOW_S or t > max(SLOWER * best, 1e-3)}
        decision = trueno.explain(op.name, *inputs.operands, **inputs.kwargs)
        flops, moved = amounts(op, inputs, results, decision.call)
        elements = max(np.size(x) for x in (*inputs.operands, *results))
        predicted = {c.name: c.seconds for c in decision.candidates if c.seconds is not None}
        return Point(op.name, op.family, "float32", elements, inputs.shapes, flops, moved, seconds, decision.chosen,
                     decision.by, predicted, numpy, left_out), first  # fmt: skip


def amounts(op: Op, inputs: Sample, results: Sequence[Any], call: Any) -> tuple[float, float]:
    """Flops and bytes of a call: from its shapes; where they do not say, as the selector estimates them."""
    estimate = cost.work(call)
    moved = float(sum(np.asarray(x).nbytes for x in (*inputs.operands, *results)))
    if op.updates or any(spec.index for spec in op.signature.inputs):  # only a part is read or written
        moved = min(moved, estimate.bytes)
    if not op.structured:
        elements = max(np.size(x) for x in inputs.operands)
        along, once = op.program(op.layout, **dict(call.static)).flops
        rows = elements / max(inputs.operands[0].shape[-1], 1)
        return elements * along + rows * once, moved
    static = dict(call.static)
    blocks = op.blocks(static)
    try:
        shapes = tuple(
            spec.meant(op.name, np.shape(x), blocks)
            for spec, x in zip(op.signature.inputs, inputs.operands, strict=True)
        )
        sizes, leading = op.signature.bind(op.name, shapes)
        return op.flops({**static, **sizes}, prod(leading)), moved
    except Exception:  # an op whose shapes its signature does not determine
        return estimate.flops, moved


def accuracy(
    ops: Sequence[Op], backends: Sequence[str], dtypes: Sequence[str], seed: int, deadline: float, tick: Tick
) -> tuple[list[Judged], list[str]]:
    """Every op on every backend that takes it, on random operands; and notes."""
    judged, late, notes = [], [], []
    for dtype in dtypes:
        for backend in backends:
            for op in ops:
                tick(op.name)
                if rejected(op, backend, dtype) is not None:
                    continue
                if perf_counter() > deadline:
                    late.append(f"{op.name} on {backend} in {dtype}")
                    continue
                try:
                    judged.append(_judged(op, backend, dtype, seed))
                except Exception as error:  # as above
                    notes.append(f"{op.name} on {backend} in {dtype}: {type(error).__name__}: {error}")
    if late:
        notes.append(f"no time was left for the accuracy of {len(late)} combinations: {', '.join(late)}")
    return judged, notes


def _judged(op: Op, backend: str, dtype: str, seed: int) -> Judged:
    inputs = sample(op, dtype, JUDGED, seed)
    with trueno.use(backend):
        result = getattr(trueno, op.name)(*inputs.operands, **inputs.kwargs)
    results = [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]
    stated = registry.load(backend).accuracy
    if op.structured:
        v = verdict(op, inputs.operands, inputs.kwargs, dtype, results, stated)
        return Judged(op.name, backend, dtype, v.ok, _finite(v.worst), why="" if v.ok else str(v))
    bounds = expected(op, inputs.operands, inputs.kwargs, dtype, stated)
    verdicts = [judge(got, b) for got, b in zip(results, bounds, strict=True)]
    at = min(range(len(verdicts)), key=lambda i: (verdicts[i].ok, -verdicts[i].worst))
    v = verdicts[at]
    error, allowed = _units(results[at], bounds[at], np.dtype(dtype))
    return Judged(op.name, backend, dtype, v.ok, _finite(v.worst), error, allowed, "" if v.ok else str(v))


def _finite(ratio: float) -> float:
    return ratio if isfinite(ratio) else 0.0


def _units(got: Any, bound: Bound, dtype: np.dtype[Any]) -> tuple[float | None, float | None]:
    """Error and bound, in ulp of the right value, of the element with the largest error."""
    if bound.allowed is not None or got.dtype.kind != "f" or not got.size:
        return None, None
    wide, value = got.astype(np.float64).ravel(), np.asarray(bound.value, np.float64).ravel()
    allowed = np.asarray(bound.error, np.float64).ravel()
    with np.errstate(all="ignore"):
        off = np.abs(wide - value)
        fit = np.isfinite(off) & np.isfinite(allowed) & np.isfinite(value)
        ulp = np.spacing(np.abs(value).astype(dtype)).astype(np.float64)
    if not fit.any():
        return None, None
    at = int(np.argmax(np.where(fit, off / ulp, -1.0)))
    return float(off[at] / ulp[at]), float(allowed[at] / ulp[at])
