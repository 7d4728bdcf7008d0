"""Quantized products and rows against ggml's, and rows against the package gguf's.

In cache: one matrix again and again.  Streaming: copies taken in turn, more of them than any cache holds.  ggml has two
layouts for some formats, and the better counts.  Products with rows interleaved are compared with our own on plain
rows: what interleaving gains.  Functions of rows run on one thread against ggml's, which have one; against the package
gguf on two, as everything else that is compared with NumPy code.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import numpy as np
import trueno
from trueno.formats import FORMATS, WEIGHTS
from trueno.formats.table import ROWS

from benchmarks.compare import Record
from benchmarks.peers import ggml, recorded
from benchmarks.rows import Cell, Plan
from benchmarks.timing import OURS, Comparison, Thunk, bind, compare

Array = np.ndarray[Any, Any]
GGUF, PLAIN = "gguf", "plain rows"
CACHE, STREAMING = recorded.CACHE, recorded.MEMORY
N, COLUMNS = 4096, (4096, 11008)
MATVEC = ("q4_k", "q5_k", "q6_k", "q8_0", "q4_0", "iq4_xs")
MATMUL, M = ("q4_k", "q6_k"), (8, 32, 128, 512)
THREADS = (1, 2)
BOTH = THREADS[-1]
BLOCKS = {"dequantize": (256, 4096), "quantize_rows": (64, 4096)}
SECONDS = 0.5  # of one run; there are about a hundred cells
CLOSE = 1e-4  # of the largest value: both multiply the same integers, and differ in the order of sums


def cells(plan: Plan) -> Iterator[Cell]:
    plan = replace(plan, budget=replace(plan.budget, seconds=min(plan.budget.seconds, SECONDS)))
    for name in MATVEC[:1] if plan.quick else MATVEC:
        for k in COLUMNS[:1] if plan.quick else COLUMNS:
            for where in (CACHE, STREAMING):
                for threads in THREADS:
                    shape = f"{N}×{k}, {_threads(threads)}, {where}"
                    yield Cell("quant", f"quant_matvec {name}", shape, partial(_matvec, name, k, threads, where, plan))
    for name in MATVEC[:1] if plan.quick else MATVEC:
        for where in (CACHE, STREAMING):
            for threads in THREADS:
                shape = f"{N}×{COLUMNS[0]}, {_threads(threads)}, {where}"
                laid = f"quant_matvec {name}_r{ROWS}"
                yield Cell("quant", laid, shape, partial(_interleaved, name, COLUMNS[0], threads, where, plan))
    for name in MATMUL[:1] if plan.quick else MATMUL:
        for m in M[:2] if plan.quick else M:
            for threads in THREADS:
                shape = f"M={m}, {N}×{N}, {_threads(threads)}"
                yield Cell("quant", f"quant_matmul {name}", shape, partial(_matmul, name, m, threads, plan))
    for op, (m, k) in BLOCKS.items():
        listed = (*WEIGHTS, "q8_k") if op == "dequantize" else WEIGHTS
        for name in ("q4_k", "q4_0") if plan.quick else listed:
            yield Cell("quant", f"{op} {name}", f"{m}×{k}", partial(_rows, op, name, m, k, plan))
            if encodes(op, name):
                shape = f"{m}×{k}, {_threads(BOTH)}, {GGUF}"
                yield Cell("quant", f"{op} {name}", shape, partial(_package, op, name, m, k, plan))


def _threads(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"


def encodes(op: str, name: str) -> bool:
    """Whether the package gguf can do this: it decodes all matrices, and encodes the simple formats."""
    simple = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "mxfp4")
    return name in WEIGHTS if op == "dequantize" else name in simple


def count(threads: int) -> None:
    """Threads of our kernels, once simd has been asked for a kernel: then it has read its own setting."""
    from trueno_simd.threads.pool import set_count

    set_count(threads)


@contextmanager
def counted(threads: int) -> Iterator[None]:
    """Our kernels on so many threads; afterwards on as many as before."""
    from trueno_simd.threads import pool as simd

    before = simd.count()
    count(threads)
    try:
        yield
    finally:
        count(before)


def ours(op: str, *operands: Any, out: Array, **given: str) -> Thunk:
    """The public call."""
    return bind(getattr(trueno, op), *operands, **given, out=out)


def _raced(
    calls: Mapping[str, Thunk], threads: int, plan: Plan, once_measured: float | None, where: str = CACHE
) -> Comparison:
    """Ours against those; against ggml's recorded times, if no peer runs here."""
    with counted(threads):
        comparison = compare(calls, plan.budget)
    if len(calls) > 1 or once_measured is None:
        return comparison
    with counted(threads):
        seconds = once_measured / recorded.faster(where, threads, count)
    return Comparison(
        {**comparison.seconds, recorded.NAME: seconds}, [seconds / comparison.seconds[OURS]], recorded.NAME
    )


def _record(op: str, name: str, shape: str, found: Comparison, problem: str = "") -> list[Record]:
    value = found.ratio if found.ratios else None
    record = Record("quant", f"{op} {name}", shape, "×", value, found.peer, found.ratios, found.seconds, op, problem)
    return [record]


def _disagreeing(calls: dict[str, Thunk], results: Mapping[str, Any], exact: bool) -> str:
    """Run all, remove those that disagree with ours, and name them; exact: bit by bit."""
    for call in calls.values():
        call()
    wanted = np.array(results[OURS]())
    names = []
    for name in list(calls):
        got = np.array(results[name]())
        most = 0.0 if exact else CLOSE * float(np.abs(wanted.astype(np.float64)).max())
        if got.shape != wanted.shape or not (np.array_equal(got, wanted) if exact else _near(got, wanted, most)):
            names.append(name)
            del calls[name]
    return f"disagrees with ours: {', '.join(names)}" if names else ""


def _near(got: Array, wanted: Array, most: float) -> bool:
    return bool((np.abs(got - wanted) <= most).all())  # NaN is not near


# ---- products


def _peers(name: str, k: int, m: int, threads: int, copies: int, w: Array, x: Array) -> dict[str, ggml.MulMat]:
    """ggml's product in each layout that it has for the format."""
    peers: dict[str, ggml.MulMat] = {}
    for title, repack in (("ggml", False), ("ggml repack", True)) if ggml.library() else ():
        try:
            peers[title] = ggml.MulMat(name, N, k, m, threads, repack, copies, w, x)
        except ggml.Unsupported:
            continue
    return peers


def _matvec(name: str, k: int, threads: int, where: str, plan: Plan) -> list[Record]:
    w, x, out = blocks(name, N, k), _activations(1, k)[0], np.empty(N, np.float32)
    copies = ggml.copies(w.nbytes) if where == STREAMING else 1
    each = [w, *(w.copy() for _ in range(copies - 1))]
    listed = [ours("quant_matvec", trueno.QuantizedMatrix(one, (N, k), name), x, out=out) for one in each]
    calls = {OURS: ggml.rotating(listed) if copies > 1 else listed[0]}
    peers = _peers(name, k, 1, threads, copies, w, x)
    shape = f"{N}×{k}, {_threads(threads)}, {where}"
    try:
        return _product("quant_matvec", name, shape, calls, out, peers, threads, plan,
                        recorded.matvec(name, k, where, threads), where)  # fmt: skip
    finally:
        for peer in peers.values():
            peer.close()


def _interleaved(name: str, k: int, threads: int, where: str, plan: Plan) -> list[Record]:
    """Rows interleaved against plain ones: the same kernel but for that, so the ratio is the layout's."""
    w, x = blocks(name, N, k), _activations(1, k)[0]
    plain = trueno.QuantizedMatrix(w, (N, k), name)
    copies = ggml.copies(w.nbytes) if where == STREAMING else 1
    calls: dict[str, Thunk] = {}
    results: dict[str, Any] = {}
    for title, q in ((OURS, plain.interleaved()), (PLAIN, plain)):
        out = np.empty(N, np.float32)
        each = [q.bytes, *(q.bytes.copy() for _ in range(copies - 1))]
        listed = [ours("quant_matvec", trueno.QuantizedMatrix(one, (N, k), q.format), x, out=out) for one in each]
        calls[title] = ggml.rotating(listed) if copies > 1 else listed[0]
        results[title] = lambda out=out: out
    problem = _disagreeing(calls, results, exact=False)
    shape = f"{N}×{k}, {_threads(threads)}, {where}"
    return _record("quant_matvec", f"{name}_r{ROWS}", shape, _raced(calls, threads, plan, None, where), problem)


def _matmul(name: str, m: int, threads: int, plan: Plan) -> list[Record]:
    w, x, out = blocks(name, N, N), _activations(m, N), np.empty((m, N), np.float32)
    calls = {OURS: ours("quant_matmul", x, trueno.QuantizedMatrix(w, (N, N), name), out=out)}
    peers = _peers(name, N, m, threads, 1, w, x)
    shape = f"M={m}, {N}×{N}, {_threads(threads)}"
    try:
        return _product(
            "quant_matmul", name, shape, calls, out, peers, threads, plan, recorded.matmul(name, m, threads)
        )
    finally:
        for peer in peers.values():
            peer.close()


def _product(
    op: str, name: str, shape: str, calls: dict[str, Thunk], out: Array, peers: Mapping[str, ggml.MulMat],
    threads: int, plan: Plan, once_measured: float | None, where: str = CACHE,
) -> list[Record]:  # fmt: skip
    results: dict[str, Any] = {OURS: lambda: out.reshape(-1, N)}
    for title, peer in peers.items():
        calls[title], results[title] = peer.run, peer.result
    problem = _disagreeing(calls, results, exact=False)
    if OURS not in calls:
        return [Record("quant", f"{op} {name}", shape, family=op, problem="ours gives NaN")]
    comparison = _raced(calls, threads, plan, once_measured, where)
    one, seconds = shape.replace(_threads(threads), _threads(1)), comparison.seconds.get(comparison.peer, 0.0)
    if threads == 1:
        _alone[op, name, one] = seconds
    elif seconds > _alone.get((op, name, one), inf):
        comparison = Comparison(comparison.seconds)
    return _record(op, name, shape, comparison, problem)


_alone: dict[tuple[str, str, str], float] = {}
"""What the better peer took on one thread.

If two take longer, some other process had one of the CPUs: ggml's threads wait for each other without giving way, for
a whole time slice then, and ours do not.  That is no ratio of speeds, and none is given.
"""


def _activations(m: int, k: int) -> Array:
    return np.random.default_rng(1).standard_normal((m, k), np.float32)


_made: dict[tuple[str, int, int], Array] = {}


def blocks(name: str, n: int, k: int) -> Array:
    """A matrix in blocks, made by ggml if it can, or by us.  The last is kept."""
    if (name, n, k) not in _made:
        _made.clear()
        _made[name, n, k] = ggml.matrix(name, n, k) if ggml.library() else _encoded(name, n, k)
    return _made[name, n, k]


def _encoded(name: str, n: int, k: int) -> Array:
    sample = np.random.default_rng(0).standard_normal((ggml.SAMPLE, k), np.float32)
    return np.resize(trueno.quantize_rows(sample, format=name), (n, FORMATS[name].row_bytes(k)))


# ---- rows


def _operands(op: str, name: str, m: int, k: int) -> tuple[Array, Array]:
    """What is read, and what is written."""
    x = np.random.default_rng(2).standard_normal((m, k), np.float32)
    if op == "quantize_rows":
        return x, np.zeros((m, FORMATS[name].row_bytes(k)), np.uint8)
    if ggml.library():
        return ggml.quantized(name, x), np.zeros((m, k), np.float32)
    if name in WEIGHTS:
        return trueno.quantize_rows(x, format=name), np.zeros((m, k), np.float32)
    raw = np.random.default_rng(2).integers(0, 64, (m, FORMATS[name].row_bytes(k)), np.uint8)
    return raw, np.zeros((m, k), np.float32)  # small bytes: no exponent is that of a NaN


def _our_rows(op: str, name: str, source: Array, out: Array) -> Thunk:
    if op == "quantize_rows":
        return ours(op, source, format=name, out=out)
    return ours(op, trueno.QuantizedMatrix(source, out.shape, name), out=out)


def _rows(op: str, name: str, m: int, k: int, plan: Plan) -> list[Record]:
    source, out = _operands(op, name, m, k)
    calls, results = {OURS: _our_rows(op, name, source, out)}, {OURS: lambda: out}
    if ggml.library():
        theirs = np.zeros_like(out)
        make = ggml.dequantizer if op == "dequantize" else ggml.quantizer
        calls["ggml"], results["ggml"] = make(name, source, theirs), lambda: theirs
    problem = _disagreeing(calls, results, exact=True)
    return _record(op, name, f"{m}×{k}", _raced(calls, 1, plan, recorded.rows(op, name, m * k)), problem)


def _package(op: str, name: str, m: int, k: int, plan: Plan) -> list[Record]:
    """Against the package gguf, NumPy code that allocates its results."""
    shape = f"{m}×{k}, {_threads(BOTH)}, {GGUF}"
    try:
        import gguf  # takes its time, and few runs ask for these rows alone
    except ImportError:
        return [Record("quant", f"{op} {name}", shape, family=op)]
    source, out = _operands(op, name, m, k)
    function = gguf.quants.dequantize if op == "dequantize" else gguf.quants.quantize
    theirs = bind(function, source, gguf.GGMLQuantizationType(FORMATS[name].type_id))
    calls = {OURS: _our_rows(op, name, source, out), GGUF: theirs}
    problem = _disagreeing(calls, {OURS: lambda: out, GGUF: theirs}, exact=True)
    short = replace(plan, budget=replace(plan.budget, rounds=min(plan.budget.rounds, 10)))
    return _record(op, name, shape, _raced(calls, BOTH, short, None), problem)
