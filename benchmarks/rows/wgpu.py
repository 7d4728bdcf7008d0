"""wgpu on the adapter that it chooses: what a batch saves, what a small call costs, products and kept weights.

Seconds of kernels are those of a submission with many dispatches and one wait, so that neither counts.  The counts of a
batch hold on every adapter; on a software adapter nothing else is measured, as its speed is that of the CPU below it.
"""

from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import trueno
from trueno.discovery import registry
from trueno.dispatch.call import request

from benchmarks.compare import Record
from benchmarks.inputs import values
from benchmarks.rows import Cell, Plan, text
from benchmarks.timing import OURS, Thunk, compare

NAME = "wgpu"
COUNTED, SAVED, SMALL, PRODUCT, VECTOR, KEPT, DECODED, SAMPLED = (
    "counted: relu scale add", "relu scale add", "add, NumPy in and out", "matmul", "matvec", "kept weight",
    "attention_decode", "sample",
)  # fmt: skip
LENGTH, FEW, SIDE, WEIGHT, TOKENS, VOCABULARY = 1_000_000, 1_024, 4096, 1024, 4096, 151_936
SEQUENCES, QUERIES, HEADS, WIDTH, PAGE = 16, 28, 4, 128, 64
"""Of decoding: sequences at once, heads of queries and of keys, numbers of a head, tokens of a page."""
EXPECTED = "2 uploads, 1 download, 1 submit, 1 kernel"
NORMAL = ("normal", 0.0, 1.0)
DISPATCHES = 50
CLOSE = 1e-4
"""Of the largest value: sums of some thousand float32 products in another order."""


def cells(plan: Plan) -> Iterator[Cell]:
    side = 256 if plan.quick else SIDE
    length = 65_536 if plan.quick else LENGTH
    yield Cell(NAME, COUNTED, text((length,)), partial(_counted, length))
    yield Cell(NAME, SAVED, text((length,)), partial(_hardware, SAVED, (length,), _saved, plan))
    yield Cell(NAME, SMALL, text((FEW,)), partial(_hardware, SMALL, (FEW,), _small, plan))
    yield Cell(NAME, PRODUCT, text((side, side)), partial(_hardware, PRODUCT, (side, side), _product, plan))
    yield Cell(NAME, VECTOR, text((side, side)), partial(_hardware, VECTOR, (side, side), _vector, plan))
    tokens, vocabulary = (256, 5_000) if plan.quick else (TOKENS, VOCABULARY)
    yield Cell(
        NAME, DECODED, text((SEQUENCES, tokens)), partial(_hardware, DECODED, (SEQUENCES, tokens), _decoded, plan)
    )
    yield Cell(NAME, SAMPLED, text((vocabulary,)), partial(_hardware, SAMPLED, (vocabulary,), _sampled, plan))
    yield Cell(NAME, KEPT, text((WEIGHT, WEIGHT)), partial(_hardware, KEPT, (WEIGHT, WEIGHT), _kept, plan))


def adapter() -> str:
    """The adapter's name, or why there is none."""
    backend = trueno.backends()[NAME]
    return backend.devices[0].name if backend.available and backend.devices else backend.reason


def _hardware(name: str, shape: tuple[int, ...], measure: Callable[..., Record], plan: Plan) -> list[Record]:
    backend = trueno.backends()[NAME]
    if not backend.available or all(d.software for d in backend.devices):
        return [Record(NAME, name, text(shape), family=NAME)]
    return [measure(shape, plan)]


def _inputs(shape: tuple[int, ...], count: int) -> list[np.ndarray[Any, Any]]:
    return [values(("uniform", -1.0, 1.0), shape, i) for i in range(count)]


def _chain(b: Any, x: Any, y: Any) -> Any:
    return b.add(b.scale(b.relu(x), 2.0), y)


def _counted(n: int) -> list[Record]:
    """A record whose value is 1 where the counts are those that a batch promises."""
    if not trueno.backends()[NAME].available:
        return [Record(NAME, COUNTED, text((n,)), "counts", family=NAME)]
    x, y = _inputs((n,), 2)
    with trueno.Batch(NAME) as b:
        h = _chain(b, b.upload(x), b.upload(y))
        b.execute()
        got, c = b.read(h), b.counts
    shown = f"{c.uploads} uploads, {c.downloads} download, {c.submits} submit, {c.kernels} kernel"
    problem = "" if np.array_equal(got, np.maximum(x, 0) * np.float32(2) + y) else "its result is wrong"
    return [Record(NAME, COUNTED, text((n,)), "counts", float(shown == EXPECTED), shown, family=NAME, problem=problem)]


def _saved(shape: tuple[int, ...], plan: Plan) -> Record:
    """New inputs in, the result out: a batch that is executed again, and three calls."""
    x, y = _inputs(shape, 2)
    out, one, two = (np.empty_like(x) for _ in range(3))
    with trueno.use(NAME), trueno.Batch() as b:
        hx, hy = b.upload(x), b.upload(y)
        h = _chain(b, hx, hy)
        b.execute()

        def batch() -> None:
            b.update(hx, x)
            b.update(hy, y)
            b.execute()
            b.read(h, out)

        def single() -> None:
            trueno.relu(x, out=one)
            trueno.scale(one, 2.0, out=two)
            trueno.add(two, y, out=one)

        batch()
        single()
        timed = compare({OURS: batch, "single": single}, plan.budget)
    problem = "" if np.array_equal(out, one) else "batch and calls disagree"
    return Record(NAME, SAVED, text(shape), "×", timed.ratio, timed.peer, timed.ratios, timed.seconds, NAME, problem)


def _small(shape: tuple[int, ...], plan: Plan) -> Record:
    x, y = _inputs(shape, 2)
    out = np.empty_like(x)
    with trueno.use(NAME):
        best = compare({OURS: lambda: trueno.add(x, y, out=out)}, plan.budget).seconds
    problem = "" if np.array_equal(out, x + y) else "its result is wrong"
    return Record(NAME, SMALL, text(shape), "s", best[OURS], seconds=best, family=NAME, problem=problem)


def _kernel_seconds(call: Thunk, times: int, plan: Plan) -> float:
    """Of one of `times` calls in one submission, the wait taken off: longer by a half, less the shorter."""
    backend: Any = registry.load(NAME)

    def lasting(count: int) -> float:
        start = perf_counter()
        with backend.batch():
            for _ in range(count):
                call()
        backend.synchronize()
        return perf_counter() - start

    lasting(times)
    rounds = range(3 if plan.quick else 15)
    longer, shorter = (min(lasting(n) for _ in rounds) for n in (2 * times, times))
    return (longer - shorter) / times


def _resident(op: Any, operands: tuple[np.ndarray[Any, Any], ...], times: int, plan: Plan) -> tuple[float, str]:
    there = [trueno.to(x, NAME) for x in operands]
    out = op(*there)
    backend: Any = registry.load(NAME)
    kernel = backend.kernel(request(op.op, tuple(there), {}))  # the bare one: Python's part is another row's
    wanted = operands[0][:64].astype(np.float64) @ operands[1].astype(np.float64)
    got = trueno.numpy(out)[:64]
    problem = "" if np.abs(got - wanted).max() <= CLOSE * np.abs(wanted).max() else "its result is wrong"
    return _kernel_seconds(lambda: kernel(*there, out), times, plan), problem


def _product(shape: tuple[int, ...], plan: Plan) -> Record:
    n = shape[0]
    a, b = _inputs(shape, 2)
    seconds, problem = _resident(trueno.matmul, (a, b), 4, plan)
    rate = 2 * n**3 / seconds
    return Record(NAME, PRODUCT, text(shape), "flops", rate, seconds={OURS: seconds}, family=NAME, problem=problem)


def _vector(shape: tuple[int, ...], plan: Plan) -> Record:
    a, x = _inputs(shape, 1)[0], _inputs(shape[1:], 1)[0]
    seconds, problem = _resident(trueno.matvec, (a, x), DISPATCHES, plan)
    rate = 4 * shape[0] * shape[1] / seconds
    return Record(NAME, VECTOR, text(shape), "bytes", rate, seconds={OURS: seconds}, family=NAME, problem=problem)


def _bare(op: Any, there: list[Any], given: dict[str, Any]) -> Any:
    """The kernel of a call without Python's part, which is another row's."""
    scalars = {p.name: given.get(p.name, p.default) for p in op.op.params}
    backend: Any = registry.load(NAME)
    return backend.kernel(request(op.op, tuple(there), scalars))


def _decoded(shape: tuple[int, ...], plan: Plan) -> Record:
    """One query of each sequence against its pages in float16, which lie in any order."""
    count, tokens = shape
    blocks = tokens // PAGE
    keys, numbers = (values(NORMAL, (count * blocks, PAGE, HEADS, WIDTH), i).astype(np.float16) for i in range(2))
    q = values(NORMAL, (count, 1, QUERIES, WIDTH), 2)
    table = np.random.default_rng(0).permutation(count * blocks).reshape(count, blocks)
    lengths = np.full(count, tokens)
    there = [trueno.to(x, NAME) for x in (q, keys.view(np.uint8), numbers.view(np.uint8), table, lengths)]
    out = trueno.attention_decode(*there, format="f16")
    kernel = _bare(trueno.attention_decode, there, {"format": "f16"})
    k, v = (x[table[-1]].reshape(tokens, HEADS, WIDTH)[:, -1].astype(np.float64) for x in (keys, numbers))
    scores = k @ q[-1, 0, -1].astype(np.float64) * WIDTH**-0.5
    weights = np.exp(scores - scores.max())
    near = np.abs(trueno.numpy(out)[-1, 0, -1] - weights @ v / weights.sum()).max() <= CLOSE
    seconds = _kernel_seconds(lambda: kernel(*there, 0.0, 0.0, out), DISPATCHES, plan)
    rate, problem = (keys.nbytes + numbers.nbytes) / seconds, "" if near else "its result is wrong"
    return Record(NAME, DECODED, text(shape), "bytes", rate, seconds={OURS: seconds}, family=NAME, problem=problem)


def _sampled(shape: tuple[int, ...], plan: Plan) -> Record:
    """A token of one row by top_k, top_p, min_p and a temperature."""
    given = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
    logits, r = 3 * values(NORMAL, (1, *shape), 0), np.array([0.4], np.float32)
    there = [trueno.to(x, NAME) for x in (logits, r)]
    out = trueno.sample(*there, **given)
    kernel = _bare(trueno.sample, there, given)
    wanted = trueno.ops.TABLE["sample"].body(logits, r, **given)
    seconds = _kernel_seconds(lambda: kernel(*there, 0.8, 0.95, 0.05, out), DISPATCHES, plan)
    problem = "" if (trueno.numpy(out) == wanted).all() else "its result is wrong"
    return Record(NAME, SAMPLED, text(shape), "s", seconds, seconds={OURS: seconds}, family=NAME, problem=problem)


def _kept(shape: tuple[int, ...], plan: Plan) -> Record:
    """x Wᵀ for one row, W on the device already, and uploaded with every call; and what submits a call."""
    from trueno_wgpu.kernels.cached_matmul import CachedMatmul

    w, x = _inputs(shape, 1)[0], _inputs(shape[1:], 1)[0]
    out, other = np.empty(shape[0], np.float32), np.empty(shape[0], np.float32)
    backend: Any = registry.load(NAME)
    with trueno.use(NAME), CachedMatmul() as weights:
        weights.cache("w", w)
        weights.matmul("w", x, out=out)
        before = backend.gpu.counts.submits
        weights.matmul("w", x, out=out)
        submits = backend.gpu.counts.submits - before
        calls: dict[str, Thunk] = {
            OURS: lambda: weights.matmul("w", x, out=out),
            "uploading": lambda: trueno.matvec(w, x, out=other),
        }
        timed = compare(calls, plan.budget)
    problem = "" if np.allclose(out, other, rtol=1e-4, atol=1e-4) else "kept and uploaded disagree"
    problem = problem or (f"{submits} submits a call" if submits > 3 else "")
    return Record(NAME, KEPT, text(shape), "×", timed.ratio, timed.peer, timed.ratios, timed.seconds, NAME, problem)
