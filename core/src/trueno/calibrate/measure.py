"""Measuring backends: what `trueno calibrate` runs.

Of each class of op one op is timed, the middle one, at two or three sizes in each band of sizes; what is cheap and
common comes first, so that a short budget is spent on it.  Backends take turns
and each keeps its best, because a neighbour on a shared machine changes absolute times within seconds.  Before a
kernel is timed its results are compared with the reference's.  Compiling is no part of any time.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.calibrate.timing import race
from trueno.discovery import registry
from trueno.discovery.protocol import Backend, Call, Kernel, Rates
from trueno.errors import TruenoError
from trueno.formats import lz4_samples
from trueno.formats.lz4 import missing
from trueno.formats.samples import random_rows
from trueno.judge.compression import PROPERTIES
from trueno.ops import TABLE
from trueno.ops.op import Op
from trueno.select import cost
from trueno.select.available import automatic
from trueno.select.calibration import Row

Array = npt.NDArray[Any]
Shapes = tuple[tuple[int, ...], ...]

SIZES: dict[str, tuple[int, ...]] = {
    "small": (16, 1024, 6144),
    "medium": (12_288, 49_152),
    "large": (98_304, 589_824, 1_572_864),
    "huge": (3_145_728, 8_388_608),
}
"""Elements of the largest array at which each band is measured."""
ORDER = ("large", "small", "medium", "huge")
"""Bands, the most telling first, for budgets that do not reach the end."""
HEAVY = 4.0
"""Flops a byte of a large call from which an op is measured last: products of matrices, attention, eigenvalues."""
ROW = 1024
"""Elements a row of ops that work along rows."""
STACK, WINDOW = 4, 3
"""Leading extent of stacks of matrices; extents of a filter, which are called p and q."""
MOST_FLOPS = 2.5e9
"""Of one call; more takes longer than it tells."""
REQUIRED = (0.7, 1.9, 2.5, 3.5)
"""Values of parameters without default, ascending: min < max."""
LINK_BYTES = (4096, 16 << 20)
"""Sizes of the arrays that measure a link."""
LOOSE = 1e-3
"""How far results may lie from the reference's, as a share of the largest; the conformance kit has real tolerances."""


@dataclass(frozen=True, slots=True)
class Item:
    """One measurement: an op stands for its class, in a dtype and a band, on these backends side by side."""

    kind: str
    op: Op
    dtype: str
    band: str
    backends: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind}, {self.dtype}, {self.band}"


@dataclass(slots=True)
class Outcome:
    """What an item gave: a row for each backend, a sentence for each that was left out, seconds spent in compilers."""

    rows: list[Row] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    compiling: float = 0.0


def available(names: Sequence[str] = ()) -> list[str]:
    """The backends to measure: those named, which must be available, or all that automatic choices consider."""
    if names:
        return [registry.load(name).name for name in names]
    return [entry.name for entry in automatic()]


def typical(backend: str, dtype: npt.DTypeLike = np.float32) -> dict[str, Op]:
    """By class, the op that stands for it: of those that a backend takes, the middle one by flops and operands."""
    taker = registry.load(backend)
    classes: dict[str, list[Op]] = {}
    for op in TABLE.values():
        classes.setdefault(cost.op_class(op), []).append(op)
    chosen = {}
    for kind, ops in classes.items():
        ranked = sorted(ops, key=_weight)
        middle = len(ranked) // 2
        nearest = sorted(range(len(ranked)), key=lambda i: abs(i - middle))
        for i in nearest:
            if taker.supports(_call(ranked[i], np.dtype(dtype), shapes(ranked[i], 1024))) is None:
                chosen[kind] = ranked[i]
                break
    return chosen


def items(backends: Sequence[str], dtypes: Sequence[str]) -> list[Item]:
    """What there is to measure, the cheap and common first.

    Row programs come in the large and the small band, then structured ops, then all of these in the other bands; ops
    that compute much for each byte close, as one of them may take as long as all others.
    """
    takers: dict[tuple[str, str, str], list[str]] = {}
    for dtype in dtypes:
        for name in backends:
            for kind, op in typical(name, dtype).items():
                takers.setdefault((kind, op.name, dtype), []).append(name)
    listed = [
        Item(kind, TABLE[op], dtype, band, tuple(names))
        for (kind, op, dtype), names in takers.items()
        for band in ORDER
        if any(True for _ in calls(TABLE[op], np.dtype(dtype), band))
    ]
    return sorted(listed, key=lambda item: _place(item, dtypes))


def _place(item: Item, dtypes: Sequence[str]) -> tuple[Any, ...]:
    """By what `items` sorts."""
    op, band = item.op, ORDER.index(item.band)
    w = cost.work(_call(op, np.dtype(item.dtype), shapes(op, 1 << 20)))
    heavy = op.structured and w.flops > HEAVY * w.bytes
    return heavy, band > 1, op.structured, dtypes.index(item.dtype), band


def calls(op: Op, dtype: np.dtype[Any], band: str) -> Iterator[Call]:
    """The calls that are timed for an op in a band."""
    return (call for _, call in _wanted(op, dtype, band))


def keys(item: Item) -> list[tuple[int, int]]:
    """Rank and size class of the item's calls, for those who compile ahead."""
    return [(call.rank, call.sizes[0]) for call in calls(item.op, np.dtype(item.dtype), item.band)]


def measure(item: Item, budget: float) -> Outcome:
    """Time an item for about `budget` seconds (compiling excluded): never raises for what a backend does.

    Sizes that no longer fit into it are left out, but for the first.
    """
    outcome, dtype, began = Outcome(), np.dtype(item.dtype), perf_counter()
    failed: dict[str, Exception] = {}  # a backend that fails at one size is measured at none
    samples: dict[str, list[_Sample]] = {name: [] for name in item.backends}
    wanted_here = list(_wanted(item.op, dtype, item.band))
    for extents, call in wanted_here:
        if any(samples.values()) and perf_counter() - began - outcome.compiling > budget:
            break
        operands, params = _operands(item.op, dtype, extents)
        wanted = _reference(call, operands, params)
        ready: dict[str, Callable[[], Any]] = {}
        for name in samples.keys() - failed.keys():
            try:
                backend = registry.load(name)
                if reject := backend.supports(call):
                    raise ValueError(reject.detail or reject.code)
                before = perf_counter()
                kernel = backend.kernel(call)
                outcome.compiling += perf_counter() - before
                ready[name] = _prepared(backend, kernel, call, operands, params, wanted)
            except Exception as error:  # a kernel may raise anything, and the others are wanted all the same
                failed[name] = error
        times, errors = race(ready, budget / len(wanted_here))
        for name, (best, count, spread) in times.items():
            samples[name].append(_Sample(cost.work(call), best, count, spread))
        failed |= errors
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for name, listed in samples.items():
        try:
            if listed and name not in failed:
                rates = fit([(s.work, s.seconds) for s in listed], link(name))
                count, spread = sum(s.count for s in listed), max(s.spread for s in listed)
                outcome.rows.append(Row(name, item.kind, item.dtype, item.band, rates, count, round(spread, 4), now))
        except Exception as error:  # of the link
            failed[name] = error
    for name, problem in failed.items():
        reason = " ".join(str(problem).split())[:200]
        outcome.skipped.append(f"{name}: {item}, {item.op.name}: {reason or type(problem).__name__}")
    return outcome


def fit(points: Sequence[tuple[cost.Work, float]], link: tuple[float, float] = (0.0, math.inf)) -> Rates:
    """The speeds of which the model makes these times: launch and slope by least squares of the relative errors.

    Work is counted in flops, or in bytes for ops that have none; both rates reach their bound together at the point
    with the most bytes a flop, as one op cannot tell which of them bounds it.
    """
    amounts = [w.flops or w.bytes for w, _ in points]
    launch, slope = _line(amounts, [t for _, t in points])
    if any(w.flops for w, _ in points):
        flops = 1 / slope
        return Rates(launch, flops, flops * max(w.bytes / w.flops for w, _ in points if w.flops), *link)
    return Rates(launch, 1 / slope, 1 / slope, *link)


def link(name: str) -> tuple[float, float]:
    """Seconds an array and bytes a second between host and a backend; (0, inf) where arrays are NumPy's. Kept."""
    entry = registry.entries()[name]
    if not entry.foreign:
        return 0.0, math.inf
    backend = registry.load(name)
    if backend not in _links:
        _links[backend] = _link(backend)
    return _links[backend]


_links: dict[Backend, tuple[float, float]] = {}


def _link(backend: Backend) -> tuple[float, float]:
    times = []
    for size in LINK_BYTES:
        x = np.ones(size // 4, np.float32)  # written: pages of zeros are all one page, which the cache holds

        def upload(x: Array = x) -> Any:
            array = backend.to_device(x)
            backend.synchronize()
            return array

        array, out = upload(), np.empty_like(x)
        transfers, errors = race({"up": upload, "down": partial(backend.to_host, array, out)}, 0.1)
        for error in errors.values():
            raise error
        times.append((transfers["up"][0] + transfers["down"][0]) / 2)
    launch, slope = _line([float(s) for s in LINK_BYTES], times)
    return launch, 1 / slope


@dataclass(frozen=True, slots=True)
class _Sample:
    work: cost.Work
    seconds: float
    count: int
    spread: float


def _line(amounts: Sequence[float], times: Sequence[float]) -> tuple[float, float]:
    """(launch ≥ 0, slope > 0) such that launch + slope · amount is near the times, relatively."""
    a = [1 / t for t in times]
    b = [x / t for x, t in zip(amounts, times, strict=True)]
    saa, sab, sbb = (sum(p * q for p, q in zip(u, v, strict=True)) for u, v in ((a, a), (a, b), (b, b)))
    sa, sb, det = sum(a), sum(b), saa * sbb - sab * sab
    launch = (sa * sbb - sb * sab) / det if det > 1e-12 * saa * sbb else -1.0
    slope = (sb * saa - sa * sab) / det if det > 1e-12 * saa * sbb else -1.0
    if launch < 0:  # times grow faster than work; where there was next to none, the time was launching all the same
        launch = 0.5 * times[0] if amounts[0] < 0.01 * amounts[-1] else 0.0
        slope = max(sb - launch * sab, 0.1 * sb) / sbb
    elif slope <= 0:  # nothing but launching shows
        launch, slope = sa / saa, 1e-3 * min(times) / max(amounts)
    return launch, slope


def _wanted(op: Op, dtype: np.dtype[Any], band: str) -> Iterator[tuple[Shapes, Call]]:
    if op.single and dtype != np.float32:
        return
    if op.family == "compression" and (band == "huge" or missing()):  # the reference is slow, and needs a package
        return
    for size in SIZES[band]:
        extents = shapes(op, size)
        call = _call(op, dtype, extents)
        if cost.work(call).flops <= MOST_FLOPS and cost.band(call) == band:
            yield extents, call


def _weight(op: Op) -> tuple[float, int, str]:
    flops = 0.0 if op.structured else op.program().flops[0]
    return flops, len(op.operands), op.name


def shapes(op: Op, size: int) -> Shapes:
    """Operand shapes of a call whose largest array has about `size` elements."""
    if op.family == "compression":
        return lz4_samples.shapes(op.name, size)
    if op.structured:
        specs = (*op.signature.inputs, *op.signature.outputs)
        stacked = op.shapes is None and any(s.leading and not s.index for s in op.signature.inputs)
        lead = (STACK,) if stacked else ()
        side = max(round((size / (STACK if stacked else 1)) ** (1 / max(len(s.dims) for s in specs))), 1)
        extent = {d: min(WINDOW, side) if d in "pq" else side for s in specs for d in s.dims}
        static = {p.name: p.typical for p in op.static}
        while op.misfit(extent, static):
            side += 1
            extent = dict.fromkeys(extent, side)
        held = op.held(extent, static)
        return tuple(
            (*lead, *shape) if s.leading and stacked else shape or (side,)
            for s, shape in zip(op.signature.inputs, held, strict=True)
        )
    if op.over is None or op.reduces or size <= ROW:
        letters = {"e": (size,), "w": (size,), "r": (), "u": ()}
    else:
        letters = {"e": (size // ROW, ROW), "w": (ROW,), "r": (size // ROW,), "u": ()}
    return tuple(letters[kind] for kind in op.layout)


def _call(op: Op, dtype: np.dtype[Any], shapes: Shapes) -> Call:
    counts = [math.prod(shape) for shape in (shapes if op.structured else shapes[:1])]
    static = tuple((p.name, p.typical) for p in op.static)
    return Call(op, dtype, op.layout, len(shapes[0]), tuple(n.bit_length() for n in counts), static)


def _operands(op: Op, dtype: np.dtype[Any], shapes: Shapes) -> tuple[list[Array], list[float]]:
    """Random operands inside the op's domain, and values of its float parameters."""
    rng = np.random.default_rng(0)
    if op.family == "compression":
        return list(lz4_samples.operands(op.name, shapes, rng)), []
    low, high = op.domain or (-2.0, 2.0)
    low, high = max(low, -1e3) if math.isinf(low) else low, low + 2.0 if math.isinf(high) else high
    operands: list[Array] = []
    for spec, shape in zip(op.signature.inputs, shapes, strict=True):
        if spec.index:
            indices = rng.integers(0, len(operands[0]), shape)
            operands.append(np.sort(indices) if spec.name.startswith("offsets") else indices)
        elif spec.blocks:
            operands.append(random_rows(op.blocks({p.name: p.typical for p in op.static}), shape, rng))
        else:
            x = rng.random(shape, np.float32).astype(dtype)
            operands.append(x * dtype.type(0.9 * (high - low)) + dtype.type(low + 0.05 * (high - low)))
    if op.check is not None:
        try:
            op.check(*operands, **{p.name: p.typical for p in op.static if p.name in op.checked})
        except TruenoError:  # a matrix that must be symmetric
            operands = [np.ascontiguousarray((x + x.T) / 2) for x in operands]
    required = dict(zip((p.name for p in op.params if p.required), REQUIRED, strict=False))
    return operands, [float(required.get(p.name, p.default)) for p in op.params if p.symbolic]


def _outs(op: Op, call: Call, operands: Sequence[Array], empty: Callable[..., Any]) -> list[Any]:
    shapes = op.result_shapes(tuple(x.shape for x in operands), dict(call.static))
    kinds = (spec.holds(call.dtype) for spec in op.signature.outputs)
    return [empty(shape, dtype) for shape, dtype in zip(shapes, kinds, strict=True)]


def _reference(call: Call, operands: Sequence[Array], params: Sequence[float]) -> list[Array]:
    """The results by the op's own body, in the call's dtype."""
    outs = _outs(call.op, call, operands, np.empty)
    registry.load("reference").kernel(call)(*operands, *params, *outs)
    return outs


def _prepared(
    backend: Backend,
    kernel: Kernel,
    call: Call,
    operands: Sequence[Array],
    params: Sequence[float],
    wanted: Sequence[Array],
) -> Callable[[], Any]:
    """A thunk that runs the kernel to its end, having run it once and compared; raises a sentence if it is wrong."""
    foreign = registry.entries()[backend.name].foreign
    inputs = [backend.to_device(x) for x in operands] if foreign else list(operands)
    outs = _outs(call.op, call, operands, backend.empty if foreign else np.empty)
    arguments = (*inputs, *params, *outs)
    status = kernel(*arguments)
    backend.synchronize()
    if status == -1:
        raise ValueError("its kernel refuses these operands")
    got = [np.asarray(backend.to_host(out)) if foreign else out for out in outs]
    judged = PROPERTIES.get(call.op.name)
    # Of several results only the first is compared: eigenvectors of near values are free.
    if not (judged(operands, got, call.dtype) if judged else _close(got[0], wanted[0])):
        raise ValueError("its kernel gives wrong numbers; `trueno conformance` says which")
    if not foreign:
        return lambda: kernel(*arguments)

    def run() -> None:
        kernel(*arguments)
        backend.synchronize()

    return run


def _close(got: Array, wanted: Array) -> bool:
    if got.shape != wanted.shape:
        return False
    with np.errstate(all="ignore"):
        largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
        return bool(np.allclose(got, wanted, LOOSE, LOOSE * float(largest), equal_nan=True))
