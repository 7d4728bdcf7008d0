"""Batches: what fusing saves, what replaying costs, and how much should become one kernel.

Arrays are uploaded, and results of peers allocated, before the clock starts: `execute()` races calls with `out=`.  The
`limits` rows are not targets: they are the measurements from which the constants of `trueno.batch.fuse` were read off.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import trueno
from trueno.batch import fuse, steps

from benchmarks.compare import Record
from benchmarks.inputs import values
from benchmarks.rows import ROWS, Cell, Plan, text
from benchmarks.timing import OURS, Thunk, compare, fastest, race

BACKEND = "simd"
LENGTHS = (1_000_000, 16_000_000)
LONGEST = 16_000_000
SMALL = 1_024
THREE, EIGHT, NORM, RESIDUAL = "relu scale add", "8 elementwise ops", "layer_norm gelu", "residual_rms_norm scale"
LAYER = "matmul add gelu"
LAYERS = ((1024, 1024, 1024), (32, 1024, 4096))
"""m, k, n: a square layer, and few rows against a wide one."""
DECODE = "decode without attention"
WIDTHS = {"0.5b": (896, 128, 4864, ("q5_0", "q8_0")), "1.5b": (1536, 256, 8960, ("q4_k", "q6_k"))}
"""Of Qwen2.5: numbers of a state, of keys and values, of a feed-forward layer; formats of most matrices, of some."""
DEEP = ("q4_k", "q6_k")
DEPTH = 8  # layers, whose weights no cache holds
AGAIN = "execute beyond its kernels"
SHORT = "200 short kernels"
CHAIN: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("relu", ()), ("scale", (2.0,)), ("add", ("y",)), ("tanh", ()),
    ("mul", ("y",)), ("abs", ()), ("sqrt", ()), ("neg", ()),
)  # fmt: skip


def cells(plan: Plan) -> Iterator[Cell]:
    for n in (100_000,) if plan.quick else LENGTHS:
        yield Cell("batch", THREE, text((n,)), partial(_three, n, plan))
    longest = 100_000 if plan.quick else LONGEST
    yield Cell("batch", EIGHT, text((longest,)), partial(_eight, longest, plan))
    rows = (64, 1024) if plan.quick else ROWS
    yield Cell("batch", NORM, text(rows), partial(_norm, rows, plan))
    yield Cell("batch", RESIDUAL, text(rows), partial(_residual, False, rows, plan))
    yield Cell("batch", f"{RESIDUAL}, sum kept", text(rows), partial(_residual, True, rows, plan))
    for m, k, n in ((64, 64, 64),) if plan.quick else LAYERS:
        yield Cell("batch", LAYER, text((m, k, n)), partial(_layer, m, k, n, plan))
    for shape in list(WIDTHS)[: 1 if plan.quick else None]:
        depth = 2 if plan.quick else DEPTH
        yield Cell("batch", DECODE, _layers(shape, depth), partial(_decode, shape, depth, plan))
    yield Cell("batch", AGAIN, text((SMALL,)), partial(_again, plan))
    yield Cell("batch", SHORT, text((64,)), partial(_short, plan))
    if not plan.quick:
        for name, limits in LIMITS.items():
            for shape in SHAPES[name]:
                yield Cell("batch", f"limits {name}", text(shape), partial(_limits, name, limits, shape, plan))


def _inputs(shape: tuple[int, ...], count: int) -> list[np.ndarray[Any, Any]]:
    return [values(("uniform", -1.0, 1.0), shape, i) for i in range(count)]


def _record(name: str, shape: tuple[int, ...], calls: dict[str, Thunk], plan: Plan) -> list[Record]:
    timed = compare(calls, plan.budget)
    return [Record("batch", name, text(shape), "×", timed.ratio, timed.peer, timed.ratios, timed.seconds, "batch")]


def _three(n: int, plan: Plan) -> list[Record]:
    x, y = _inputs((n,), 2)
    one, two, three = (np.empty_like(x) for _ in range(3))
    factor = np.float32(2.0)

    def numpy() -> None:
        np.maximum(x, 0, out=one)
        np.multiply(one, factor, out=two)
        np.add(two, y, out=three)

    with trueno.Batch(BACKEND) as b:
        h = b.add(b.scale(b.relu(b.upload(x)), 2.0), b.upload(y))
        b.execute()
        numpy()
        np.testing.assert_array_equal(b.read(h), three)
        return _record(THREE, (n,), {OURS: b.execute, "numpy": numpy}, plan)


def _eight(n: int, plan: Plan) -> list[Record]:
    x, y = _inputs((n,), 2)
    out = [np.empty_like(x), np.empty_like(x)]
    with trueno.use(BACKEND), trueno.Batch() as b:
        h, hy = b.upload(x), b.upload(y)
        for name, more in CHAIN:
            h = getattr(b, name)(h, *(hy if m == "y" else m for m in more))
        b.execute()
        calls = [(getattr(trueno, name), tuple(y if m == "y" else m for m in more)) for name, more in CHAIN]

        def single() -> Any:
            value = x
            for i, (function, more) in enumerate(calls):
                value = function(value, *more, out=out[i % 2])
            return value

        np.testing.assert_allclose(b.read(h), single(), rtol=1e-5)
        return _record(EIGHT, (n,), {OURS: b.execute, "single": single}, plan)


def _norm(shape: tuple[int, ...], plan: Plan) -> list[Record]:
    (x,) = _inputs(shape, 1)
    w, bias = _inputs(shape[-1:], 2)
    one, two = np.empty_like(x), np.empty_like(x)
    with trueno.use(BACKEND), trueno.Batch() as b:
        h = b.gelu(b.layer_norm(b.upload(x), b.upload(w), b.upload(bias)))
        b.execute()

        def single() -> None:
            trueno.layer_norm(x, w, bias, out=one)
            trueno.gelu(one, out=two)

        single()
        np.testing.assert_allclose(b.read(h), two, rtol=1e-4, atol=1e-6)
        return _record(NORM, shape, {OURS: b.execute, "single": single}, plan)


def _residual(kept: bool, shape: tuple[int, ...], plan: Plan) -> list[Record]:
    """rms_norm of x + residual, scaled; kept: x + residual is a result too, which the batch then has to write.

    Against three calls, and against the two that residual_rms_norm leaves, which write x + residual in any case.
    """
    x, residual = _inputs(shape, 2)
    (w,) = _inputs(shape[-1:], 1)
    one, two, three = (np.empty_like(x) for _ in range(3))
    with trueno.use(BACKEND), trueno.Batch() as b:
        both = b.residual_rms_norm(b.upload(x), b.upload(residual), b.upload(w))
        h = b.scale(both[1], 0.5)
        if not kept:
            del both
        b.execute()

        def single() -> None:
            trueno.add(x, residual, out=one)
            trueno.rms_norm(one, w, out=two)
            trueno.scale(two, 0.5, out=three)

        def double() -> None:
            trueno.residual_rms_norm(x, residual, w, out=(one, two))
            trueno.scale(two, 0.5, out=three)

        single()
        np.testing.assert_allclose(b.read(h), three, rtol=1e-4, atol=1e-6)
        name = f"{RESIDUAL}, sum kept" if kept else RESIDUAL
        return _record(name, shape, {OURS: b.execute, "single": single, "double": double}, plan)


def _layer(m: int, k: int, n: int, plan: Plan) -> list[Record]:
    """gelu(x·w + bias): the epilogue runs on each block of the product while it is in cache."""
    x, w, bias = (values(("uniform", -1.0, 1.0), shape, i) for i, shape in enumerate(((m, k), (k, n), (n,))))
    one, two, three = (np.empty((m, n), np.float32) for _ in range(3))
    with trueno.use(BACKEND), trueno.Batch() as b:
        h = b.gelu(b.add(b.matmul(b.upload(x), b.upload(w)), b.upload(bias)))
        b.execute()
        assert b.counts.kernels == 1

        def single() -> None:
            trueno.matmul(x, w, out=one)
            trueno.add(one, bias, out=two)
            trueno.gelu(two, out=three)

        single()
        np.testing.assert_allclose(b.read(h), three, rtol=1e-3, atol=1e-4)
        return _record(LAYER, (m, k, n), {OURS: b.execute, "single": single}, plan)


def _layers(shape: str, depth: int) -> str:
    return f"{shape}, {depth} layers"


def _decode(shape: str, depth: int, plan: Plan) -> list[Record]:
    """The products of a few layers for one token, and what is between them but attention; against the same unfused."""
    width, keys, feed, formats = WIDTHS[shape]
    layers = []
    for i in range(depth):
        some, deep = formats[i % 3 == 2], DEEP[i % 3 == 2]
        sizes = {"q": (width, width, formats[0]), "k": (keys, width, formats[0]), "v": (keys, width, some),
                 "o": (width, width, formats[0]), "gate": (feed, width, formats[0]), "up": (feed, width, formats[0]),
                 "down": (width, feed, deep)}  # fmt: skip
        layers.append({name: _blocks(*size, i) for name, size in sizes.items()})
    (state, weight), biases = _inputs((width,), 2), {"q": _inputs((width,), 1)[0], "k": _inputs((keys,), 1)[0]}
    calls: dict[str, Thunk] = {}
    results = []
    for name, fused in ((OURS, True), ("unfused", False)):
        with _unfused(not fused):
            b = trueno.Batch(BACKEND)
            x, norm = b.upload(state), b.upload(weight)
            y, kept = b.rms_norm(x, norm), []
            for layer in layers:
                w = {name: b.upload(matrix) for name, matrix in layer.items()}
                q, k, v = (
                    b.bias_activation(b.quant_matvec(w[part], y), b.upload(biases[part.replace("v", "k")]),
                                      activation="none") for part in "qkv"
                )  # fmt: skip
                kept += [k, v]
                x, y = b.residual_rms_norm(b.quant_matvec(w["o"], q), x, norm)
                gated = b.swiglu(b.quant_matvec(w["gate"], y), b.quant_matvec(w["up"], y))
                x, y = b.residual_rms_norm(b.quant_matvec(w["down"], gated), x, norm)
            for _ in range(2):
                b.execute()
        assert b.counts.kernels == 2 * (1 + (6 if fused else 13) * len(layers))
        results.append((b, y, kept))
        calls[name] = b.execute
    np.testing.assert_allclose(*(b.read(y) for b, y, _ in results), rtol=1e-3, atol=1e-4)
    timed = compare(calls, plan.budget)
    for b, _, _ in results:
        b.close()
    shown = _layers(shape, depth)
    return [Record("batch", DECODE, shown, "×", timed.ratio, timed.peer, timed.ratios, timed.seconds, "batch")]


def _blocks(n: int, k: int, name: str, seed: int) -> trueno.QuantizedMatrix:
    """A matrix of rows that are drawn from a few: quantizing them all would take minutes."""
    rows = trueno.quantize(values(("uniform", -0.1, 0.1), (64, k), seed), name).bytes
    return trueno.QuantizedMatrix(rows[np.random.default_rng(seed).integers(64, size=n)], (n, k), name)


@contextmanager
def _unfused(on: bool) -> Iterator[None]:
    """Batches that are planned inside keep their ops apart, if `on`: a change of the setting would be a new plan."""
    fusing = steps.fusing
    try:
        steps.fusing = (lambda: False) if on else fusing
        yield
    finally:
        steps.fusing = fusing


def _again(plan: Plan) -> list[Record]:
    """Ten kernels that do not fuse, executed again, less what they take in machine code alone."""
    (x,) = _inputs((32, SMALL // 32), 1)
    with trueno.Batch(BACKEND) as b:
        h = b.upload(x)
        for _ in range(10):
            h = b.transpose(h)
        b.execute()
        b.execute()
        replay = b._replay  # type: ignore[attr-defined]
        assert len(replay._calls) == 10
        pair: dict[str, Thunk] = {"execute": b.execute, "kernels": partial(replay._recorded._run, 0, 10)}
        best = fastest(race(pair, plan.budget, tuple(pair)))
    beyond = best["execute"] - best["kernels"]
    return [Record("batch", AGAIN, text((SMALL,)), "s", beyond, seconds=best, family="batch")]


def _short(plan: Plan) -> list[Record]:
    """Two hundred short kernels that do not fuse, executed again, against the same as single calls."""
    x, w = _inputs((64,), 2)
    matrix = trueno.quantize(_inputs((64, 64), 1)[0], "q8_0")
    normed, product = np.empty_like(x), np.empty_like(x)

    def single() -> None:
        source = x
        for _ in range(100):
            trueno.rms_norm(source, w, out=normed)
            trueno.quant_matvec(matrix, normed, out=product)
            source = product

    with trueno.Batch(BACKEND) as b, trueno.use(BACKEND):
        h, weight, blocks = b.upload(x), b.upload(w), b.upload(matrix)
        for _ in range(100):
            h = b.quant_matvec(blocks, b.rms_norm(h, weight))
        return _record(SHORT, (64,), {OURS: b.execute, "single calls": single}, plan)


# ---- what the limits were read off ----------------------------------------------------------------------

LIMITS: dict[str, tuple[float, ...]] = {
    "MOST_OPS": (4, 8, 12, 24, 48),
    "MOST_ARRAYS": (4, 8, 16, 24),
    "MOST_FUNCTIONS": (7, 14, 28, 56),
    "MOST_AGAIN": (-1, 1e9),
}
SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "MOST_OPS": ((1_024,), (4_000_000,)),
    "MOST_ARRAYS": ((16_384,), (1_000_000,)),
    "MOST_FUNCTIONS": ((100_000,), (4_000_000,)),
    "MOST_AGAIN": (ROWS, (16_000_000,)),
}


def _recorded(name: str, shape: tuple[int, ...]) -> Callable[[Any], Any]:
    arrays = _inputs(shape, 25 if name == "MOST_ARRAYS" else 1)

    def record(b: Any) -> Any:
        h = b.upload(arrays[0])
        if name == "MOST_ARRAYS":
            for x in arrays[1:]:
                h = b.add(h, b.upload(x))
        elif name == "MOST_OPS":
            for _ in range(16):
                h = b.scale(b.add(b.abs(h), 1.0), 0.5)
        elif name == "MOST_FUNCTIONS":
            for _ in range(8):
                h = b.tanh(b.add(h, 0.5))
        else:
            h = b.variance(b.tanh(h))
        return h

    return record


@contextmanager
def _set(**limits: float) -> Iterator[None]:
    old = {name: getattr(fuse, name) for name in limits}
    try:
        for name, value in limits.items():
            setattr(fuse, name, value)
        yield
    finally:
        for name, value in old.items():
            setattr(fuse, name, value)


def _limits(name: str, limits: tuple[float, ...], shape: tuple[int, ...], plan: Plan) -> list[Record]:
    """Seconds of one batch under several values of a limit; the others are out of the way, as far as they can be."""
    record = _recorded(name, shape)
    calls: dict[str, Thunk] = {}
    batches = []
    for limit in limits:
        free = {"MOST_OPS": 64, "MOST_ARRAYS": 32, "MOST_FUNCTIONS": 1e9, "MOST_AGAIN_LONG": limit}
        with _set(**{**free, name: limit}):
            b = trueno.Batch(BACKEND)
            h = record(b)
            b.execute()
        batches.append((b, h))
        calls[f"{limit:g}"] = b.execute
    best = fastest(race(calls, plan.budget, tuple(calls)))
    for b, _ in batches:
        b.close()
    return [Record("batch", f"limits {name}", text(shape), "s", min(best.values()), seconds=best, family="batch")]
